"""A plan as a page and as JSON: what to rent, where its dollars go, why others lost, how all of it was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from stash.catalog.facts import price_age
from stash.core.formatting import (
    dollars_interval,
    format_chance,
    format_dollars,
    format_span,
    join_names,
    money_decimals,
    span_interval,
)
from stash.core.intervals import Interval
from stash.core.units import format_count, round_to_sum
from stash.plan.explained import derivation, settings_text, used_fact
from stash.plan.hourly_prices import RECENT_DAYS, is_contract_price, is_recent
from stash.plan.plan_charts import (
    EVIDENCE,
    FRONT,
    WORDS,
    choices_table,
    cost_against_time,
    evidence,
    label,
    largest_stall,
    place,
    superlative,
)
from stash.plan.records import Choice, Goal, RentalPlan, Unranked
from stash.predict.draws import why_no_interval
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page, Row

_MAX = {"tied": 2, "front": 2, "lost": 3, "infeasible": 2}
"""Lines of each standing that fit one screen."""
_MAX_INFEASIBLE = 6
"""Where nothing else is to be shown."""
_MAX_REASONS, _MAX_UNRANKED, _MAX_ASSUMED = 2, 30, 2
_DAY = 10
"""Letters of a date."""
_HEAVY = 0.05
"""Of the median: a mean farther from it than this is shown with it."""
_WORTH = 0.05
"""Of the bill, or of the time: what an experiment has to save to stand before the answer."""
_SMALL = 0.005
"""Of a bill."""
_OTHER = "plain"
"""The series of what is no stall."""


def page(plan: RentalPlan, pareto: bool = False) -> Page:
    """The whole report; with ``pareto`` its short table is the whole front and nothing else of the choices."""
    best = plan.chosen_choice
    shown = (
        [item for item in plan.choices if item.standing in FRONT] if pareto else shown_choices(plan)
    )
    return Page(
        title=f"What to rent for {plan.workload}",
        source=f"A plan of {plan.created[:_DAY]}, from {', '.join(plan.profiles)}",
        subtitle=(f"{question(plan.goal)}{_price_age(plan)}",),
        verdict=(*_first_experiment(plan), verdict(plan), *_cheaper(plan)),
        bar=() if best is None else money_parts(best),
        bar_title="" if best is None else f"Where the {format_dollars(best.dollars.value)} go",
        numbers=() if best is None else tuple(_numbers(best, plan.goal)),
        grids=_choices(plan, shown, pareto),
        warnings=plan.warnings,
        next_steps=_next(plan),
        chapters=tuple(_chapters(plan)),
        footer=_footer(plan, shown),
    )


def _numbers(best: Choice, goal: Goal) -> Iterator[tuple[str, str]]:
    yield "rent", label(best)
    known = f" [{evidence(best)}]"
    yield (
        "time",
        f"{span_interval(best.seconds)}{_median(best.seconds, best.median_seconds, format_span)}{known}",
    )
    yield (
        "cost",
        f"{dollars_interval(best.dollars)}{_median(best.dollars, best.median_dollars, format_dollars)}{known}",
    )
    if goal.deadline_seconds is not None:
        yield "on time", format_chance(best.on_time, goal.deadline_seconds)
    if goal.budget_dollars is not None:
        yield "in budget", format_chance(best.within_budget, goal.budget_dollars)
    if best.best is not None:
        yield superlative(goal), format_chance(best.best)
    yield "price", f"{format_dollars(best.rented.dollars_per_hour)}/h"
    yield "where", place(best)


def _first_experiment(plan: RentalPlan) -> tuple[str, ...]:
    """What pays before anything is rented, where that is no trifle."""
    if plan.experiment is None or not _pays_first(plan):
        return ()
    text = plan.experiment.text
    return (f"First {text}: `{' '.join(plan.experiment.command)}`.",)


def _pays_first(plan: RentalPlan) -> bool:
    best, found = plan.chosen_choice, plan.experiment
    if best is None or found is None:
        return False
    return (
        found.worth > _WORTH * (best.dollars if plan.goal.aim == "dollars" else best.seconds).value
    )


def _youngest(plan: RentalPlan) -> int | None:
    """Days that the youngest of its prices may be old; ``None`` where all are undated or agreed."""
    now = date.fromisoformat(plan.created[:_DAY])
    listed_prices = (
        item.rented.price for item in plan.choices if not is_contract_price(item.rented.price)
    )
    ages = [
        found.most for price in listed_prices if (found := price_age(price.as_of, now)) is not None
    ]
    return min(ages, default=None)


def _price_age(plan: RentalPlan) -> str:
    """How old its prices are, where that is more than ``RECENT_DAYS``."""
    if all(is_contract_price(item.rented.price) for item in plan.choices):
        return ""
    youngest = _youngest(plan)
    if youngest is None:
        return "; its prices are undated"
    return f"; its youngest price may be {youngest:,} days old" if youngest > RECENT_DAYS else ""


def _cheaper(plan: RentalPlan) -> tuple[str, ...]:
    """Types that were left out though a GPU of theirs costs less for an hour than one of the answer's."""
    best = plan.chosen_choice
    if best is None or best.rented.device is None:
        return ()
    most = best.rented.price.dollars_per_hour.value / best.rented.devices
    ranked = {(item.rented.cloud, item.rented.instance) for item in plan.choices}
    known = [
        (item.dollars_per_gpu_hour, item)
        for item in plan.unranked
        if item.dollars_per_gpu_hour is not None
    ]
    less = sorted(
        (
            each
            for each in known
            if each[0] < most and (each[1].cloud, each[1].instance) not in ranked
        ),
        key=lambda each: each[0],
    )
    if not less:
        return ()
    names = [f"{item.instance} ({format_dollars(price)})" for price, item in less]
    return (
        f"Cheaper for a GPU and hour, but not ranked: {join_names(names, most=3)}: {less[0][1].why}.",
    )


