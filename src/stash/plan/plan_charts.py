"""What may be rented, drawn: cost against time with the front, and every bill made of its stalls.

Takes what a plan says, and leaves out of the picture, not of its table, what lies far from every wish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stash.core.formatting import (
    dollars_interval,
    format_chance,
    format_dollars,
    span_interval,
    span_scale,
)
from stash.core.units import Scale, format_count
from stash.plan.records import Choice, ChoiceStanding, Goal, RentalPlan, StallShare
from stash.predict.compute_ratios import is_of_model
from stash.ui.charts.builders import (
    Chart,
    PlotCurve,
    PlotPoint,
    Ruler,
    level,
    make_ruler,
    plane_chart,
)
from stash.ui.charts.chart import Blank, Grid, Legend, Tag, make_axis, round_extent

WORDS: dict[ChoiceStanding, str] = {
    "chosen": "rent",
    "tied": "tie",
    "front": "front",
    "lost": "lost",
    "infeasible": "fails",
}
"""What became of a choice."""
FRONT = ("chosen", "tied", "front")
_SERIES = {
    "chosen": "faster",
    "tied": "faster",
    "front": "contention",
    "lost": "plain",
    "infeasible": "slower",
}
_MEANINGS = {
    "faster": "what to rent, and what is as good",
    "contention": "the front: nothing is both cheaper and sooner",
    "plain": "lost",
    "slower": "misses deadline or budget",
}
_FAR = 2.0
"""Times the longest and the dearest of the front, beyond which a choice is not drawn."""
_UNKNOWN = "of no offer are both its price and the step on it known"
_HOW_TO_READ = (
    "Each dot is something to rent: left is sooner, low is cheaper. Thin lines are 95% intervals; lines "
    "across are the deadline and the budget."
)


EVIDENCE = {
    "m": "measured",
    "p": "published for this model",
    "o": "scaled from what was profiled",
    "s": "data sheets",
    "g": "as given",
}
"""What a figure rests on, by its letter: the surest first."""


def evidence(choice: Choice) -> str:
    """The letter of what its time rests on, and so its bill: of its least certain part."""
    return max(map(evidence_letter, choice.stalls), key="mgops".index, default="s")


def evidence_letter(stall: StallShare) -> str:
    if stall.origin != "data sheet":
        return {"measured": "m", "scaled": "o"}.get(stall.origin, "g")
    named = any(is_of_model(fact.source) for fact in stall.facts)
    return "p" if named and stall.name == "compute" else "s"


def cost_against_time(plan: RentalPlan) -> Chart | Blank:
    """A dot for each choice, the front as a line through its own, the deadline as a line across."""
    name, title = "cost-against-time", "Cost against time"
    if not plan.choices:
        return Blank(name, title, _UNKNOWN)
    near = _choices_near_front(plan)
    deadline, budget = plan.goal.deadline_seconds, plan.goal.budget_dollars
    unit = span_scale(max(item.seconds.value for item in near))
    sure = [item for item in near if item.standing in FRONT]
    times = [
        deadline,
        *(item.seconds.value for item in near),
        *(item.seconds.high for item in sure),
    ]
    costs = [budget, *(item.dollars.value for item in near), *(item.dollars.high for item in sure)]
    x = make_ruler(times, f"{unit.unit} from start to end", unit.size)
    y = _dollar_ruler(costs)
    # A tie may be beaten in both.
    front = [item for item in sure if item.standing != "tied"]
    front.sort(key=lambda item: item.seconds.value)
    line = tuple(map(_point, front))
    curves = [] if budget is None else [level(budget)]
    curves.append(PlotCurve("contention", line, line=True, dots=False))
    # The best last, so that nothing hides them; names the best first.
    best_first = sorted(near, key=lambda item: list(_SERIES).index(item.standing))
    curves += [PlotCurve(_SERIES[item.standing], (_point(item),)) for item in reversed(best_first)]
    tags = [] if deadline is None else [Tag(x.locate(deadline), 0.0, "deadline")]
    tags += [] if budget is None else [Tag(0.0, y.locate(budget), "budget")]
    for item in best_first:
        place = x.locate(item.seconds.value), y.locate(item.dollars.value)
        tags.append(Tag(*place, item.name, firm=item.standing == "chosen"))
    present = {_SERIES[item.standing] for item in near}
    far = len(plan.choices) - len(near)
    are = "is" if far == 1 else "are"
    return plane_chart(
        name,
        title,
        curves,
        x,
        y,
        choices_table(plan, plan.choices),
        how=_HOW_TO_READ,
        caption=f"{format_count(far, 'choice')} far beyond {are} only in the table." if far else "",
        keys=[Legend(series, text) for series, text in _MEANINGS.items() if series in present],
        rules=() if deadline is None else (deadline,),
        tags=tags,
    )


def _choices_near_front(plan: RentalPlan) -> list[Choice]:
    """Choices that are no more than so many times as long, or as dear, as the front; all, where there is none."""
    front = [item for item in plan.choices if item.standing in FRONT]
    longest = max((item.seconds.value for item in front), default=0.0)
    dearest = max((item.dollars.value for item in front), default=0.0)
    longest, dearest = (
        max(longest, plan.goal.deadline_seconds or 0.0),
        max(dearest, plan.goal.budget_dollars or 0.0),
    )
    return [
        item
        for item in plan.choices
        if not front
        or (item.seconds.value <= _FAR * longest and item.dollars.value <= _FAR * dearest)
    ]


def _point(item: Choice) -> PlotPoint:
    """With its intervals if it is on the front."""
    time, money, front = item.seconds, item.dollars, item.standing in FRONT
    tip = f"{item.name}: {span_interval(time)}, {dollars_interval(money)}; {item.why}"
    ends = (money.low, money.high, time.low, time.high) if front else (None,) * 4
    return PlotPoint(time.value, money.value, tip, *ends, hollow=not front)


def _dollar_ruler(values: Sequence[float | None]) -> Ruler:
    shown = round_extent(values)
    decimals = 0 if shown.step >= 1 else 2
    return Ruler(shown, make_axis(shown, "dollars", lambda value: format_dollars(value, decimals)))


def label(choice: Choice) -> str:
    """``"2 × p3.8xlarge"``, and how it is paid for if not on demand."""
    paid = choice.rented.price.paid_as
    return choice.name if paid == "on-demand" else f"{choice.name}, {paid}"


def place(choice: Choice) -> str:
    """``"aws us-east-1"``."""
    return " ".join(part for part in (choice.rented.cloud, choice.rented.price.region) if part)


def table_scale(choices: Sequence[Choice]) -> Scale:
    """The unit in which times of several choices stand below each other: the first one's, with one decimal."""
    return span_scale(choices[0].seconds.value if choices else 0.0)._replace(decimals=1)


