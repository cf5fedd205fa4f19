"""How one choice's time and bill were found, line by line, each fact with its origin, source and date."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from stash.core.errors import UserError
from stash.core.formatting import (
    Unit,
    chance,
    dollars,
    dollars_interval,
    plain,
    plus_minus,
    span,
    span_interval,
    spread,
)
from stash.core.units import SECONDS, Scale, nearest, scale_for
from stash.plan.records import Choice, Goal, PlanFact, RentalPlan, StallShare, Unranked
from stash.plan.view import WORDS, label, settings
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer

# Explain ---------------------------------------------------------------------------------------------------
# How one choice's time and bill were found, line by line, every fact with its origin, its source and its date.
#
# Takes a plan apart that is there; computes nothing but the quotients that it shows.

_UNITS: dict[str, Unit] = {"bytes/s": "bytes/s", "seconds": "seconds", "bytes": "bytes", "fraction": "fraction"}
_NODES = re.compile(r"^\d+\s*[x×]\s*", re.IGNORECASE)
_ADDED = 0.001
"""More samples than asked for, as a fraction, from which on they are not the last step's rounding."""


@dataclass(frozen=True)
class DerivationLine:
    """One line: what, how much, and where it comes from."""

    label: str
    value: str
    text: str = ""
    facts: tuple[str, ...] = ()
    """What it rests on, a sentence each."""


@dataclass(frozen=True)
class Derivation:
    """The way to one choice, in parts with a title; or why there is none."""

    title: str
    verdict: str
    parts: tuple[tuple[str, tuple[DerivationLine, ...]], ...] = ()
    warnings: tuple[str, ...] = ()


def explained(plan: RentalPlan, name: str) -> Derivation:
    """The derivation of the plan's first choice of that instance type, as ``TYPE``, ``CLOUD/TYPE`` or ``2xTYPE``.

    Of a type that could not be ranked, why. Raises UserError if the plan knows nothing of it.
    """
    wanted = name.strip().lower()
    found = next((item for item in plan.choices if wanted in _names(item)), None)
    found = found or next((item for item in plan.choices if type_of(wanted) in _names(item)), None)
    if found is not None:
        return derivation(found, plan.goal)
    left_out = next((item for item in plan.unranked if type_of(wanted) in _type_names(item)), None)
    if left_out is not None:
        return Derivation(left_out.instance, f"It is not ranked: {left_out.why}.")
    known = {item.rented.instance for item in plan.choices} | {item.instance for item in plan.unranked}
    alike = nearest(name, known)
    hint = f"did you mean {', '.join(alike)}?" if alike else "`stash recommend … --json` lists what was weighed"
    raise UserError(f"--explain {name}: nothing of that type is allowed and weighed; {hint}")


def type_of(name: str) -> str:
    """``"p3.8xlarge"`` of ``"2xp3.8xlarge"``."""
    return _NODES.sub("", name.strip())


def _names(choice: Choice) -> set[str]:
    rented = choice.rented
    kinds = {rented.instance.lower(), f"{rented.cloud}/{rented.instance}".lower()}
    return kinds | {f"{rented.nodes}{sign}{kind}" for kind in kinds for sign in ("x", "×", " × ", " x ")}


def _type_names(item: Unranked) -> set[str]:
    return {item.instance.lower(), f"{item.cloud}/{item.instance}".lower()}


def derivation(choice: Choice, goal: Goal) -> Derivation:
    """Every line of it."""
    return Derivation(
        title=label(choice),
        verdict=f"{WORDS[choice.standing].capitalize()}: {choice.why}.",
        parts=(
            ("How much is trained", tuple(_work(choice, goal))),
            ("One step, stall by stall", tuple(_step(choice))),
            ("From start to end", tuple(_time(choice))),
            ("The bill", tuple(_bill(choice))),
            *((("Against what was asked", kept),) if (kept := tuple(_kept(choice, goal))) else ()),
        ),
        warnings=choice.beyond,
    )


def _work(choice: Choice, goal: Goal) -> Iterator[DerivationLine]:
    rented, samples = choice.rented, goal.work.samples
    yield DerivationLine("work", f"{samples:,.0f} samples", goal.work.text)
    ranks = rented.nodes * rented.devices
    each = choice.samples_per_step / ranks
    device = rented.device or "rank on CPUs"
    asked = "so many on each device" if goal.scaling == "per device" else "the profiled global batch, shared"
    yield DerivationLine(
        "a step",
        f"{choice.samples_per_step:,.0f} samples",
        f"{rented.nodes} × {rented.devices} × {device}, {each:,.4g} samples each ({asked})",
    )
    if settings(choice):
        yield DerivationLine("settings", settings(choice), "instead of what was profiled")
    done = choice.steps * choice.samples_per_step
    text = f"{samples:,.0f} / {choice.samples_per_step:,.0f}, rounded up"
    if done > samples * (1 + _ADDED) and goal.efficiency:
        text = f"{done / samples - 1:.1%} more samples for the larger global batch (--efficiency {goal.efficiency:g})"
    yield DerivationLine("steps", f"{choice.steps:,.0f}", text)