def _next(plan: RentalPlan) -> tuple[str, ...]:
    steps = [f"`{wish.command_words}`: {wish.text}" for wish in plan.relaxations]
    if aged := _price_age(plan):
        steps.insert(0, f"`stash catalog refresh`{aged.replace(';', ':', 1)}")
    if plan.experiment is not None and not _pays_first(plan):
        steps.append(f"{plan.experiment.text}: `{' '.join(plan.experiment.command)}`")
    steps += plan.exchanges
    if plan.tied_choices and plan.experiment is None:
        steps.append(
            "rent any of those that are tied: no measurement beforehand saves what it costs"
        )
    return tuple(steps)


def _median(interval: Interval, median: float | None, text: Callable[[float], str]) -> str:
    """The median next to a mean that a heavy tail draws away from it; empty where the two are alike."""
    if median is None or abs(interval.value - median) <= _HEAVY * median:
        return ""
    return f" (median {text(median)})"


def money_parts(choice: Choice) -> tuple[Row, ...]:
    """Stalls in the ladder's order, then what is paid besides training; together the bill.

    What is less than half a per cent is taken together as the rest, where there is more than one such part. Of what
    costs nothing, like capacity that is paid for already, there are no parts.
    """
    whole = choice.dollars.value
    if whole <= 0:
        return ()
    found = [(stall.name, stall.name, stall.dollars.value) for stall in choice.stalls]
    found += [
        (item.name, _OTHER, item.dollars.value) for item in choice.items if item.name != "training"
    ]
    small = [part for part in found if abs(part[2]) < _SMALL * whole]
    if len(small) > 1:
        found = [part for part in found if part not in small]
        found.append(("the rest", _OTHER, sum(value for _, _, value in small)))
    decimals = money_decimals(whole)
    rounded = round_to_sum([value for _, _, value in found], decimals)
    return tuple(
        Row(
            name,
            format_dollars(shown, decimals),
            share=_share(value / whole),
            fraction=value / whole,
            series=series,
        )
        for (name, series, value), shown in zip(found, rounded, strict=True)
    )


def _share(fraction: float) -> str:
    return "<1%" if 0 < fraction < _SMALL else f"{fraction:.0%}"


def _choices(plan: RentalPlan, shown: Sequence[Choice], pareto: bool) -> tuple[Grid, ...]:
    """A line for each of the choices ``shown``: what became of it, its chances, and why."""
    if not shown:
        return ()
    hidden, rest = len(plan.choices) - len(shown), "off the front" if pareto else "more"
    below = f"{format_count(hidden, 'choice')} {rest}: `--json`, or `-o plan.html`, has all; `--explain-type` one"
    letters = [letter for letter in EVIDENCE if any(letter in evidence(item) for item in shown)]
    legend = ", ".join(f"{letter} {EVIDENCE[letter]}" for letter in letters)
    why = (lambda item: "" if item.standing == "front" else _why(item)) if pareto else _why
    return (
        replace(
            choices_table(plan, shown, True, why),
            below=f"by: {legend}" + (f"; {below}" if hidden > 0 else ""),
        ),
    )


