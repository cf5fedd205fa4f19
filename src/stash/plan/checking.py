"""A plan held against a later profile of one of its choices: what of it held, and what did not.

Stall by stall the measurement is as planned unless the whole 95 % interval of the difference lies on one side of
zero, where the forecast's interval and the measurement's own both count. What a stall was forecast from is looked at
again wherever the profile holds the same fact, so that a wrong fact is distinguished from a wrong model. Time and
cost of the whole follow from the measured step, with the plan's other items and at the plan's price. What was not
measured is counted as planned: a stall that the profile lacks, and fetch where the plan's step is one after the first
epoch, when memory holds the data, since a profile's cold blocks are of the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from stash.analysis.attribution import attribute
from stash.analysis.breakdown import SIGNIFICANT_SHARE, Breakdown
from stash.analysis.comparison import FASTER, SLOWER, STEP, measured
from stash.analysis.limits import CANNOT_TELL, FAILS, PASSES, Decision
from stash.catalog.layers import load as load_catalog
from stash.core.errors import UserError
from stash.core.formatting import dollars, dollars_interval, listed, quantity, span, span_interval
from stash.core.intervals import Interval, change
from stash.core.ladder import STALLS
from stash.core.records.base import Record
from stash.plan.matching import MatchedChoice, choice_of
from stash.plan.planned_facts import explain_difference, find_measured_facts, list_other_settings, name_unplanned
from stash.plan.records import Choice, Goal, PlanFact, RentalPlan, StallShare, load_plan
from stash.predict.forecasting import base_of
from stash.predict.passes import Base
from stash.store.storing import profile_of

AS_PLANNED = "as planned"


class CheckedLine(Record):
    """A stall or the step, in seconds per step, as it was planned and as it was measured."""

    name: str
    planned: Interval | None
    """``None`` if the plan has no such stall."""
    measured: Interval | None
    """``None`` if the profile has none."""
    origin: str | None
    """Of what was planned."""
    verdict: str
    """``as planned``, ``slower``, ``faster`` or ``cannot tell``."""
    why: str = ""
    """Why the verdict is ``cannot tell``."""

    @property
    def change(self) -> Interval | None:
        """Measured less planned."""
        if self.planned is None or self.measured is None:
            return None
        return change(self.planned, self.measured)

    @property
    def off(self) -> Interval | None:
        """How far the plan was certainly wrong; for a stall that it did not have, all of it."""
        if self.planned is None:
            return self.measured
        return self.change if self.verdict in (SLOWER, FASTER) else None


class PlanCheck(Record):
    """What became of a plan."""

    choice: Choice
    by: str
    """How the profile was found to be of it."""
    lines: tuple[CheckedLine, ...]
    """Stalls in the ladder's order, then the step."""
    seconds: Interval
    """Of the whole training at the measured step."""
    dollars: Interval
    spent_seconds: float
    """That measuring took."""
    decisions: tuple[Decision, ...]
    """On the step, the deadline and the budget."""
    assumptions: tuple[str, ...]
    """Those that failed, the most important first."""
    exact: tuple[str, ...] = ()
    """What is counted as planned though the plan knows no spread of it, so that times and bills hold none of it."""

    @property
    def step(self) -> CheckedLine:
        return self.lines[-1]

    @property
    def decidable(self) -> tuple[CheckedLine, ...]:
        """Lines for which it is known whether the plan's interval held."""
        return tuple(line for line in self.lines if line.verdict != CANNOT_TELL)

    @property
    def held(self) -> tuple[CheckedLine, ...]:
        return tuple(line for line in self.lines if line.verdict == AS_PLANNED)

    @property
    def spent_dollars(self) -> float:
        """What measuring cost at the plan's price."""
        return self.spent_seconds * self.choice.rented.dollars_per_hour / 3600


def checked(file: str, run: str, instance: str | None, store: str | None) -> tuple[RentalPlan, PlanCheck]:
    """A plan's file, and what became of it by a profile of what it rented; raises UserError."""
    plan = load_plan(file)
    profile, _ = profile_of(run, store)
    base = base_of(profile, attribute(profile, run), catalog=load_catalog)
    try:
        matched = choice_of(plan, profile, base.breakdown.samples_per_step, load_catalog(), instance)
    except UserError as error:
        raise UserError(f"{file} and {run}: {error}") from None
    return plan, check_plan(plan, matched, base)


def check_plan(plan: RentalPlan, matched: MatchedChoice, base: Base) -> PlanCheck:
    """What became of the ``matched`` choice, as the profile of ``base`` measured it."""
    choice, breakdown = matched.choice, base.breakdown
    stalls = tuple(_lines(choice, breakdown))
    step = _step(choice, breakdown, stalls)
    assert step.measured is not None, "every profile has a step"
    others = [item for item in choice.items if item.name != "training"]
    trains = step.measured.scaled(choice.steps)
    cost = trains.scaled(choice.rented.dollars_per_hour / 3600)
    whole = _sum([trains, *(_known(item.seconds) for item in others)])
    cost = _sum([cost, *(_known(item.dollars) for item in others)])
    failed = list(_failed(choice, stalls, find_measured_facts(base)))
    otherwise = list_other_settings(choice.setting, base)
    if otherwise:
        ran = listed(list(otherwise.values()))
        failed.insert(0, f"the job ran with {ran}, as the plan runs it there; profile it with the plan's settings")
    exact = [line.name for line in stalls if _unmeasured(choice, line) and line.planned and line.planned.low is None]
    exact += [item.name for item in others if item.seconds.low is None or item.dollars.low is None]
    return PlanCheck(
        choice=choice,
        by=matched.by,
        lines=(*stalls, step),
        seconds=whole,
        dollars=cost,
        spent_seconds=base.profile.elapsed_seconds,
        decisions=tuple(_decisions(plan.goal, step, whole, cost)),
        assumptions=tuple(failed),
        exact=tuple(exact),
    )