def _step(choice: Choice) -> Iterator[DerivationLine]:
    scale = scale_for(choice.step.value, SECONDS, 4)
    for stall in choice.stalls:
        yield DerivationLine(
            stall.name,
            f"{scale.number(stall.seconds.value)} {plus_minus(stall.seconds, scale)} {scale.unit}",
            f"{stall.share:.0%} of the step, {stall.origin}",
            tuple(fact_text(fact) for fact in stall.facts),
        )
    total = f"{scale.number(choice.step.value)} {plus_minus(choice.step, scale)} {scale.unit}"
    yield DerivationLine("step", total, f"together; {choice.samples_per_second:,.0f} samples/s")


def _time(choice: Choice) -> Iterator[DerivationLine]:
    scale = scale_for(choice.step.value, SECONDS, 4)
    for item in choice.items:
        text = item.text
        if item.name == "training":
            text = f"{choice.steps:,.0f} steps × {scale.text(choice.step.value)}"
        if item.seconds.value:
            yield DerivationLine(item.name, span_interval(item.seconds), text)
    yield DerivationLine("in all", span_interval(choice.seconds))


def _bill(choice: Choice) -> Iterator[DerivationLine]:
    rented, price = choice.rented, choice.rented.price
    told = [price.paid_as, price.region or "any region", price.as_of or "undated", price.source, price.moved]
    cost = price.dollars_per_hour
    each = f"{dollars(cost.value)} {spread(cost, Scale('$', 1.0, 2))}" if cost.half_width else dollars(cost.value)
    yield DerivationLine("price", f"{each}/h", ", ".join(filter(None, told)))
    if rented.nodes > 1:
        yield DerivationLine("of all nodes", f"{dollars(rented.dollars_per_hour)}/h", f"{rented.nodes} of them")
    for item in choice.items:
        facts = tuple(map(_stall_cost, choice.stalls)) if item.name == "training" else ()
        yield DerivationLine(item.name, dollars_interval(item.dollars), item.text, facts)
    yield DerivationLine("in all", dollars_interval(choice.dollars))


def _stall_cost(stall: StallShare) -> str:
    return f"{stall.name} {dollars_interval(stall.dollars)}"


def _kept(choice: Choice, goal: Goal) -> Iterator[DerivationLine]:
    needed = f"needed: {goal.confidence:.0%}"
    kept = "kept with unknown probability, as it may be interrupted"
    if goal.deadline_seconds is not None:
        text = kept if choice.on_time is None else f"kept with {chance(choice.on_time)}"
        yield DerivationLine("deadline", span(goal.deadline_seconds), f"{text}; {needed}")
    if goal.budget_dollars is not None:
        text = f"{kept if choice.within_budget is None else f'kept with {chance(choice.within_budget)}'}; {needed}"
        yield DerivationLine("budget", dollars(goal.budget_dollars), text)


def fact_text(fact: PlanFact) -> str:
    """``"bandwidth between nodes 1.25 GB/s (data sheet: karpenter-aws, 2026-11-20)"``."""
    value = _number(fact.value, fact.unit)
    if fact.low is not None and fact.high is not None and fact.low != fact.high:
        value += f" ({_number(fact.low, fact.unit)} to {_number(fact.high, fact.unit)})"
    dated = f", {fact.as_of}" if fact.as_of and fact.as_of not in fact.source else ""
    return f"{fact.about} {value} ({fact.origin}: {fact.source}{dated})"


def _number(value: float, unit: str) -> str:
    if unit in _UNITS:
        return plain(value, _UNITS[unit])
    return f"{dollars(value)}/h" if unit == "dollars/h" else f"{value:,.4g}" + (" samples/s" * (unit == "samples/s"))


# Explain terminal ------------------------------------------------------------------------------------------
# A derivation as text for a terminal: a label, a value and where it comes from to a line, facts below it.

_GAP = "  "
_FACT = "- "


def _report(view: Derivation, width: int, colour: bool) -> list[RenderableType]:
    lines = [line for _, part in view.parts for line in part]
    columns = max((len(line.label) for line in lines), default=0), max((len(line.value) for line in lines), default=0)
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold"), Text()]
    parts += paragraph(view.verdict, width, "", "", bold=True)
    for title, its in view.parts:
        parts += [Text(), Text(" " * INDENT).append(title, style="bold")]
        for line in its:
            parts += _line(line, columns, width)
    if view.warnings:
        parts.append(Text())
    for sentence in view.warnings:
        parts += paragraph(sentence, width, "! ", "color(220)")
    return parts


render: Renderer[Derivation] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole derivation."""


def _line(line: DerivationLine, columns: tuple[int, int], width: int) -> list[Text]:
    labels, values = columns
    left = INDENT + labels + len(_GAP) + values + len(_GAP)
    words = textwrap.wrap(line.text, max(20, width - left), break_on_hyphens=False) or [""]
    first = Text(" " * INDENT).append(line.label.ljust(labels), style="dim").append(_GAP)
    first.append(line.value.rjust(values), style="bold").append(_GAP + words[0], style="dim")
    lines = [first, *(Text(" " * left + more, style="dim") for more in words[1:])]
    under = INDENT + labels + len(_GAP)
    for fact in line.facts:
        wrapped = textwrap.wrap(fact, width - under - len(_FACT), break_on_hyphens=False)
        for number, words_of_it in enumerate(wrapped):
            lead = _FACT if number == 0 else " " * len(_FACT)
            lines.append(Text(" " * under + lead + words_of_it, style="dim"))
    return lines
