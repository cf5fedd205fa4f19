"""Fleets and policies, drawn: what each way of renting costs, and one run of each.

Takes what was derived; leaves nothing out that is not said to be missing.
"""

from __future__ import annotations

from stash.core.formatting import dollars, span_scale
from stash.core.intervals import Interval
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.risks import PolicyCourse, SpotSimulation
from stash.ui.charts.chart import (
    Bar,
    Blank,
    Chart,
    Dot,
    Drawn,
    Extent,
    Grid,
    Lane,
    Legend,
    Rule,
    Trail,
    axis,
    band,
    centre,
    extent,
    plain_axis,
    whisker,
)
from stash.ui.tables import fleet

SERIES = {
    "spot": "compute",
    "on-demand": "contention",
    "greedy": "interconnect",
    "uniform": "prep",
    "omniscient": "fetch",
}
"""Colours of policies; a gang held on spot or on demand has those of the policies that hold nothing else."""
_THERE = "plain"


def costs_of_fleets(plan: FleetPlan) -> Chart | Blank:
    """A row for the chosen fleet, with and without revocations, and for each other way to choose one."""
    name, title = "fleet-costs", "What it costs, against other ways to rent"
    if plan.chosen is None:
        return Blank(name, title, "no fleet does it")
    own = fleet(plan.chosen.workers, plan.chosen.on_demand)
    rows: list[tuple[str, str, Interval, str, bool]] = [
        ("this plan", own, Interval(value=plan.chosen.dollars), "compute", True)
    ]
    if plan.risk is not None:
        rows.append(("with revocations", own, plan.risk.dollars, "compute", True))
    for each in plan.baselines:
        if each.fleet is not None and each.name != "exhaustive":
            series = SERIES["on-demand"] if each.name == "on-demand" else "plain"
            what = fleet(each.fleet.workers, each.fleet.on_demand)
            label = each.name.replace("homogeneous", "only the")
            rows.append((label, what, Interval(value=each.fleet.dollars), series, bool(each.feasible)))
    x = extent([end for _, _, cost, _, _ in rows for end in (cost.value, cost.high)])
    marks: list[Drawn] = []
    for number, (label, what, cost, series, fits) in enumerate(rows):
        says = f"{label}: {what}, {dollars(cost.value)}"
        marks.append(Bar(x.span(0.0, cost.value), band(number, len(rows)), series, says, faint=not fits))
        marks += whisker(x, cost.low, cost.high, centre(number, len(rows)))
    late = [label for label, _, _, _, fits in rows if not fits]
    missing = [each.name for each in plan.baselines if each.fleet is None]
    told = [f"Faint ones break a wish: {', '.join(late)}." if late else ""]
    told.append(f"These choose nothing: {', '.join(missing)}." if missing else "")
    return Chart(
        name=name,
        title=title,
        caption=" ".join(filter(None, told)),
        how="Each bar is what a fleet costs until the loss is reached, start-up and servers included; a thin line is "
        "the 95% interval of a mean.",
        x=plain_axis(x, "US dollars"),
        marks=tuple(marks),
        lanes=tuple(
            Lane(label, dollars(cost.value) + ("" if fits else " · breaks a wish"))
            for label, _, cost, _, fits in rows
        ),
        table=Grid(
            title,
            ("fleet", "dollars", "keeps all wishes"),
            tuple((label, what, dollars(cost.value), "yes" if fits else "no") for label, what, cost, _, fits in rows),
            frozenset({0, 1, 3}),
            first="who chooses",
        ),
    )


def costs_of_policies(found: SpotSimulation) -> Chart | Blank:
    """A row for each policy: what it costs in the mean, and how often it is late."""
    name, title = "policy-costs", "What each policy costs"
    known = [each for each in found.policies if each.dollars is not None]
    costs = {each.name: each.dollars for each in known if each.dollars is not None}
    if not costs:
        return Blank(name, title, "no policy could do a run")
    x = extent([end for cost in costs.values() for end in (cost.value, cost.high)])
    marks: list[Drawn] = []
    lanes, rows = [], []
    for number, (label, cost) in enumerate(costs.items()):
        late = next(each.late for each in known if each.name == label)
        text = f"{dollars(cost.value)} · late in {late:.1%}"
        marks.append(Bar(x.span(0.0, cost.value), band(number, len(costs)), SERIES[label], f"{label}: {text}"))
        marks += whisker(x, cost.low, cost.high, centre(number, len(costs)))
        lanes.append(Lane(label, text))
        ends = "unknown" if cost.low is None or cost.high is None else f"{cost.low:.2f} to {cost.high:.2f}"
        rows.append((label, f"{cost.value:.2f}", ends, f"{late:.2%}"))
    return Chart(
        name=name,
        title=title,
        caption="",
        how="Means over all runs, and their 95% intervals where the traces hold two runs beside each other. A late "
        "run is paid until the deadline.",
        x=plain_axis(x, "US dollars"),
        marks=tuple(marks),
        lanes=tuple(lanes),
        table=Grid(title, ("dollars", "95%", "late"), tuple(rows), frozenset({0}), first="policy"),
    )


