"""Two sides of profiles: what differs and whether that is shown, facts that differ, the paper's network stall.

A difference counts as shown only if its whole interval lies on one side of zero, and "no difference shown" never
means that there is none. Steps of unlike size (another batch, more ranks) are compared by the time that the whole job
takes for a sample, and steps of which only one reads its files, up to the rung that both have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.analysis.step_times import rungs_run, step_matrix
from stash.analysis.uncertainty import launch_error
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.intervals import NORMAL, Interval, pool_runs, subtract_runs
from stash.core.ladder import NOTHING_READ, STALLS, rung
from stash.core.levels import level
from stash.core.records.base import Record
from stash.core.records.profile import Profile

# Times

SLOWER, FASTER, NOT_SHOWN, UNKNOWN = "slower", "faster", "no difference shown", "unknown"
STEP, RATE = "step", "samples/s"


class Difference(Record):
    """One line: what each side says and what lies between, in seconds per step or sample (the rate: samples/s)."""

    name: str
    before: Interval
    after: Interval
    change: Interval

    @property
    def verdict(self) -> str:
        """One of the four words above."""
        if self.change.low is None or self.change.high is None:
            return UNKNOWN
        if self.change.low <= 0.0 <= self.change.high:
            return NOT_SHOWN
        return SLOWER if (self.change.value > 0) is (self.name != RATE) else FASTER


class RunComparison(Record):
    """Two sides compared: the lines that both have, the step among them, and the stalls that only one has."""

    lines: tuple[Difference, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    """Stalls of both sides that are not compared, since that of one contains what the other has apart."""
    per_sample: bool = False
    """Whether times are those that the whole job takes for a sample, not those of a step."""

    def line(self, name: str) -> Difference | None:
        """The line called ``name``, if both sides have it."""
        return next((line for line in self.lines if line.name == name), None)

    @property
    def step(self) -> Difference:
        found = self.line(STEP)
        assert found is not None, "every breakdown has a step"
        return found


def compare(
    before: Sequence[Breakdown],
    after: Sequence[Breakdown],
    alike: bool = True,
    per_sample: bool = False,
) -> RunComparison:
    """The lines in ladder order, then the step, then the rate where it is known on both sides.

    ``alike``: whether the sides are of one job, set up in one way, see ``set_up_alike``; ``per_sample``: whether
    their steps differ in size, see ``comparable_sides``.
    """
    sides = (before, after)
    has = [
        [name for name in STALLS if all(run.stall(name) is not None for run in side)]
        for side in sides
    ]
    common = [name for name in has[0] if name in has[1]]
    both = [
        name
        for name in common
        if len({_contained_stalls(name, run) for run in (*before, *after)}) == 1
    ]
    rates = (
        [RATE] if all(run.samples_per_second is not None for side in sides for run in side) else []
    )
    lines = []
    for name in (*both, STEP, *rates):
        first, second = (estimate_figure(name, side, per_sample) for side in sides)
        between = changed_by(name, before, after, alike=alike, per_sample=per_sample)
        lines.append(Difference(name=name, before=first, after=second, change=between))
    return RunComparison(
        lines=tuple(lines),
        only_before=tuple(name for name in has[0] if name not in common),
        only_after=tuple(name for name in has[1] if name not in common),
        unlike=tuple(name for name in common if name not in both),
        per_sample=per_sample,
    )


def _contained_stalls(name: str, run: Breakdown) -> frozenset[str]:
    """What a stall of a run holds: itself, and what was not measured apart from it."""
    return frozenset(
        {name, *(each.name for each in run.skipped if each.possible and each.contained_in == name)}
    )


def estimate_figure(name: str, runs: Sequence[Breakdown], per_sample: bool = False) -> Interval:
    """A stall, the step or the rate of one side: of one run what that says of itself, of several their mean."""
    if len(runs) == 1:
        return _run_figure(name, runs[0]).scale(_sample_share(name, runs[0], per_sample))
    return _mean_of_runs(name, runs, per_sample).add_error(_common_error(name, runs, per_sample))


def _sample_share(name: str, run: Breakdown, per_sample: bool) -> float:
    """Of a step's times, what one sample takes of them; 1 where steps are compared."""
    if not per_sample or name == RATE:
        return 1.0
    assert run.samples_per_step is not None, (
        f"{run.source} does not say how many samples a step has"
    )
    return 1 / run.samples_per_step


