"""A plan held against a later profile of one of its choices: what of it held, and what did not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stash.analysis.breakdown import SIGNIFICANT_SHARE, Breakdown, ranks_per_node
from stash.analysis.comparison import FASTER, SLOWER, STEP, measured
from stash.analysis.findings.machine import model_of
from stash.analysis.limits import CANNOT_TELL, FAILS, PASSES, Decision
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.formatting import dollars, dollars_interval, listed, quantity, span, span_interval
from stash.core.intervals import Interval, change
from stash.core.ladder import DATA_STALLS, STALLS
from stash.core.records.base import Record
from stash.core.records.profile import Profile
from stash.core.units import counted
from stash.plan.records import BillItem, Choice, Goal, PlanFact, RentalPlan, StallShare
from stash.plan.residuals import (
    Residual,
    Residuals,
    assumption,
    before_residuals,
    facts_seen,
    other_settings,
    residual,
    unplanned,
)
from stash.predict.passes import Base

# Matching --------------------------------------------------------------------------------------------------
# Which of a plan's choices a later profile is of: by instance type and nodes, else by GPUs and nodes.
#
# A profile says its machine's type only where the firmware or a metadata service tells it, so what is known of it
# is said with the answer. Knows what was rented and what was measured, and compares no times.

_SAME = 0.005
"""Of the samples of a step: what counting them block by block may differ by."""


class MatchedChoice(NamedTuple):
    """One choice of a plan, and by what a profile is taken to be of it."""

    choice: Choice
    by: str


class _Seen(NamedTuple):
    """What a profile tells of the machines that it ran on."""

    nodes: int
    devices: int
    """Of a node."""
    cloud: str | None
    """As ``--instance`` names it."""
    instance: str | None
    on_cpus: bool
    gpus: tuple[str, ...]
    """Models; none where ranks ran on CPUs, and where no host is recorded."""

    @property
    def words(self) -> str:
        if self.instance is not None:
            return f"{self.nodes} × {self.instance}"
        on = f"{self.devices} × {listed(self.gpus)}" if self.gpus else f"{self.devices} ranks on CPUs"
        return f"{self.nodes} × (a machine of {on})"


def choice_of(
    plan: RentalPlan, profile: Profile, samples_per_step: float | None, catalog: Catalog, instance: str | None = None
) -> MatchedChoice:
    """The choice that ``profile`` is of, or is said to be of with ``instance``; UserError says what there is instead.

    Of several on the same machines, that with as many samples of a step; what differs besides (how it is paid for)
    is no matter to a step, and the plan's first is taken.
    """
    if plan.workload != profile.workload.name:
        raise UserError(f"the plan is for {plan.workload}, and this profile is of {profile.workload.name}")
    seen = _seen(profile, catalog, instance)
    here = [choice for choice in plan.choices if not _unlike(choice, seen)]
    if not here:
        raise UserError(f"this profile is of {_lacks(plan, seen)}")
    alike = [choice for choice in here if _as_many(choice, samples_per_step)]
    if not alike:
        wanted = listed([f"{choice.samples_per_step:g}" for choice in here])
        raise UserError(
            f"this profile trains {samples_per_step:g} samples a step, and the plan's {here[0].name} {wanted}; "
            "profile with the plan's batch and accumulation"
        )
    return MatchedChoice(alike[0], _by(seen, alike, instance))


def _seen(profile: Profile, catalog: Catalog, instance: str | None) -> _Seen:
    host = profile.hosts[0] if profile.hosts else None
    cloud, _, name = (instance or "").rpartition("/")
    if not name and host is not None:
        name = host.instance or ""
    on_cpus = all(rank.device == "cpu" for rank in profile.ranks)
    gpus = () if host is None or on_cpus else host.gpus
    return _Seen(
        nodes=profile.nodes,
        devices=max(ranks_per_node(profile).values(), default=1),
        cloud=cloud.lower() or None,
        instance=name.lower() or None,
        on_cpus=on_cpus,
        gpus=tuple(dict.fromkeys(model_of(gpu, catalog) or gpu.name for gpu in gpus)),
    )


def _unlike(choice: Choice, seen: _Seen) -> dict[str, tuple[str, str]]:
    """By what the profile's machines are not those of the choice: what they have, and what the choice has."""
    rented = choice.rented
    found: dict[str, tuple[str, str]] = {}
    if rented.nodes != seen.nodes:
        found["nodes"] = f"{seen.nodes}", f"{rented.nodes}"
    if seen.instance is not None and rented.instance.lower() != seen.instance:
        found["instance"] = seen.instance, rented.instance
    elif seen.instance is not None and seen.cloud is not None and rented.cloud.lower() != seen.cloud:
        found["cloud"] = f"cloud {seen.cloud}", f"cloud {rented.cloud}"
    if rented.devices != seen.devices:
        found["devices"] = f"{counted(seen.devices, 'device')} a node", f"{rented.devices}"
    of_cpus = rented.device is None
    if of_cpus is not seen.on_cpus or not all(_named(model, rented.device) for model in seen.gpus):
        found["device"] = listed(seen.gpus) if seen.gpus else "CPUs", rented.device or "CPUs"
    return found


