"""A plan made ready to be shown: the verdict, the choices that say most, where the dollars go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stash.core.formatting import (
    chance,
    dollars,
    dollars_interval,
    listed,
    money_decimals,
    span,
    span_interval,
    span_scale,
)
from stash.core.units import Scale, counted, round_to_sum
from stash.plan.records import Choice, ChoiceStanding, Goal, RentalPlan, RuleChoice, Unranked

# Money -----------------------------------------------------------------------------------------------------
# A bill taken apart for showing: every stall's dollars and what else is paid, rounded so that they add up.

OTHER = "plain"
"""The series of what is no stall."""
_SMALL = 0.005
"""Of a bill."""


@dataclass(frozen=True)
class MoneyPart:
    """One part of a bill."""

    name: str
    series: str
    """Its stall, or that of all others."""
    dollars: str
    share: str
    fraction: float
    """Of the bill; below zero what was measured so."""


def money_parts(choice: Choice) -> tuple[MoneyPart, ...]:
    """Stalls in the ladder's order, then what is paid beside training; together the bill.

    What is less than half a per cent is taken together as the rest, where there is more than one such part. Of what
    costs nothing, like capacity that is paid for already, there are no parts.
    """
    whole = choice.dollars.value
    if whole <= 0:
        return ()
    found = [(stall.name, stall.name, stall.dollars.value) for stall in choice.stalls]
    found += [(item.name, OTHER, item.dollars.value) for item in choice.items if item.name != "training"]
    small = [part for part in found if abs(part[2]) < _SMALL * whole]
    if len(small) > 1:
        found = [part for part in found if part not in small]
        found.append(("the rest", OTHER, sum(value for _, _, value in small)))
    decimals = money_decimals(whole)
    rounded = round_to_sum([value for _, _, value in found], decimals)
    return tuple(
        MoneyPart(name, series, dollars(shown, decimals), _share(value / whole), value / whole)
        for (name, series, value), shown in zip(found, rounded, strict=True)
    )


def _share(fraction: float) -> str:
    return "<1%" if 0 < fraction < _SMALL else f"{fraction:.0%}"


def stall_dollars(choice: Choice) -> float:
    """Of the bill: what is neither compute nor paid beside training."""
    return sum(stall.dollars.value for stall in choice.stalls if stall.name != "compute")


def largest_stall(choice: Choice) -> tuple[str, float]:
    """Its name and its share of the bill, or of the step where nothing is paid; no name if none is above zero."""
    stalls = [stall for stall in choice.stalls if stall.name != "compute" and stall.seconds.value > 0]
    if not stalls:
        return "", 0.0
    most = max(stalls, key=lambda stall: stall.seconds.value)
    whole = choice.dollars.value
    return most.name, most.dollars.value / whole if whole > 0 else most.share


# View ------------------------------------------------------------------------------------------------------
# A plan made ready to be shown: the verdict, the choices that say most, where the chosen one's dollars go.
#
# Every string that a renderer needs, times in one unit. Knows nothing of terminals or colours.

WORDS: dict[ChoiceStanding, str] = {
    "chosen": "rent",
    "tied": "tie",
    "front": "front",
    "lost": "lost",
    "infeasible": "fails",
}
_MAX = {"tied": 2, "front": 2, "lost": 3, "infeasible": 2}
"""Lines of each standing that fit one screen."""
_MAX_INFEASIBLE = 6
"""Where nothing else is to be shown."""
_MAX_UNRANKED, _MAX_ASSUMED = 2, 2
_DAY = 10
"""Letters of a date."""


@dataclass(frozen=True)
class ChoiceLine:
    """One choice in the table."""

    word: str
    """What became of it."""
    name: str
    time: str
    cost: str
    on_time: str
    in_budget: str
    stall: str
    """The stall that costs most, and its share of the bill."""
    why: str


@dataclass(frozen=True)
class RuleLine:
    """What another rule would have rented."""

    rule: str
    rents: str
    dollars: str
    time: str
    remark: str


@dataclass(frozen=True)
class PlanView:
    """Everything that a plan says, in the order in which it says it."""

    title: str
    question: str
    verdict: str
    relaxations: tuple[tuple[str, str], ...]
    """Options as they would have to be, and what is feasible then."""
    bill: str
    """What the parts are of."""
    parts: tuple[MoneyPart, ...]
    lines: tuple[ChoiceLine, ...]
    more: str
    """What of the choices is not shown."""
    rules: tuple[RuleLine, ...]
    facts: tuple[tuple[str, str], ...]
    """Label and text."""
    warnings: tuple[str, ...]
    footer: str


def view(plan: RentalPlan, pareto: bool = False) -> PlanView:
    """The view of a plan; with ``pareto`` the whole front and nothing else of the choices."""
    shown = list(_front_only(plan)) if pareto else telling(plan)
    scale = table_scale(plan.choices)
    best = plan.chosen
    return PlanView(
        title=plan.workload,
        question=question(plan.goal),
        verdict=verdict(plan),
        relaxations=tuple((f"--{wish.option} {wish.to}", wish.text) for wish in plan.relaxations),
        bill="" if best is None else f"Where the {dollars(best.dollars.value)} go",
        parts=() if best is None else money_parts(best),
        lines=tuple(
            choice_line(item, plan.goal, scale, said=not pareto or item.standing != "front") for item in shown
        ),
        more=_more(plan, len(plan.choices) - len(shown), pareto),
        rules=tuple(rule_line(rule, plan) for rule in plan.rules),
        facts=tuple(_facts(plan)),
        warnings=plan.warnings,
        footer=_footer(plan, shown),
    )


def table_scale(choices: Sequence[Choice]) -> Scale:
    """The unit in which times of several choices stand below each other: the first one's, with one decimal."""
    return span_scale(choices[0].seconds.value if choices else 0.0)._replace(decimals=1)