def changed_by(
    name: str,
    before: Sequence[Breakdown],
    after: Sequence[Breakdown],
    factor: float = 1.0,
    alike: bool = True,
    per_sample: bool = False,
) -> Interval:
    """What ``after`` has more than ``factor`` times ``before``.

    What the method adds to a stall it adds on both sides, where these are ``alike`` and were estimated in one way:
    only the difference of its errors is left in a change. Otherwise neither error tells anything of the other.
    """
    found = subtract_runs(
        _mean_of_runs(name, before, per_sample).scale(factor),
        _mean_of_runs(name, after, per_sample),
    )
    errors = (
        factor * _common_error(name, before, per_sample),
        _common_error(name, after, per_sample),
    )
    one_way = len({(run.by_waits, run.seen is None) for run in (*before, *after)}) == 1
    return found.add_error(abs(errors[1] - errors[0]) if alike and one_way else math.hypot(*errors))


def _mean_of_runs(name: str, runs: Sequence[Breakdown], per_sample: bool) -> Interval:
    """The mean over the runs of a side, with what another launch would measure otherwise."""
    shares = [_sample_share(name, run, per_sample) for run in runs]
    spreads = [launch_error(_run_figure(RATE if name == RATE else STEP, run).value) for run in runs]
    rounds = [
        _noise_of(name, run, launch).scale(share)
        for run, launch, share in zip(runs, spreads, shares, strict=True)
    ]
    spread = sum(launch * share for launch, share in zip(spreads, shares, strict=True)) / len(runs)
    return pool_runs(rounds, spread / NORMAL)


def _noise_of(name: str, run: Breakdown, launch: float) -> Interval:
    """What the rounds of one run tell by themselves."""
    whole, stall = _run_figure(name, run), run.stall(name)
    if stall is None:
        return whole.remove_error(launch)
    arm = stall.parts.noise
    return (
        Interval(value=whole.value) if arm is None else Interval(value=whole.value).symmetric(arm)
    )


def _common_error(name: str, runs: Sequence[Breakdown], per_sample: bool) -> float:
    """Half-width of what all runs of a side are off by together."""
    parts = [
        stall.parts.common * _sample_share(name, run, per_sample)
        for run in runs
        if (stall := run.stall(name)) is not None
    ]
    return sum(parts) / len(parts) if parts else 0.0


def _run_figure(name: str, run: Breakdown) -> Interval:
    if name == STEP:
        return run.step
    if name == RATE:  # from the step's interval, whose ends change places
        assert run.samples_per_step is not None
        samples, step = run.samples_per_step, run.step
        if step.low is None or step.high is None or step.low <= 0:
            return Interval(value=samples / step.value)
        return Interval(
            value=samples / step.value, low=samples / step.high, high=samples / step.low
        )
    stall = run.stall(name)
    assert stall is not None, f"{run.source} has no {name} stall"
    return stall.time


# Facts

NOT_RECORDED = "unknown"
CONDITIONS = ("batch per device", "precision", "ranks")
"""Facts that say how one job was run; the rungs of the ladder follow from them."""


