"""How one choice's time and bill were found, line by line, each fact with its origin, source and date.

Takes a plan apart that is there; computes nothing but the quotients that it shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from stash.core.errors import UserError
from stash.core.formatting import (
    dollars_interval,
    format_chance,
    format_dollars,
    format_span,
    plus_minus,
    span_interval,
)
from stash.core.units import SECONDS, find_nearest, scale_for
from stash.plan.plan_charts import WORDS, evidence_letter, label
from stash.plan.records import Choice, Goal, PlanFact, Rental, RentalPlan, Unranked
from stash.predict.draws import Quantity, Used, fact_text
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

Line = tuple[str, str, str]
"""What, how much, and where it comes from with all that it rests on."""


def explain_type(plan: RentalPlan, name: str) -> Page:
    """The derivation of the plan's first choice of that instance type, as ``TYPE`` or ``CLOUD/TYPE``.

    Of a type that could not be ranked, why. Raises UserError if the plan knows nothing of it.
    """
    wanted = name.strip().lower()
    found = next((item for item in plan.choices if wanted in _names(item.rented)), None)
    if found is not None:
        grids = derivation(found, plan.goal)
        return Page(
            title=label(found),
            verdict=(f"{WORDS[found.standing].capitalize()}: {found.why}.",),
            warnings=found.beyond,
            chapters=tuple(
                Chapter(each.title, each.title, grids=(each,), brief=True) for each in grids
            ),
        )
    left_out = next((item for item in plan.unranked if wanted in _names(item)), None)
    if left_out is not None:
        return Page(left_out.instance, verdict=(f"It is not ranked: {left_out.why}.",))
    known = {item.rented.instance for item in plan.choices} | {
        item.instance for item in plan.unranked
    }
    alike = find_nearest(name, known)
    hint = (
        f"did you mean {', '.join(alike)}?"
        if alike
        else "`stash recommend … --json` lists what was weighed"
    )
    raise UserError(
        f"--explain-type {name}: nothing of that type is listed: it is unknown, not allowed or proven worse; {hint}"
    )


def _names(item: Rental | Unranked) -> tuple[str, str]:
    return item.instance.lower(), f"{item.cloud}/{item.instance}".lower()


def derivation(choice: Choice, goal: Goal) -> tuple[Grid, ...]:
    """Every line of it, in tables with a title."""
    parts = (
        ("Training length", _work(choice, goal)),
        ("One step, stall by stall", _step(choice)),
        ("From start to end", _time(choice)),
        ("The bill", _bill(choice)),
        ("Against what was asked", _chance_lines(choice, goal)),
    )
    found = ((title, tuple(lines)) for title, lines in parts)
    return tuple(
        Grid(title, ("", ""), rows, frozenset({0, 2}), prose=True) for title, rows in found if rows
    )


def settings_text(choice: Choice) -> str:
    """What of the job's settings changes: ``"batch 32, accumulate 2"``; empty if nothing does."""
    given = choice.setting.model_dump(exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in given.items())


def _work(choice: Choice, goal: Goal) -> Iterator[Line]:
    rented, samples = choice.rented, goal.work.samples
    yield "work", f"{samples:,.0f} samples", goal.work.text
    ranks = rented.nodes * rented.devices
    each = choice.samples_per_step / ranks
    device = rented.device or "rank on CPUs"
    asked = (
        "so many on each device"
        if goal.scaling == "per device"
        else "the profiled global batch, shared"
    )
    text = f"{rented.nodes} × {rented.devices} × {device}, {each:,.4g} samples each ({asked})"
    yield "a step", f"{choice.samples_per_step:,.0f} samples", text
    if settings_text(choice):
        yield "settings", settings_text(choice), "instead of what was profiled"
    yield (
        "steps",
        f"{choice.steps:,.0f}",
        f"{samples:,.0f} / {choice.samples_per_step:,.0f}, rounded up",
    )


def _step(choice: Choice) -> Iterator[Line]:
    scale = scale_for(choice.step.value, SECONDS, 4)
    for stall in choice.stalls:
        text = "; ".join(
            (
                f"{stall.share:.0%} of the step, {stall.origin}",
                *(fact_text(used_fact(fact)) for fact in stall.facts),
            )
        )
        yield (
            f"{stall.name} [{evidence_letter(stall)}]",
            f"{scale.number(stall.seconds.value)} {plus_minus(stall.seconds, scale)} {scale.unit}",
            text,
        )
    total = f"{scale.number(choice.step.value)} {plus_minus(choice.step, scale)} {scale.unit}"
    yield "step", total, f"together; {choice.samples_per_second:,.0f} samples/s"


def _time(choice: Choice) -> Iterator[Line]:
    scale = scale_for(choice.step.value, SECONDS, 4)
    for item in choice.items:
        text = item.text
        if item.name == "training":
            text = f"{choice.steps:,.0f} steps × {scale.text(choice.step.value)}"
        if item.seconds.value:
            yield item.name, span_interval(item.seconds), text
    yield "in all", span_interval(choice.seconds), ""


def _bill(choice: Choice) -> Iterator[Line]:
    rented, price = choice.rented, choice.rented.price
    origin = [
        price.paid_as,
        price.region or "any region",
        price.as_of or "undated",
        price.source,
        price.moved,
    ]
    cost = price.dollars_per_hour
    each = dollars_interval(cost) if cost.half_width else format_dollars(cost.value)
    yield "price", f"{each}/h", ", ".join(filter(None, origin))
    if rented.nodes > 1:
        yield (
            "of all nodes",
            f"{format_dollars(rented.dollars_per_hour)}/h",
            f"{rented.nodes} of them",
        )
    for item in choice.items:
        stalls = [f"{stall.name} {dollars_interval(stall.dollars)}" for stall in choice.stalls]
        text = "; ".join(filter(None, (item.text, *(stalls if item.name == "training" else ()))))
        yield item.name, dollars_interval(item.dollars), text
    yield "in all", dollars_interval(choice.dollars), ""


def _chance_lines(choice: Choice, goal: Goal) -> Iterator[Line]:
    kept = "kept with unknown probability, as it may be interrupted"
    if goal.deadline_seconds is not None:
        text = kept if choice.on_time is None else f"kept with {format_chance(choice.on_time)}"
        yield (
            "deadline",
            format_span(goal.deadline_seconds),
            f"{text}; needed: {goal.surely_in_time:.0%}",
        )
    if goal.budget_dollars is not None:
        text = (
            f"{kept if choice.within_budget is None else f'kept with {format_chance(choice.within_budget)}'}; "
            f"needed: "
        )
        text += f"{goal.surely_in_budget:.0%}"
        yield "budget", format_dollars(goal.budget_dollars), text


def used_fact(fact: PlanFact) -> Used:
    """A plan's fact as a forecast's."""
    quantity = Quantity.model_validate(fact.model_dump())
    return Used(about=fact.about, unit=fact.unit, quantity=quantity)
