"""A plan as a page of the report, with its charts: cost against time, and every bill made of its stalls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stash.core.errors import UserError
from stash.core.formatting import chance, dollars, dollars_interval, span_interval, span_scale
from stash.core.ladder import STALLS
from stash.core.units import Scale, counted
from stash.plan.explained import DerivationLine, derivation
from stash.plan.records import Choice, Goal, RentalPlan
from stash.plan.view import WORDS, label, place, question, rule_line, table_scale, telling, unranked, verdict
from stash.ui.charts.chart import (
    Axis,
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
    Tag,
    Trail,
    Whisker,
    axis,
    band,
    centre,
    extent,
    plain_axis,
    whisker,
)
from stash.ui.charts.chart_files import content
from stash.ui.html import render
from stash.ui.page import Chapter, Page

# Charts ----------------------------------------------------------------------------------------------------
# What may be rented, drawn: cost against time with the front, and every bill made of its stalls.
#
# Takes what a plan says, and leaves out of the picture, not of its table, what lies far from every wish.

FRONT = ("chosen", "tied", "front")
_SERIES = {"chosen": "faster", "tied": "faster", "front": "contention", "lost": "plain", "infeasible": "slower"}
_WORDS = {
    "faster": "what to rent, and what is as good",
    "contention": "the front: nothing is both cheaper and sooner",
    "plain": "lost",
    "slower": "misses deadline or budget",
}
_FAR = 2.0
"""Times the longest and the dearest of the front, beyond which a choice is not drawn."""
_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class _Plane:
    """Where times and dollars stand."""

    x: Extent
    y: Extent
    unit: Scale
    """Of times."""

    def across(self, seconds: float) -> float:
        return self.x.at(seconds / self.unit.size)

    def place(self, choice: Choice) -> tuple[float, float]:
        return self.across(choice.seconds.value), self.y.at(choice.dollars.value)


def cost_against_time(plan: RentalPlan) -> Chart | Blank:
    """A dot for each choice, the front as a line through its own, the deadline as a line across."""
    name, title = "cost-against-time", "Cost against time"
    if not plan.choices:
        return Blank(name, title, "of no offer are both its price and the step on it known")
    near = _near(plan)
    plane = _plane(plan.goal, near)
    marks = _wishes(plan.goal, plane)
    front = _unbeaten([item for item in near if item.standing in FRONT])
    if len(front) > 1:
        marks.append(Trail(tuple(map(plane.place, front)), "contention"))
    marks += [*_dots(near, plane), *_tags(near, plane)]
    present = {_SERIES[item.standing] for item in near}
    far = len(plan.choices) - len(near)
    left_out = f"{counted(far, 'choice')} far beyond {'is' if far == 1 else 'are'} only in the table."
    return Chart(
        name=name,
        title=title,
        caption=left_out if far else "",
        how="Each dot is something to rent: left is sooner, low is cheaper. Thin lines are 95% intervals; lines "
        "across are the deadline and the budget.",
        x=plain_axis(plane.x, f"{plane.unit.unit} from start to end"),
        y=_dollar_axis(plane.y),
        marks=tuple(marks),
        keys=tuple(Legend(series, _WORDS[series]) for series in _WORDS if series in present),
        table=choices_table(plan, "Everything that was weighed to the end"),
    )


def _plane(goal: Goal, shown: Sequence[Choice]) -> _Plane:
    """One that holds all of them, the intervals of the front, and what was asked for."""
    unit = span_scale(max(item.seconds.value for item in shown))
    sure = [item for item in shown if item.standing in FRONT]
    times = [goal.deadline_seconds, *(item.seconds.value for item in shown), *(item.seconds.high for item in sure)]
    costs = [goal.budget_dollars, *(item.dollars.value for item in shown), *(item.dollars.high for item in sure)]
    return _Plane(extent([None if time is None else time / unit.size for time in times]), extent(costs), unit)


def _near(plan: RentalPlan) -> list[Choice]:
    """Choices that are no more than so many times as long, or as dear, as the front; all, where there is none."""
    front = [item for item in plan.choices if item.standing in FRONT]
    longest = max((item.seconds.value for item in front), default=0.0)
    dearest = max((item.dollars.value for item in front), default=0.0)
    longest, dearest = max(longest, plan.goal.deadline_seconds or 0.0), max(dearest, plan.goal.budget_dollars or 0.0)
    return [
        item
        for item in plan.choices
        if not front or (item.seconds.value <= _FAR * longest and item.dollars.value <= _FAR * dearest)
    ]


def _unbeaten(choices: Sequence[Choice]) -> list[Choice]:
    """Those that no other is both cheaper and sooner than, the soonest first: a tie may be beaten in both."""
    found: list[Choice] = []
    for item in sorted(choices, key=lambda item: (item.seconds.value, item.dollars.value)):
        if not found or item.dollars.value < found[-1].dollars.value:
            found.append(item)
    return found


def _wishes(goal: Goal, plane: _Plane) -> list[Drawn]:
    marks: list[Drawn] = []
    if goal.deadline_seconds is not None:
        until = plane.across(goal.deadline_seconds)
        marks += [Rule(until), Tag(until, 0.0, "deadline")]
    if goal.budget_dollars is not None:
        budget = plane.y.at(goal.budget_dollars)
        marks += [Trail(((0.0, budget), (1.0, budget)), "plain"), Tag(0.0, budget, "budget")]
    return marks


def _dots(shown: Sequence[Choice], plane: _Plane) -> list[Drawn]:
    """The best last, so that nothing hides them."""
    marks: list[Drawn] = []
    for item in reversed(_best_first(shown)):
        series, (x, y) = _SERIES[item.standing], plane.place(item)
        if item.standing in FRONT:
            time, money = item.seconds.scaled(1 / plane.unit.size), item.dollars
            marks += whisker(plane.x, time.low, time.high, y, series)
            if money.low is not None and money.high is not None:
                marks.append(Whisker((x, x), plane.y.span(money.low, money.high), series))
        says = f"{item.name}: {span_interval(item.seconds)}, {dollars_interval(item.dollars)}; {item.why}"
        marks.append(Dot(x, y, series, says, hollow=item.standing in ("lost", "infeasible")))
    return marks


def _tags(shown: Sequence[Choice], plane: _Plane) -> list[Drawn]:
    """Names, the best first."""
    return [Tag(*plane.place(item), item.name, firm=item.standing == "chosen") for item in _best_first(shown)]


def _best_first(choices: Sequence[Choice]) -> list[Choice]:
    return sorted(choices, key=lambda item: list(_SERIES).index(item.standing))


def _dollar_axis(shown: Extent) -> Axis:
    decimals = 0 if shown.step >= 1 else 2
    return axis(shown, "dollars", lambda value: dollars(value, decimals))


def dollars_by_stall(plan: RentalPlan) -> Chart | Blank:
    """A row for each of the choices that say most, its bill made of its stalls and of what else is paid."""
    name, title = "dollars-by-stall", "Where the dollars go"
    shown = telling(plan)
    if not shown:
        return Blank(name, title, "of no offer are both its price and the step on it known")
    x = extent([end for item in shown for end in (item.dollars.value, item.dollars.high)])
    marks: list[Drawn] = []
    for number, item in enumerate(shown):
        marks += _bill(item, x, number, len(shown))
    lanes = tuple(Lane(f"{item.name}", dollars_interval(item.dollars)) for item in shown)
    present = [stall for stall in STALLS if any(part.name == stall for item in shown for part in item.stalls)]
    return Chart(
        name=name,
        title=title,
        caption="",
        how="Each row is one bill, made of the stalls of a step over the whole training and, grey, of what is paid "
        "beside it. Thin lines are 95% intervals of the whole.",
        x=_dollar_axis(x),
        marks=tuple(marks),
        lanes=lanes,
        keys=(*(Legend(stall, stall) for stall in present), Legend("plain", "beside training")),
        table=_bills_table(plan.choices, present),
    )


def _bill(item: Choice, x: Extent, number: int, rows: int) -> list[Drawn]:
    """What was measured as negative has no place in it."""
    marks: list[Drawn] = []
    parts = [(part.name, part.name, part.dollars.value) for part in item.stalls]
    parts += [(part.name, "plain", part.dollars.value) for part in item.items if part.name != "training"]
    reached = 0.0
    for name, series, value in parts:
        if value > 0:
            says = f"{item.name}, {name}: {dollars(value)} of {dollars(item.dollars.value)}"
            marks.append(Bar(x.span(reached, reached + value), band(number, rows), series, says))
            reached += value
    return [*marks, *whisker(x, item.dollars.low, item.dollars.high, centre(number, rows))]


def choices_table(plan: RentalPlan, title: str) -> Grid:
    """Every choice with its time, bill and chances, and why it was or was not chosen."""
    choices, goal = plan.choices, plan.goal
    scale = table_scale(choices)
    columns: list[tuple[str, Callable[[Choice], str], bool]] = [
        ("what", lambda item: label(item).replace(" ", _SPACE), True),
        ("", lambda item: WORDS[item.standing], True),
        ("time", lambda item: span_interval(item.seconds, scale), False),
        ("cost", lambda item: dollars_interval(item.dollars), False),
        ("on time", lambda item: chance(item.on_time, goal.deadline_seconds), False),
        ("in budget", lambda item: chance(item.within_budget, goal.budget_dollars), False),
        ("$/h", lambda item: dollars(item.rented.dollars_per_hour), False),
        ("where", place, True),
        ("why", lambda item: item.why, True),
    ]
    if len(set(map(place, choices))) == 1:
        columns = [column for column in columns if column[0] != "where"]
    told = [(head, cell, text) for head, cell, text in columns if any(map(cell, choices))]
    rows = tuple(tuple(cell(item) for _, cell, _ in told) for item in choices)
    texts = frozenset(number for number, (_, _, text) in enumerate(told) if text)
    return Grid(title, tuple(head for head, _, _ in told[1:]), rows, texts, first="what")


def _bills_table(choices: Sequence[Choice], present: Sequence[str]) -> Grid:
    beside = list(dict.fromkeys(part.name for item in choices for part in item.items if part.name != "training"))
    rows = []
    for item in choices:
        found = {part.name: part.dollars for part in item.stalls}
        found |= {part.name: part.dollars for part in item.items}
        cells = [dollars_interval(found[name]) if name in found else "unknown" for name in present]
        paid = [dollars_interval(found[name]) if name in found else "not counted" for name in beside]
        rows.append((item.name, dollars_interval(item.dollars), *cells, *paid))
    return Grid("Bills, in dollars", ("all", *present, *beside), tuple(rows), frozenset({0}), first="what")


# Page ------------------------------------------------------------------------------------------------------
# A plan as a page of the report: what to rent, cost against time, where the dollars go, and how they were found.

_WIDTH_MM = 170
_UNRANKED = 30


def picture(plan: RentalPlan, ending: str) -> str | bytes:
    """The content of a file with that ending: the whole page, or cost against time as a picture.

    Raises UserError where there is nothing to draw, or without vl-convert.
    """
    if ending == ".html":
        return render(page(plan))
    drawn = cost_against_time(plan)
    if isinstance(drawn, Blank):
        raise UserError(f"--output *{ending}: there is nothing to draw, because {drawn.why}")
    return content(drawn, ending.removeprefix("."), _WIDTH_MM)


def page(plan: RentalPlan) -> Page:
    """The whole report."""
    return Page(
        title=f"What to rent for {plan.workload}",
        source=f"A plan of {plan.created[:10]}, from {', '.join(plan.profiles)}",
        subtitle=(question(plan.goal),),
        verdict=(verdict(plan),),
        numbers=() if plan.chosen is None else tuple(_numbers(plan.chosen, plan.goal)),
        warnings=plan.warnings,
        next_steps=_next(plan),
        chapters=tuple(_chapters(plan)),
    )


def _numbers(best: Choice, goal: Goal) -> Iterator[tuple[str, str]]:
    yield "rent", label(best)
    yield "time", span_interval(best.seconds)
    yield "cost", dollars_interval(best.dollars)
    if goal.deadline_seconds is not None:
        yield "on time", chance(best.on_time, goal.deadline_seconds)
    if goal.budget_dollars is not None:
        yield "in budget", chance(best.within_budget, goal.budget_dollars)
    yield "price", f"{dollars(best.rented.dollars_per_hour)}/h"
    yield "where", place(best)


def _next(plan: RentalPlan) -> tuple[str, ...]:
    steps = [f"`--{wish.option} {wish.to}`: {wish.text}" for wish in plan.relaxations]
    if plan.experiment is not None:
        steps.append(f"{plan.experiment.text}: `{' '.join(plan.experiment.command)}`")
    return tuple(steps)


def _chapters(plan: RentalPlan) -> list[Chapter]:
    found = [
        Chapter("front", "Cost against time", label="Cost and time", charts=(cost_against_time(plan),)),
        Chapter("dollars", "Where the dollars go", label="Dollars", charts=(dollars_by_stall(plan),)),
        Chapter("choices", "What was weighed", label="Choices", grids=(choices_table(plan, ""),)),
    ]
    if plan.rules:
        found.append(Chapter("rules", "How people choose today", label="Rules", grids=(_rules(plan),)))
    if plan.chosen is not None:
        its = derivation(plan.chosen, plan.goal)
        grids = tuple(_derived(title, part) for title, part in its.parts)
        found.append(
            Chapter("derivation", f"How {its.title} was worked out", grids=grids, points=its.warnings, folded=True)
        )
    points = [f"{item.instance} ({item.cloud}): {item.why}" for item in plan.unranked[:_UNRANKED]]
    if len(plan.unranked) > _UNRANKED:
        points.append(unranked(plan.unranked[_UNRANKED:]))
    if points:
        found.append(Chapter("unranked", "Left out, because something is unknown", points=tuple(points), folded=True))
    if plan.assumptions:
        found.append(Chapter("assumed", "What was taken for granted", label="Assumed", points=plan.assumptions))
    return found


def _derived(title: str, lines: tuple[DerivationLine, ...]) -> Grid:
    rows = tuple((line.label, line.value, "; ".join(filter(None, (line.text, *line.facts)))) for line in lines)
    return Grid(title, ("", ""), rows, frozenset({0, 2}))


def _rules(plan: RentalPlan) -> Grid:
    lines = [rule_line(rule, plan) for rule in plan.rules]
    texts = {rule.rule: rule.text for rule in plan.rules}
    rows = tuple((line.rule, texts[line.rule], line.rents, line.dollars, line.time, line.remark) for line in lines)
    head = ("takes", "would rent", "costs more", "takes longer", "")
    return Grid("", head, rows, frozenset({0, 1, 2, 5}), first="rule")