class DifferingFact(Record):
    """One fact in which the sides differ."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


def recorded_facts(profile: Profile) -> dict[str, str]:
    """Every fact that a profile says of its job, its machines and its software, by the names used here."""
    return {**_identity(profile), **_conditions(profile), **_circumstances(profile)}


def incomparable(before: Sequence[Profile], after: Sequence[Profile]) -> tuple[DifferingFact, ...]:
    """Facts in which the sides are different jobs, so that a difference of their times says nothing."""
    return _differing(_identity, before, after)


def unlike_conditions(
    before: Sequence[Profile], after: Sequence[Profile]
) -> tuple[DifferingFact, ...]:
    """Facts in which one job was run otherwise: batch, precision, ranks and rungs."""
    return _differing(_conditions, before, after)


def find_changed_facts(
    before: Sequence[Profile], after: Sequence[Profile]
) -> tuple[DifferingFact, ...]:
    """Facts that differ between runs of one job: the likely causes of a difference."""
    return (*unlike_conditions(before, after), *_differing(_circumstances, before, after))


class Sides(NamedTuple):
    """Two sides made comparable: the arguments of ``compare``."""

    before: list[Breakdown]
    after: list[Breakdown]
    alike: bool
    per_sample: bool


def comparable_sides(
    before: Mapping[str, Profile], after: Mapping[str, Profile], anyway: bool = False
) -> Sides:
    """The breakdowns of two sides of profiles, by their names, and how they are compared; raises UserError.

    ``anyway``: steps of unlike size are compared as they are where nobody counted their samples.
    """
    runs = list(before.values()), list(after.values())
    shortened = up_to_common_rung(*runs)
    first, second = (
        [attribute(profile, name) for name, profile in zip(side, profiles, strict=True)]
        for side, profiles in zip((before, after), shortened, strict=True)
    )
    unlike_sizes = len({_step_size(profile) for side in runs for profile in side}) > 1
    if unlike_sizes and any(run.samples_per_step is None for run in (*first, *second)):
        if not anyway:
            raise UserError(_why_uncounted(unlike_conditions(*runs)), code="different_jobs")
        unlike_sizes = False
    return Sides(first, second, set_up_alike(*runs), unlike_sizes)


def _why_uncounted(facts: Sequence[DifferingFact]) -> str:
    differs = join_names([fact.text for fact in facts]) or "batches per step"
    return (
        f"the steps differ in size ({differs}), so they are compared per sample, and a profile does not say how many "
        "samples a step has; profile again with a loader that Stash sees, or compare the steps with --force"
    )


def set_up_alike(before: Sequence[Profile], after: Sequence[Profile]) -> bool:
    """Whether the sides are one job with the same loaders and exchange, run and measured in the same way."""
    return not any(_differing(facts, before, after) for facts in (_identity, _conditions, _set_up))


def _step_size(profile: Profile) -> tuple[object, ...]:
    """What decides how many samples a step has."""
    workload = profile.workload
    return (
        workload.batch,
        profile.world_size,
        *(loader.batches_per_step for loader in workload.loaders),
    )


def up_to_common_rung(
    before: Sequence[Profile], after: Sequence[Profile]
) -> tuple[list[Profile], list[Profile]]:
    """The sides without rungs that read data where a run of theirs lacks them although its job reads data so.

    A step that has to fetch its files is longer than one whose files could not be evicted, without being slower. Of
    a job that reads no files nothing is left out: there, to fetch them is what it saves.
    """
    runs = (*before, *after)
    shared = set.intersection(*(set(rungs_run(profile)) for profile in runs))
    unread = {
        item.rung
        for profile in runs
        for item in profile.skipped
        if rung(item.rung).reads_data and profile.workload.loaders and item.why != NOTHING_READ
    }
    excess = unread - shared
    if not excess:
        return list(before), list(after)
    first, second = ([_drop_rungs(profile, excess) for profile in side] for side in (before, after))
    return first, second


def _drop_rungs(profile: Profile, names: Set[str]) -> Profile:
    blocks = tuple(block for block in profile.blocks if block.rung not in names)
    asked = tuple(name for name in profile.settings.rungs if name not in names)
    settings = profile.settings.model_copy(update={"rungs": asked})
    return profile.model_copy(update={"blocks": blocks, "settings": settings})


def _differing(
    facts_of: Callable[[Profile], Mapping[str, str]],
    before: Sequence[Profile],
    after: Sequence[Profile],
) -> tuple[DifferingFact, ...]:
    first, second = ([facts_of(profile) for profile in side] for side in (before, after))
    names = dict.fromkeys(name for facts in (*first, *second) for name in facts)
    found = (
        DifferingFact(name=name, before=_sentence(first, name), after=_sentence(second, name))
        for name in names
    )
    return tuple(fact for fact in found if fact.before != fact.after)


def _sentence(side: Sequence[Mapping[str, str]], name: str) -> str:
    """What the runs of a side say; all that they say, if they do not agree."""
    return " or ".join(dict.fromkeys(facts.get(name, NOT_RECORDED) for facts in side))


def _identity(profile: Profile) -> dict[str, str]:
    return {"workload": profile.workload.name}


def _conditions(profile: Profile) -> dict[str, str]:
    workload = profile.workload
    return {
        "batch per device": _text(workload.batch),
        "precision": _text(workload.precision),
        "ranks": str(profile.world_size),
        "rungs": ", ".join(
            name for name in rungs_run(profile) if name != "cluster"
        ),  # of several nodes
    }


def _circumstances(profile: Profile) -> dict[str, str]:
    workload = profile.workload
    facts = {
        "arguments": " ".join(workload.command[1:]),
        # with uncommitted changes, two of the same commit may still differ
        "commit": NOT_RECORDED,
        **_set_up(profile),
    }
    if workload.git_commit is not None:
        facts["commit"] = workload.git_commit[:12] + (" with changes" if workload.git_dirty else "")
    facts["nodes"] = str(profile.nodes)
    machines: dict[str, list[str]] = {"host": [], "CPU": [], "cores": [], "GPUs": [], "kernel": []}
    for host in profile.hosts:
        gpus = Counter(gpu.name for gpu in host.gpus)
        kinds = ", ".join(f"{count} × {name}" for name, count in gpus.items()) or "none"
        described = (host.hostname, _text(host.cpu), _text(host.cores), kinds, _text(host.kernel))
        for values, value in zip(machines.values(), described, strict=True):
            values.append(value)
    facts |= {
        name: join_names(list(dict.fromkeys(values)) or [NOT_RECORDED])
        for name, values in machines.items()
    }
    return {**facts, "Stash": profile.stash_version, **dict(sorted(profile.software.items()))}


def _set_up(profile: Profile) -> dict[str, str]:
    """What steps do besides the model itself, and how they were measured: on it depends by how much Stash errs."""
    workload = profile.workload
    facts = {
        "parameters": _text(workload.parameters),
        "gradient buckets": _text(len(workload.bucket_bytes) or None),
        "communication hook": "none"
        if workload.exchange_hook == ""
        else _text(workload.exchange_hook),
    }
    for number, loader in enumerate(workload.loaders, 1):
        which = f" of loader {number}" if len(workload.loaders) > 1 else ""
        facts[f"workers{which}"] = _text(loader.workers)
        facts[f"prefetch factor{which}"] = _text(loader.prefetch_factor)
        facts[f"samples in the data set{which}"] = _text(loader.samples)
        facts[f"batches per step{which}"] = str(loader.batches_per_step)
    facts["launches"] = "one for each rung" if profile.settings.isolated else "one"
    return facts


def _text(value: object) -> str:
    return NOT_RECORDED if value is None else str(value)


# Scaling


def network_stall(one: Sequence[Profile], other: Sequence[Profile]) -> Interval | None:
    """(T − T1) / T1 as a fraction, of steps on replayed batches with all exchange; its interval on a log scale.

    ``None`` unless as many ranks are on one node on one side and on several on the other, or where a profile has no
    such steps; without ends where those of a step are unknown.
    """
    one, other = (one, other) if _is_on_one_node(one) else (other, one)
    ranks = {run.world_size for run in (*one, *other)}
    if len(ranks) > 1 or not _is_on_one_node(one) or any(run.nodes == 1 for run in other):
        return None
    alone, apart = _replayed_step(one), _replayed_step(other)
    if alone is None or apart is None:
        return None
    ratio = apart.value / alone.value
    ends = (alone.low, alone.high, apart.low, apart.high)
    if any(end is None or end <= 0 for end in ends):
        return Interval(value=ratio - 1)
    lowest, highest, fastest, slowest = (math.log(end) for end in ends if end is not None)
    below = math.hypot(math.log(apart.value) - fastest, highest - math.log(alone.value))
    above = math.hypot(slowest - math.log(apart.value), math.log(alone.value) - lowest)
    return Interval(
        value=ratio - 1, low=ratio * math.exp(-below) - 1, high=ratio * math.exp(above) - 1
    )


def _is_on_one_node(runs: Sequence[Profile]) -> bool:
    return all(run.nodes == 1 for run in runs)


def _replayed_step(runs: Sequence[Profile]) -> Interval | None:
    """The step on replayed batches, with all exchange."""
    found = []
    for run in runs:
        times = step_matrix(run)
        if times.top_replay != ("cluster" if run.nodes > 1 else "node"):
            return None
        found.append(level(times.matrix, times.rungs.index(times.top_replay)))
    return pool_runs(found, launch_error(sum(each.value for each in found) / len(found)) / NORMAL)