def timeline(found: SpotSimulation) -> Chart | Blank:
    """One run: when all machines could be had, what every policy held, and its revocations."""
    name, title = "revocations", "One run, policy by policy"
    if not found.courses or found.deadline_seconds is None:
        return Blank(name, title, "no run was kept")
    scale = span_scale(found.deadline_seconds)
    x = extent([found.deadline_seconds / scale.size])
    lanes = [Lane("obtainable"), *(Lane(each.name, _ended(each)) for each in found.courses)]
    marks: list[Drawn] = [Rule(x.at(found.deadline_seconds / scale.size))]
    for begin, end in found.there:
        marks.append(_held(x, begin / scale.size, end / scale.size, 0, len(lanes), _THERE, "all could be had"))
    for number, each in enumerate(found.courses, 1):
        for span in each.spans:
            ends = span.begin / scale.size, span.end / scale.size
            says = f"{each.name}: {span.held}, {ends[0]:.2f} to {ends[1]:.2f} {scale.unit}"
            marks.append(_held(x, *ends, number, len(lanes), span.held, says))
        for moment in each.revoked:
            at = moment / scale.size
            says = f"{each.name}: revoked at {at:.2f} {scale.unit}"
            marks.append(Dot(x.at(at), centre(number, len(lanes)), "slower", says))
    rows = tuple(
        (each.name, span.held, f"{span.begin / scale.size:.2f}", f"{span.end / scale.size:.2f}")
        for each in found.courses
        for span in each.spans
    )
    return Chart(
        name=name,
        title=title,
        caption="The run has as many revocations as the median one has.",
        how="Bars are machines that were held, dots revocations, the line is the deadline. Beside each row stands "
        "what the run cost.",
        x=plain_axis(x, f"{scale.unit} since the start"),
        marks=tuple(marks),
        lanes=tuple(lanes),
        keys=(
            Legend(_THERE, "all machines obtainable"),
            Legend(SERIES["spot"], "spot"),
            Legend(SERIES["on-demand"], "on-demand"),
            Legend("slower", "revoked"),
        ),
        table=Grid(title, ("held", f"from, {scale.unit}", "to"), rows, frozenset({0, 1}), first="policy"),
    )


def _held(x: Extent, begin: float, end: float, row: int, rows: int, held: str, says: str) -> Bar:
    return Bar(x.span(begin, end), band(row, rows), SERIES.get(held, held), says)


def _ended(each: PolicyCourse) -> str:
    return f"{dollars(each.dollars)}{' · late' if each.late else ''}"


def progress(found: SpotSimulation) -> Chart | Blank:
    """The same run: the share of its work that every policy has done, revocations taken off."""
    name, title = "progress", "How far every policy is"
    if not found.courses or found.deadline_seconds is None:
        return Blank(name, title, "no run was kept")
    scale = span_scale(found.deadline_seconds)
    x, y = extent([found.deadline_seconds / scale.size]), extent([0.0, 1.0])
    marks: list[Drawn] = [Rule(x.at(found.deadline_seconds / scale.size))]
    marks.append(Trail(((0.0, 0.0), (x.at(found.deadline_seconds / scale.size), y.at(1.0))), "plain"))
    for each in found.courses:
        points = tuple((x.at(at / scale.size), y.at(share)) for at, share in each.done)
        marks.append(Trail(points, SERIES[each.name]))
    quarters = (0.25, 0.5, 0.75, 1.0)
    rows = tuple((each.name, *(_reached(each, share, scale.size) for share in quarters)) for each in found.courses)
    return Chart(
        name=name,
        title=title,
        caption="",
        how="Work done by then. Where a line falls, a revocation destroyed what had been done since the last "
        "checkpoint. The straight line is uniform progress to the deadline.",
        x=plain_axis(x, f"{scale.unit} since the start"),
        y=axis(y, "work done", lambda share: f"{share:.0%}"),
        marks=tuple(marks),
        keys=(*(Legend(SERIES[each.name], each.name) for each in found.courses), Legend("plain", "uniform progress")),
        table=Grid(
            title, tuple(f"{share:.0%}, {scale.unit}" for share in quarters), rows, frozenset({0}), first="policy"
        ),
    )


def _reached(course: PolicyCourse, share: float, unit: float) -> str:
    at = next((at for at, done in course.done if done >= share - 1e-9), None)
    return "never" if at is None else f"{at / unit:.2f}"