def _chapters(plan: RentalPlan) -> Iterator[Chapter]:
    yield Chapter(
        "front", "Cost against time", label="Cost and time", charts=(cost_against_time(plan),)
    )
    if plan.chosen_choice is not None:
        title = f"How {label(plan.chosen_choice)} was worked out"
        grids = derivation(plan.chosen_choice, plan.goal)
        yield Chapter(
            "derivation", title, grids=grids, points=plan.chosen_choice.beyond, folded=True
        )
    if plan.assumptions:
        yield Chapter(
            "assumed",
            "What was taken for granted",
            label="Assumed",
            points=plan.assumptions,
            brief=True,
            most=_MAX_ASSUMED,
        )
    if plan.unranked:
        reasons = unranked_lines(plan.unranked)
        yield Chapter(
            "unranked",
            "Left out, because something is unknown",
            label="Left out",
            points=reasons,
            brief=True,
            most=_MAX_REASONS,
        )
        points = tuple(
            f"{item.instance} ({item.cloud}): {item.why}" for item in plan.unranked[:_MAX_UNRANKED]
        )
        more = len(plan.unranked) - _MAX_UNRANKED
        yield Chapter(
            "every-unranked",
            "Everything left out",
            folded=True,
            points=(*points, *([f"and {more} more types"] if more > 0 else [])),
        )


def unranked_lines(left_out: Sequence[Unranked]) -> tuple[str, ...]:
    """What was left out, by why: the reasons that concern most offers first."""
    by_why: dict[str, list[Unranked]] = {}
    for item in left_out:
        by_why.setdefault(item.why, []).append(item)
    ordered = sorted(by_why.items(), key=lambda pair: -sum(item.count for item in pair[1]))
    return tuple(
        f"{join_names([item.instance for item in items], most=4)} "
        f"({format_count(sum(item.count for item in items), 'offer')}): {why}"
        for why, items in ordered
    )


def shown_choices(plan: RentalPlan) -> list[Choice]:
    """The chosen one and as many of each other standing as fit, in the plan's order.

    Of the front those that stand evenly along it, the dearest among them, since neighbours are much alike.
    """
    shown: list[Choice] = []
    for standing in WORDS:
        found = [item for item in plan.choices if item.standing == standing]
        most = _MAX.get(standing, 1) if plan.chosen_choice is not None else _MAX_INFEASIBLE
        if standing == "front" and len(found) > most:
            found = [found[round((number + 1) * len(found) / most) - 1] for number in range(most)]
        shown += found[:most]
    return sorted(shown, key=plan.choices.index)


def question(goal: Goal) -> str:
    """``"90 epochs of 1,281,167 samples, within 24 h and $300"``."""
    within = [format_span(goal.deadline_seconds)] if goal.deadline_seconds is not None else []
    within += [_budget(goal.budget_dollars)] if goal.budget_dollars is not None else []
    return goal.work.text + (f", within {join_names(within)}" if within else "")


def _budget(wanted: float) -> str:
    """Whole dollars without cents, as they were typed."""
    return format_dollars(wanted, 0 if wanted == round(wanted) else None)


def _why(choice: Choice) -> str:
    """The reason, and settings that change; of a rejected choice only the reason. Why there is no interval."""
    changed = settings_text(choice) if choice.standing in ("chosen", "tied", "front") else ""
    text = f"{choice.why} (with {changed})" if changed else choice.why
    if choice.seconds.half_width is not None:
        return text
    unknown = why_no_interval(used_fact(fact) for stall in choice.stalls for fact in stall.facts)
    return text if unknown is None else f"{text}; {unknown}"


