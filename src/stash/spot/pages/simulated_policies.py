"""What policies of renting came to, as a page and as JSON: costs, and one run of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stash.core.formatting import dollars, span_scale
from stash.core.units import format_seconds
from stash.spot.pages.fleet_plan import fleet
from stash.spot.records.risks import PolicyOutcome, SpotSimulation
from stash.spot.risk.restarting import MIN_INDEPENDENT
from stash.ui.charts.builders import (
    BarPiece,
    LaneRow,
    PlotCurve,
    PlotPoint,
    Value,
    lane_chart,
    lanes_ruler,
    plane_chart,
    ruler,
    worded_ruler,
)
from stash.ui.charts.chart import Chart, Grid, Legend
from stash.ui.page import Chapter, Page

SCHEMA = 1
SERIES = {
    "spot": "compute",
    "on-demand": "contention",
    "greedy": "interconnect",
    "uniform": "prep",
}
"""Colours of policies; a gang held on spot or on demand has those of the policies that hold nothing else."""


def page(found: SpotSimulation, source: str) -> Page:
    """What every policy came to, and one run of each."""
    runs = f"{found.runs:,} runs from random ticks, the same for all policies. A late run is paid until the deadline."
    notes = tuple(f"{note[0].upper()}{note[1:]}." for note in found.notes)
    few = (
        f"The traces hold {found.independent:.1f} independent runs: this is one stretch of time, and how another one "
        "goes is unknown."
        if found.independent < MIN_INDEPENDENT
        else ""
    )
    head = ("cost, mean", "on-demand", "late", "revoked", "how")
    grid = Grid("", head, tuple(map(_row, found.policies)), frozenset({0, 5}), first="policy", prose=True)
    return Page(
        title=f"{fleet(found.workers)} on spot",
        source=source,
        subtitle=(f"as {source} had it: all at once in {found.obtainable:.0%} of ticks",),
        verdict=(f"{found.advice[0].upper()}{found.advice[1:]}.",),
        numbers=tuple(_numbers(found)),
        grids=(grid,),
        warnings=(few,) if few else (),
        chapters=(
            Chapter("policies", "What each policy costs", label="Policies", charts=(costs_of_policies(found),)),
            Chapter("run", "One run", label="One run", charts=(timeline(found), progress(found))),
            Chapter("how", "How it was simulated", points=(runs, _mode(found), *notes), brief=True),
        ),
    )


def _numbers(found: SpotSimulation) -> Iterator[tuple[str, str]]:
    yield "obtainable", f"{found.obtainable:.0%} of the time"
    yield "runs", f"{found.runs:,}"
    yield "independent runs", f"{found.independent:.1f}"


def _mode(found: SpotSimulation) -> str:
    kept = found.checkpoint
    if kept is None:
        return "Asynchronous: servers keep the parameters, and a revocation costs the time until all are back."
    takes = f"Synchronous: a checkpoint takes {format_seconds(kept.write_seconds)}"
    if kept.just_in_time:
        return f"{takes} and fits the notice, so a revocation destroys nothing."
    return f"{takes}, one is written every {format_seconds(kept.best)}, and a revocation destroys what came after it."


def _row(each: PolicyOutcome) -> tuple[str, ...]:
    late, share = f"{each.late:.1%}", each.late_interval
    if share.low is not None and share.high is not None:
        late += f" ({share.low:.0%}-{share.high:.0%})"
    cost = f"${each.dollars.value:.2f}"
    if each.dollars.half_width is not None:
        cost += f" ± {each.dollars.half_width:.2f}"
    return each.name, cost, f"{each.on_demand_hours.value:.2f} h", late, f"{each.revocations:.1f}", each.text


def costs_of_policies(found: SpotSimulation) -> Chart:
    """A row for each policy: what it costs in the mean, and how often it is late."""
    name, title = "policy-costs", "What each policy costs"
    rows, table = [], []
    for each in found.policies:
        cost = each.dollars
        text = f"{dollars(cost.value)} · late in {each.late:.1%}"
        piece = BarPiece(0.0, cost.value, SERIES[each.name], f"{each.name}: {text}")
        rows.append(LaneRow(each.name, text, (piece,), cost.low, cost.high))
        ends = "unknown" if cost.low is None or cost.high is None else f"{cost.low:.2f} to {cost.high:.2f}"
        table.append((each.name, f"{cost.value:.2f}", ends, f"{each.late:.2%}"))
    return lane_chart(
        name,
        title,
        rows,
        lanes_ruler(rows, "US dollars"),
        Grid(title, ("dollars", "95%", "late"), tuple(table), frozenset({0}), first="policy"),
        how="Means over all runs, and their 95% intervals where the traces hold two independent runs. A late "
        "run is paid until the deadline.",
    )


def timeline(found: SpotSimulation) -> Chart:
    """One run: when all machines could be had, what every policy held, and its revocations."""
    name, title = "revocations", "One run, policy by policy"
    scale = span_scale(found.deadline_seconds)
    there = tuple(BarPiece(begin, end, "plain", "all could be had") for begin, end in found.there)
    rows, table = [LaneRow("obtainable", pieces=there)], []
    for each in found.courses:
        pieces = []
        for span in each.spans:
            begin, end = (f"{at / scale.size:.2f}" for at in (span.begin, span.end))
            tip = f"{each.name}: {span.held}, {begin} to {end} {scale.unit}"
            pieces.append(BarPiece(span.begin, span.end, SERIES.get(span.held, span.held), tip))
            table.append((each.name, span.held, begin, end))
        gone = tuple(
            Value(at, "slower", f"{each.name}: revoked at {at / scale.size:.2f} {scale.unit}") for at in each.revoked
        )
        text = f"{dollars(each.dollars)}{' · late' if each.late else ''}"
        rows.append(LaneRow(each.name, text, tuple(pieces), values=gone))
    return lane_chart(
        name,
        title,
        rows,
        ruler([found.deadline_seconds], f"{scale.unit} since the start", scale.size),
        Grid(title, ("held", f"from, {scale.unit}", "to"), tuple(table), frozenset({0, 1}), first="policy"),
        how="Bars are machines that were held, dots revocations, the line is the deadline. Next to each row stands "
        "what the run cost.",
        caption="The run has as many revocations as the median one has.",
        keys=(
            Legend("plain", "all machines obtainable"),
            Legend(SERIES["spot"], "spot"),
            Legend(SERIES["on-demand"], "on-demand"),
            Legend("slower", "revoked"),
        ),
        rule=found.deadline_seconds,
    )


def progress(found: SpotSimulation) -> Chart:
    """The same run: the share of its work that every policy has done, revocations taken off."""
    name, title, deadline = "progress", "How far every policy is", found.deadline_seconds
    scale = span_scale(deadline)
    curves = [PlotCurve("plain", (PlotPoint(0.0, 0.0), PlotPoint(deadline, 1.0)), line=True, dots=False)]
    for each in found.courses:
        done = tuple(PlotPoint(at, share) for at, share in each.done)
        curves.append(PlotCurve(SERIES[each.name], done, line=True, dots=False))
    quarters = (0.25, 0.5, 0.75, 1.0)

    def reached(done: Sequence[tuple[float, float]], wanted: float) -> str:
        at = next((at for at, share in done if share >= wanted - 1e-9), None)
        return "never" if at is None else f"{at / scale.size:.2f}"

    table = tuple((each.name, *(reached(each.done, share) for share in quarters)) for each in found.courses)
    heads = tuple(f"{share:.0%}, {scale.unit}" for share in quarters)
    return plane_chart(
        name,
        title,
        curves,
        ruler([deadline], f"{scale.unit} since the start", scale.size),
        worded_ruler([0.0, 1.0], "work done", lambda share: f"{share:.0%}"),
        Grid(title, heads, table, frozenset({0}), first="policy"),
        how="Work done by then. Where a line falls, a revocation destroyed what had been done since the last "
        "checkpoint. The straight line is uniform progress to the deadline.",
        keys=(*(Legend(SERIES[each.name], each.name) for each in found.courses), Legend("plain", "uniform progress")),
        rules=(deadline,),
    )


def document(found: SpotSimulation) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "schema": SCHEMA,
        "policies": {each.name: _policy(each) for each in found.policies},
        "advice": found.advice,
        "workers": found.workers,
        "obtainable": found.obtainable,
        "runs": found.runs,
        "seed": found.seed,
        "mode": found.mode,
        "checkpoint": None if found.checkpoint is None else found.checkpoint.model_dump(),
        "independent": found.independent,
        "notes": list(found.notes),
    }


def _policy(each: PolicyOutcome) -> dict[str, Any]:
    return {
        "dollars": each.dollars.value,
        "dollars_low": each.dollars.low,
        "dollars_high": each.dollars.high,
        "on_demand_hours": each.on_demand_hours.value,
        "late": each.late,
        "late_low": each.late_interval.low,
        "late_high": each.late_interval.high,
        "revocations": each.revocations,
        "runs": each.runs,
    }