def _named(model: str, device: str | None) -> bool:
    """Whether a rented device is of a model: ``V100-SXM2-16GB`` is a ``V100``."""
    return device is not None and model.lower() in (device.lower(), device.lower().partition("-")[0])


def _as_many(choice: Choice, samples: float | None) -> bool:
    return samples is None or abs(choice.samples_per_step - samples) <= _SAME * samples


def _lacks(plan: RentalPlan, seen: _Seen) -> str:
    """The end of the sentence that says what the plan has instead, and by what that is another thing."""
    same = [each for each in plan.choices if each.rented.instance.lower() == seen.instance]
    alike = next((each for each in same if "nodes" not in _unlike(each, seen)), None)
    if alike is not None:
        pairs = _unlike(alike, seen).values()
        here, there = (listed([pair[side] for pair in pairs]) for side in (0, 1))
        return (
            f"{seen.words} with {here}, and the plan's {alike.name} has {there}; profile the job as the plan has it"
        )
    names = list(dict.fromkeys(each.name for each in same or plan.choices))
    hint = "; say which type it is with --instance NAME" if seen.instance is None else ""
    return f"{seen.words}, which the plan does not have; it has {listed(names)}{hint}"


def _by(seen: _Seen, alike: Sequence[Choice], instance: str | None) -> str:
    standing = f"{alike[0].name}, the plan's {alike[0].standing} choice"
    if instance is not None:
        return f"{standing}, as --instance says"
    if seen.instance is not None:
        return f"{standing}, by its instance type"
    types = list(dict.fromkeys(choice.rented.instance for choice in alike))
    others = f"; {listed(types[1:])} would fit as well (--instance NAME)" if len(types) > 1 else ""
    return f"{standing}, by its devices alone, as its instance type is not recorded{others}"


# Checking --------------------------------------------------------------------------------------------------
# A plan held against what was measured later on the machine that was rented: which of it held, and what did not.
#
# Stall by stall the measurement is as planned unless the whole 95 % interval of the difference lies on one side of
# zero, where the forecast's interval and the measurement's own both count. What a stall was forecast from is looked
# at again wherever the profile tells the same fact, so that a wrong fact is told from a wrong model. Time and cost
# of the whole follow from the measured step, with the plan's other items and at the plan's price. What nobody
# measured is counted as planned: a stall that the profile lacks, and fetch where the plan's step is one after the
# first epoch, when memory holds the data, since a profile's cold blocks are of the first.

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
        """By how much the plan was certainly wrong: of a stall that it did not have, all of it."""
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
    residuals: Residuals
    exact: tuple[str, ...] = ()
    """What is counted as planned though the plan knows no spread of it, so that times and bills hold none of it."""

    @property
    def step(self) -> CheckedLine:
        return self.lines[-1]

    @property
    def decidable(self) -> tuple[CheckedLine, ...]:
        """Lines of which it can be told whether the plan's interval held."""
        return tuple(line for line in self.lines if line.verdict != CANNOT_TELL)

    @property
    def held(self) -> tuple[CheckedLine, ...]:
        return tuple(line for line in self.lines if line.verdict == AS_PLANNED)

    @property
    def spent_dollars(self) -> float:
        """What measuring cost at the plan's price."""
        return self.spent_seconds * _dollars_per_second(self.choice)


def check_plan(plan: RentalPlan, matched: MatchedChoice, base: Base) -> PlanCheck:
    """What became of the ``matched`` choice, as the profile of ``base`` measured it."""
    choice, breakdown = matched.choice, base.breakdown
    stalls = tuple(_lines(choice, breakdown))
    step = _step(choice, breakdown, stalls)
    assert step.measured is not None, "every profile has a step"
    whole, cost = _seconds(choice, step.measured), _dollars(choice, step.measured)
    return PlanCheck(
        choice=choice,
        by=matched.by,
        lines=(*stalls, step),
        seconds=whole,
        dollars=cost,
        spent_seconds=base.profile.elapsed_seconds,
        decisions=tuple(_decisions(plan.goal, step, whole, cost)),
        assumptions=(*_settings_failed(choice, base), *_failed(choice, stalls, facts_seen(base))),
        residuals=residuals_of(choice, base),
        exact=tuple(_without_spread(choice, stalls)),
    )