def question(goal: Goal) -> str:
    """``"90 epochs of 1,281,167 samples, within 24 h and $300"``."""
    within = [span(goal.deadline_seconds)] if goal.deadline_seconds is not None else []
    within += [_budget(goal.budget_dollars)] if goal.budget_dollars is not None else []
    return goal.work.text + (f", within {listed(within)}" if within else "")


def _budget(wanted: float) -> str:
    """Whole dollars without cents, as they were typed."""
    return dollars(wanted, 0 if wanted == round(wanted) else None)


def label(choice: Choice) -> str:
    """``"2 × p3.8xlarge"``, and how it is paid for if not on demand."""
    paid = choice.rented.price.paid_as
    return choice.name if paid == "on-demand" else f"{choice.name}, {paid}"


def where(choice: Choice) -> str:
    """``"aws us-east-1, on-demand at $12.24/h"``."""
    return f"{place(choice)}, {choice.rented.price.paid_as} at {dollars(choice.rented.dollars_per_hour)}/h"


def place(choice: Choice) -> str:
    """``"aws us-east-1"``."""
    return " ".join(part for part in (choice.rented.cloud, choice.rented.price.region) if part)


def settings(choice: Choice) -> str:
    """What of the job's settings changes: ``"batch 32, accumulate 2"``; empty if nothing does."""
    given = choice.setting.model_dump(exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in given.items())


def choice_line(choice: Choice, goal: Goal, scale: Scale, said: bool = True) -> ChoiceLine:
    """One line of the table, its time in the unit of ``scale``; its reason too, if that is to be ``said``."""
    name, share = largest_stall(choice)
    return ChoiceLine(
        word=WORDS[choice.standing],
        name=label(choice),
        time=span_interval(choice.seconds, scale),
        cost=dollars_interval(choice.dollars),
        on_time=chance(choice.on_time, goal.deadline_seconds),
        in_budget=chance(choice.within_budget, goal.budget_dollars),
        stall=f"{name} {share:.0%}" if name else "",
        why=_why(choice) if said else "",
    )


def _why(choice: Choice) -> str:
    """The reason, and settings that change; of what nobody would rent only the reason."""
    changed = settings(choice) if choice.standing in ("chosen", "tied", "front") else ""
    return f"{choice.why} (with {changed})" if changed else choice.why


def verdict(plan: RentalPlan) -> str:
    """What to rent, and what it will be; or that nothing can be, in one or two sentences."""
    best = plan.chosen
    if best is None:
        return _nothing(plan)
    text = (
        f"Rent {best.name} ({where(best)}): done in {span_interval(best.seconds)} for "
        f"{dollars_interval(best.dollars)}{_chances(best, plan.goal)}."
    )
    lost = stall_dollars(best)
    name, share = largest_stall(best)
    if lost > 0 and name:
        whole = best.dollars.value
        digits = money_decimals(whole)
        text += (
            f" {dollars(lost, digits)} of it ({lost / whole:.0%}) are stalls, the largest {name} "
            f"({dollars(share * whole, digits)})."
        )
    if plan.tied:
        names = listed([label(item) for item in plan.tied], most=3)
        text += f" {names} {'is' if len(plan.tied) == 1 else 'are'} as good within the intervals."
    return text


def _chances(choice: Choice, goal: Goal) -> str:
    if choice.rented.price.paid_as == "spot" and (goal.deadline_seconds or goal.budget_dollars):
        counts = "`stash spot plan --interruptions` counts it"
        return f" if it is not interrupted; how probable that is, is unknown ({counts})"
    told = []
    if choice.on_time is not None:
        told.append(f"on time with {chance(choice.on_time)}")
    if choice.within_budget is not None:
        told.append(f"within the budget with {chance(choice.within_budget)}")
    return f", {listed(told)}" if told else ""