def verdict(plan: RentalPlan) -> str:
    """What to rent, and what it will be; or that nothing can be, in one or two sentences."""
    best = plan.chosen_choice
    if best is None:
        if not plan.choices:
            return "Nothing can be recommended: of no offer are both its price and the step on it known."
        goal = plan.goal
        deadline, budget, asked = goal.deadline_seconds, goal.budget_dollars, []
        if deadline is not None:
            asked.append(
                f"a deadline of {format_span(deadline)} with a probability of {goal.surely_in_time:.0%}"
            )
        if budget is not None:
            asked.append(
                f"a budget of {_budget(budget)} with a probability of {goal.surely_in_budget:.0%}"
            )
        kept = f"keeps {join_names(asked)}" if asked else "is allowed"
        return f"Nothing that may be rented {kept}."
    over = f", over {best.transport}" if best.transport else ""
    paid = f"{best.rented.price.paid_as} at {_hourly(best)}/h{_price_date(plan, best)}{over}"
    text = (
        f"Rent {best.name} ({place(best)}, {paid}): done in {span_interval(best.seconds)}"
        f"{_median(best.seconds, best.median_seconds, format_span)} for {dollars_interval(best.dollars)}"
        f"{_median(best.dollars, best.median_dollars, format_dollars)}{_chances(best, plan.goal)}."
    )
    lost = sum(stall.dollars.value for stall in best.stalls if stall.name != "compute")
    name, share = largest_stall(best)
    if lost > 0 and name:
        whole = best.dollars.value
        digits = money_decimals(whole)
        text += (
            f" {format_dollars(lost, digits)} of it ({lost / whole:.0%}) are stalls, the largest {name} "
            f"({format_dollars(share * whole, digits)})."
        )
    if plan.tied_choices:
        names = join_names([label(item) for item in plan.tied_choices], most=3)
        text += f" {names} {'is' if len(plan.tied_choices) == 1 else 'are'} as good within the intervals."
    return f"{text}{_risk_sentence(plan)}"


def _hourly(best: Choice) -> str:
    """Of all machines; both ends where anything between is as likely."""
    price, nodes = best.rented.price, best.rented.nodes
    ends = price.dollars_per_hour
    if price.paid_as == "spot" and ends.low is not None and ends.high is not None:
        return f"{format_dollars(nodes * ends.low)} to {format_dollars(nodes * ends.high)}"
    return format_dollars(best.rented.dollars_per_hour)


def _price_date(plan: RentalPlan, best: Choice) -> str:
    """The price's date, where it is not of these days."""
    price = best.rented.price
    if is_contract_price(price) or is_recent(price.as_of, date.fromisoformat(plan.created[:_DAY])):
        return ""
    return ", an undated price" if price.as_of is None else f", a price of {price.as_of}"


def _risk_sentence(plan: RentalPlan) -> str:
    """How probably the choice is the best, and what it costs where it is not."""
    found = plan.risk
    if found is None or found.among < 2 or found.regret.value <= 0:
        return ""
    more = (
        format_span(found.regret.value)
        if found.unit == "seconds"
        else format_dollars(found.regret.value)
    )
    most = found.regret.high or 0.0
    worst = format_span(most) if found.unit == "seconds" else format_dollars(most)
    return (
        f" Of {found.among} types it is the {superlative(plan.goal)} in {format_chance(found.best)} of draws; not "
        f"knowing "
        f"better costs {more} in the mean, and no more than {worst} in 97.5% of draws."
    )


def _chances(choice: Choice, goal: Goal) -> str:
    if choice.rented.price.paid_as == "spot" and (goal.deadline_seconds or goal.budget_dollars):
        return " if it is not interrupted; how probable that is, is unknown (`stash spot guard` saves what it can)"
    kept = []
    if choice.on_time is not None:
        kept.append(f"on time with {format_chance(choice.on_time)}")
    if choice.within_budget is not None:
        kept.append(f"within the budget with {format_chance(choice.within_budget)}")
    return f", {join_names(kept)}" if kept else ""


def _footer(plan: RentalPlan, shown: Sequence[Choice]) -> str:
    dates = sorted({item.rented.price.as_of for item in plan.choices if item.rented.price.as_of})
    priced = f"prices of {dates[0][:_DAY]}" if dates else "undated prices"
    if len(dates) > 1:
        priced += f" to {dates[-1][:_DAY]}"
    bound = f", {plan.pruned:,} of them ruled out by a bound" if plan.pruned else ""
    unmoved = any(item.rented.price.dollars_per_hour.low is None for item in shown)
    at = "; how some prices move is unknown: their bills are at the listed ones" if unmoved else ""
    return (
        f"{plan.weighed:,} combinations of offer, nodes and settings weighed{bound}; {priced}; 95% intervals from "
        f"{plan.draws:,} draws{at}"
    )


def document(plan: RentalPlan) -> dict[str, Any]:
    """What ``stash recommend --json`` prints: a contract, see docs/format.md.

    It is the plan's record, with what is derived from it added, so that it can be read back as a ``*.plan.json``.
    Seconds, bytes and dollars; what is not known is null.
    """
    written = plan.model_dump(mode="json")
    written["choices"] = [
        {"name": choice.name, "samples_per_second": choice.samples_per_second, **its}
        for choice, its in zip(plan.choices, written["choices"], strict=True)
    ]
    return {"chosen": None if plan.chosen_choice is None else plan.chosen_choice.name, **written}