def residuals_of(choice: Choice, base: Base) -> Residuals:
    """Of every stall that was planned and measured, against the forecast before any residual had moved it.

    None of what ran with other settings than were forecast: what that did to it is no error of the forecast. Other
    loader workers change the data stalls only.
    """
    otherwise, breakdown = other_settings(choice.setting, base), base.breakdown
    shares = [share for share in choice.stalls if breakdown.stall(share.name) is not None]
    shares = [share for share in shares if not _of_later_epochs(choice, share.name)]
    left_out = []
    if otherwise:
        touched = {share.name for share in shares if set(otherwise) != {"workers"} or share.name in DATA_STALLS}
        shares = [share for share in shares if share.name not in touched]
        ran = listed(list(otherwise.values()))
        left_out = [f"{listed(sorted(touched))} of {choice.name}: the job ran there with {ran}, as planned"]
    found = [
        residual(
            share.name, share.origin, choice.name, before_residuals(share), measured(share.name, [breakdown]),
        )
        for share in shares
    ]  # fmt: skip
    return Residuals(
        found=tuple(each for each in found if isinstance(each, Residual)),
        left_out=(*left_out, *(each for each in found if isinstance(each, str))),
    )


# Line by line ----------------------------------------------------------------------------------------------


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
    """The whole step; planned stalls that nobody measured are counted as planned, and that is said."""
    inside = {each.name for each in breakdown.skipped if each.contained_in is not None or not each.possible}
    lacking = [line for line in stalls if _unmeasured(choice, line) and line.name not in inside]
    cold = sum(line.measured.value for line in lacking if line.measured is not None)
    as_planned = [_known(line.planned) for line in lacking if line.planned is not None]
    seen = _sum([_later(measured(STEP, [breakdown]), -cold), *as_planned])
    names = listed([line.name for line in lacking])
    return CheckedLine(
        name=STEP, planned=choice.step, measured=seen, origin=choice.origin, verdict=_verdict(choice.step, seen),
        why=f"counting {names} as planned" if names else "",
    )  # fmt: skip


def _unmeasured(choice: Choice, line: CheckedLine) -> bool:
    return line.measured is None or (line.planned is not None and _of_later_epochs(choice, line.name))


def _without_spread(choice: Choice, stalls: Sequence[CheckedLine]) -> Iterator[str]:
    """What is counted as planned, and has no ends in the plan."""
    yield from (
        line.name for line in stalls if _unmeasured(choice, line) and line.planned and line.planned.low is None
    )
    yield from (item.name for item in _beside(choice) if item.seconds.low is None or item.dollars.low is None)


def _settings_failed(choice: Choice, base: Base) -> Iterator[str]:
    otherwise = other_settings(choice.setting, base)
    if otherwise:
        ran = listed(list(otherwise.values()))
        yield f"the job ran with {ran}, as the plan runs it there; profile it with the plan's settings"


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
        yield unplanned(name, worth[name]) if share is None else assumption(share, worth[name], seen)


# The whole -------------------------------------------------------------------------------------------------


def _seconds(choice: Choice, step: Interval) -> Interval:
    return _sum([step.scaled(choice.steps), *(_known(item.seconds) for item in _beside(choice))])


def _dollars(choice: Choice, step: Interval) -> Interval:
    trains = step.scaled(choice.steps * _dollars_per_second(choice))
    return _sum([trains, *(_known(item.dollars) for item in _beside(choice))])


def _beside(choice: Choice) -> tuple[BillItem, ...]:
    return tuple(item for item in choice.items if item.name != "training")


def _dollars_per_second(choice: Choice) -> float:
    return choice.rented.dollars_per_hour / 3600


def _known(planned: Interval) -> Interval:
    """As planned, exactly so where the plan knows no spread: ``PlanCheck.exact`` says of what."""
    return (
        planned
        if planned.low is not None
        else planned.model_copy(update={"low": planned.value, "high": planned.value})
    )


def _later(time: Interval, seconds: float) -> Interval:
    ends = {name: None if end is None else end + seconds for name, end in (("low", time.low), ("high", time.high))}
    return time.model_copy(update={"value": time.value + seconds, **ends})


def _sum(parts: Sequence[Interval]) -> Interval:
    """Of independent parts, arms in quadrature; without ends if a part has none."""
    value = math.fsum(part.value for part in parts)
    below = [part.value - part.low for part in parts if part.low is not None]
    above = [part.high - part.value for part in parts if part.high is not None]
    if min(len(below), len(above)) < len(parts):
        return Interval(value=value)
    return Interval(value=value, low=value - math.hypot(*below), high=value + math.hypot(*above))


def _decisions(goal: Goal, step: CheckedLine, seconds: Interval, cost: Interval) -> Iterator[Decision]:
    yield _on_step(step)
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


def _on_step(step: CheckedLine) -> Decision:
    verdict = {AS_PLANNED: PASSES, FASTER: PASSES, SLOWER: FAILS}.get(step.verdict, CANNOT_TELL)
    assert step.planned is not None, "every choice has a step"
    assert step.measured is not None, "every profile has one"
    because = f" ({step.why})" if step.why else ""
    took, planned = quantity(step.measured, "seconds"), quantity(step.planned, "seconds")
    return Decision(
        limit=STEP,
        verdict=verdict,
        sentence=f"the step is {took}{because}; planned was {planned}",
    )


def _keeps(found: Interval, most: float) -> str:
    if found.low is None or found.high is None:
        return CANNOT_TELL
    return PASSES if found.high <= most else FAILS if found.low > most else CANNOT_TELL