# Line by line


def _lines(choice: Choice, breakdown: Breakdown) -> Iterator[CheckedLine]:
    shares = {share.name: share for share in choice.stalls}
    for name in STALLS:
        share, stall = shares.get(name), breakdown.stall(name)
        if share is None and stall is None:
            continue
        planned = None if share is None else share.seconds
        seen = None if stall is None else measured(name, [breakdown])
        verdict, why = _verdict(planned, seen), ""
        if share is None:
            why = "not in the plan"
        elif seen is not None and _of_later_epochs(choice, name):
            verdict, why = CANNOT_TELL, "measured cold"
        elif seen is None:
            why = next((each.why for each in breakdown.skipped if each.name == name), "not measured")
        yield CheckedLine(
            name=name, planned=planned, measured=seen, origin=None if share is None else share.origin,
            verdict=verdict, why=why,
        )  # fmt: skip


def _of_later_epochs(choice: Choice, name: str) -> bool:
    """Whether what is planned of a stall is of epochs that find the data in memory, which no profile measures."""
    return name == "fetch" and any(item.name == "first epoch" for item in choice.items)


def _verdict(planned: Interval | None, seen: Interval | None) -> str:
    apart = None if planned is None or seen is None else change(planned, seen)
    if apart is None or apart.low is None or apart.high is None:
        return CANNOT_TELL
    return SLOWER if apart.low > 0 else FASTER if apart.high < 0 else AS_PLANNED


def _step(choice: Choice, breakdown: Breakdown, stalls: Sequence[CheckedLine]) -> CheckedLine:
    """The whole step; planned stalls that were not measured are counted as planned, and that is said."""
    inside = {each.name for each in breakdown.skipped if each.contained_in is not None or not each.possible}
    lacking = [line for line in stalls if _unmeasured(choice, line) and line.name not in inside]
    cold = sum(line.measured.value for line in lacking if line.measured is not None)
    as_planned = [_known(line.planned) for line in lacking if line.planned is not None]
    took = measured(STEP, [breakdown])
    low, high = (None if end is None else end - cold for end in (took.low, took.high))
    seen = _sum([Interval(value=took.value - cold, low=low, high=high), *as_planned])
    names = listed([line.name for line in lacking])
    return CheckedLine(
        name=STEP, planned=choice.step, measured=seen, origin=choice.origin, verdict=_verdict(choice.step, seen),
        why=f"counting {names} as planned" if names else "",
    )  # fmt: skip


def _unmeasured(choice: Choice, line: CheckedLine) -> bool:
    return line.measured is None or (line.planned is not None and _of_later_epochs(choice, line.name))


def _failed(choice: Choice, lines: Sequence[CheckedLine], seen: Mapping[str, PlanFact]) -> Iterator[str]:
    """What is wrong with the plan's stalls that differ by what is worth a sentence, the largest difference first."""
    shares: dict[str, StallShare] = {share.name: share for share in choice.stalls}
    apart = {line.name: line.off for line in lines}
    worth = {
        name: off
        for name, off in apart.items()
        if off is not None and abs(off.value) >= SIGNIFICANT_SHARE * choice.step.value
    }
    for name in sorted(worth, key=lambda each: -abs(worth[each].value)):
        share = shares.get(name)
        if share is None:
            yield name_unplanned(name, worth[name])
        else:
            yield explain_difference(share, worth[name], seen)


def _known(planned: Interval) -> Interval:
    """As planned, exactly so where the plan knows no spread: ``PlanCheck.exact`` says of what."""
    if planned.low is not None:
        return planned
    return planned.model_copy(update={"low": planned.value, "high": planned.value})


def _sum(parts: Sequence[Interval]) -> Interval:
    """Of independent parts, arms in quadrature; without ends if a part has none."""
    value = math.fsum(part.value for part in parts)
    below = [part.value - part.low for part in parts if part.low is not None]
    above = [part.high - part.value for part in parts if part.high is not None]
    if min(len(below), len(above)) < len(parts):
        return Interval(value=value)
    return Interval(value=value, low=value - math.hypot(*below), high=value + math.hypot(*above))


def _decisions(goal: Goal, step: CheckedLine, seconds: Interval, cost: Interval) -> Iterator[Decision]:
    assert step.planned is not None, "every choice has a step"
    assert step.measured is not None, "every profile has one"
    because = f" ({step.why})" if step.why else ""
    took, planned = quantity(step.measured, "seconds"), quantity(step.planned, "seconds")
    yield Decision(
        limit=STEP,
        verdict={AS_PLANNED: PASSES, FASTER: PASSES, SLOWER: FAILS}.get(step.verdict, CANNOT_TELL),
        sentence=f"the step is {took}{because}; planned was {planned}",
    )
    if goal.deadline_seconds is not None:
        yield Decision(
            limit="deadline",
            verdict=_keeps(seconds, goal.deadline_seconds),
            sentence=f"at this step the training takes {span_interval(seconds)}; "
            f"the deadline is {span(goal.deadline_seconds)}",
        )
    if goal.budget_dollars is not None:
        yield Decision(
            limit="budget",
            verdict=_keeps(cost, goal.budget_dollars),
            sentence=f"at this step the training costs {dollars_interval(cost)}; "
            f"the budget is {dollars(goal.budget_dollars)}",
        )


def _keeps(interval: Interval, most: float) -> str:
    if interval.low is None or interval.high is None:
        return CANNOT_TELL
    return PASSES if interval.high <= most else FAILS if interval.low > most else CANNOT_TELL