def _nothing(plan: RentalPlan) -> str:
    if not plan.choices:
        return "Nothing can be recommended: of no offer are both its price and the step on it known."
    goal = plan.goal
    asked = [f"a deadline of {span(goal.deadline_seconds)}"] if goal.deadline_seconds is not None else []
    asked += [f"a budget of {_budget(goal.budget_dollars)}"] if goal.budget_dollars is not None else []
    kept = f"keeps {listed(asked)} with a probability of {goal.confidence:.0%}" if asked else "is allowed"
    return f"Nothing that may be rented {kept}."


def _front_only(plan: RentalPlan) -> Iterator[Choice]:
    return (item for item in plan.choices if item.standing in ("chosen", "tied", "front"))


def telling(plan: RentalPlan) -> list[Choice]:
    """The chosen one and as many of each other standing as fit, in the plan's order.

    Of the front those that stand evenly along it, the dearest among them, since neighbours are much alike.
    """
    shown: list[Choice] = []
    for standing in WORDS:
        found = [item for item in plan.choices if item.standing == standing]
        most = _MAX.get(standing, 1) if plan.chosen is not None else _MAX_INFEASIBLE
        if standing == "front" and len(found) > most:
            found = [found[round((number + 1) * len(found) / most) - 1] for number in range(most)]
        shown += found[:most]
    return sorted(shown, key=plan.choices.index)


def _more(plan: RentalPlan, hidden: int, pareto: bool) -> str:
    if hidden <= 0:
        return ""
    beside = "beside the front" if pareto else "more"
    return f"{counted(hidden, 'choice')} {beside}: `--json`, or `-o plan.html`, has all; `--explain` derives one"


def rule_line(rule: RuleChoice, plan: RentalPlan) -> RuleLine:
    """What one rule would have rented, beside the plan."""
    if rule.choice is None:
        return RuleLine(rule.rule, "nothing", "", "", rule.why)
    if plan.chosen is not None and rule.choice.rented == plan.chosen.rented and not rule.dollars_more:
        return RuleLine(rule.rule, label(rule.choice), "", "", "the same")
    remark = "" if rule.feasible is not False else _broken(rule.choice, plan.goal)
    return RuleLine(
        rule=rule.rule,
        rents=label(rule.choice),
        dollars="" if rule.dollars_more is None else _more_or_less(dollars(rule.dollars_more)),
        time="" if rule.seconds_more is None else _more_or_less(span(rule.seconds_more)),
        remark=remark,
    )


def _more_or_less(text: str) -> str:
    return text.replace("-", "−") if text.startswith(("-", "−")) else f"+{text}"


def _broken(choice: Choice, goal: Goal) -> str:
    """What an infeasible choice does not keep."""
    late = choice.on_time is not None and choice.on_time < goal.confidence
    dear = choice.within_budget is not None and choice.within_budget < goal.confidence
    return listed([*(["late"] if late else []), *(["too dear"] if dear else [])]) or "not allowed"


def _facts(plan: RentalPlan) -> Iterator[tuple[str, str]]:
    if plan.experiment is not None:
        yield "decide", f"{plan.experiment.text}: `{' '.join(plan.experiment.command)}` there"
    if plan.assumptions:
        yield "assumed", _few(plan.assumptions)
    if plan.unranked:
        yield "unranked", unranked(plan.unranked)


def _few(sentences: Sequence[str]) -> str:
    more = len(sentences) - _MAX_ASSUMED
    if more <= 1:
        return "; ".join(sentences)
    return f"{'; '.join(sentences[:_MAX_ASSUMED])}; and {more} more assumptions, in `-o plan.html`"


def unranked(left_out: Sequence[Unranked], most: int = _MAX_UNRANKED) -> str:
    """What was left out, by why: the reasons that concern most offers first."""
    by_why: dict[str, list[Unranked]] = {}
    for item in left_out:
        by_why.setdefault(item.why, []).append(item)
    ordered = sorted(by_why.items(), key=lambda pair: -sum(item.count for item in pair[1]))
    told = [
        f"{listed([item.instance for item in items], most=4)} "
        f"({counted(sum(item.count for item in items), 'offer')}): {why}"
        for why, items in ordered[:most]
    ]
    if len(ordered) > most:
        told.append(f"{counted(sum(item.count for _, items in ordered[most:] for item in items), 'offer')} more")
    return "; ".join(told)


def _footer(plan: RentalPlan, shown: Sequence[Choice]) -> str:
    dates = sorted({item.rented.price.as_of for item in plan.choices if item.rented.price.as_of})
    priced = f"prices of {dates[0][:_DAY]}" if dates else "undated prices"
    if len(dates) > 1:
        priced += f" to {dates[-1][:_DAY]}"
    bound = f", {plan.pruned:,} of them ruled out by a bound" if plan.pruned else ""
    blind = any(None in (item.seconds.half_width, item.dollars.half_width) for item in shown)
    spread = ", ± ? where that of a fact is not known" if blind else ""
    return (
        f"{plan.weighed:,} combinations of offer, nodes and settings weighed{bound}; {priced}; 95% intervals from "
        f"{plan.draws:,} draws{spread}"
    )