def choices_table(
    plan: RentalPlan,
    shown: Sequence[Choice],
    brief: bool = False,
    why: Callable[[Choice], str] = lambda item: item.why,
) -> Grid:
    """What became of each of the choices ``shown``: time, bill, chances, and why; ``brief`` is for a screen."""
    goal, scale = plan.goal, table_scale(plan.choices)
    columns: list[tuple[str, Callable[[Choice], str], bool, int]] = [
        ("", lambda item: WORDS[item.standing], True, 0),
        ("what", label, True, 0),
        ("time", lambda item: span_interval(item.seconds, scale), False, 0),
        ("cost", lambda item: dollars_interval(item.dollars), False, 0),
        ("by", evidence, True, 1),
        ("on time", lambda item: format_chance(item.on_time, goal.deadline_seconds), False, 0),
        (
            "in budget",
            lambda item: format_chance(item.within_budget, goal.budget_dollars),
            False,
            0,
        ),
        (superlative(goal), lambda item: format_chance(item.best), False, 1),
        ("largest stall", _stall_text, True, 1),
        ("$/h", lambda item: format_dollars(item.rented.dollars_per_hour), False, 2),
        ("where", place, True, 2),
        ("why", why, True, 0),
    ]
    kept = [each for each in columns if any(map(each[1], shown)) and not (brief and each[3] == 2)]
    return Grid(
        title="",
        head=tuple(head for head, *_ in kept[1:]),
        rows=tuple(tuple(cell(item) for _, cell, _, _ in kept) for item in shown),
        texts=frozenset(number for number, (_, _, text, _) in enumerate(kept) if text),
        ranks=tuple(rank for *_, rank in kept),
        prose=kept[-1][0] == "why",
    )


def superlative(goal: Goal) -> str:
    """What the best is called: ``"fastest"`` where only a budget is given, else ``"cheapest"``."""
    return "fastest" if goal.aim == "seconds" else "cheapest"


def largest_stall(choice: Choice) -> tuple[str, float]:
    """The largest stall and its share of the bill, or of the step where nothing is paid, if one is above 0."""
    stalls = [
        stall for stall in choice.stalls if stall.name != "compute" and stall.seconds.value > 0
    ]
    if not stalls:
        return "", 0.0
    most = max(stalls, key=lambda stall: stall.seconds.value)
    whole = choice.dollars.value
    return most.name, most.dollars.value / whole if whole > 0 else most.share


def _stall_text(choice: Choice) -> str:
    name, share = largest_stall(choice)
    return f"{name} {share:.0%}" if name else ""
