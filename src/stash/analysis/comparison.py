"""Two sides of profiles: what differs and whether that is shown, other facts that differ, the paper's network
stall.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from stash.analysis.breakdown import Breakdown
from stash.analysis.step_times import step_matrix
from stash.core.formatting import listed
from stash.core.intervals import Interval, change, together
from stash.core.ladder import STALLS
from stash.core.levels import level
from stash.core.records.base import Record
from stash.core.records.host import Host
from stash.core.records.profile import Profile, Workload

# Differences -----------------------------------------------------------------------------------------------
# Two sides of one or more profiles each, line by line: the step, every stall, the rate; and whether one is slower.
#
# A difference counts as shown only if its whole interval lies on one side of zero, and "no difference shown" never
# means that there is none. Knows breakdowns; whether they are of the same job is ``facts``' to say.

SLOWER, FASTER, NOT_SHOWN, UNKNOWN = "slower", "faster", "no difference shown", "unknown"
STEP, RATE = "step", "samples/s"
LAUNCH_SPREAD = 0.005
"""Standard deviation between launches of one job on one machine, as a share of its step (``bench/comparison.py``)."""


class Difference(Record):
    """One line: what each side says and what lies between, in seconds per step (the rate: samples per second)."""

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
    """Of two sides: the lines that both have, the step among them, and the stalls that only one has."""

    lines: tuple[Difference, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()

    def line(self, name: str) -> Difference | None:
        """The line called ``name``, if both sides have it."""
        return next((line for line in self.lines if line.name == name), None)

    @property
    def step(self) -> Difference:
        found = self.line(STEP)
        assert found is not None, "every breakdown has a step"
        return found


def compare(before: Sequence[Breakdown], after: Sequence[Breakdown]) -> RunComparison:
    """The lines in ladder order, then the step, then the rate where it is known on both sides."""
    sides = (before, after)
    has = [[name for name in STALLS if all(run.stall(name) is not None for run in side)] for side in sides]
    both = [name for name in has[0] if name in has[1]]
    rates = [RATE] if all(run.samples_per_second is not None for side in sides for run in side) else []
    return RunComparison(
        lines=tuple(_difference(name, before, after) for name in (*both, STEP, *rates)),
        only_before=tuple(name for name in has[0] if name not in both),
        only_after=tuple(name for name in has[1] if name not in both),
    )


def measured(name: str, runs: Sequence[Breakdown]) -> Interval:
    """A stall, the step or the rate of one side, with what its launches may differ by."""
    whole = _mean([_of(RATE, run) if name == RATE else run.step for run in runs])
    return together([_of(name, run) for run in runs], LAUNCH_SPREAD * whole)


def _difference(name: str, before: Sequence[Breakdown], after: Sequence[Breakdown]) -> Difference:
    first, second = measured(name, before), measured(name, after)
    return Difference(name=name, before=first, after=second, change=change(first, second))


def _of(name: str, run: Breakdown) -> Interval:
    if name == STEP:
        return run.step
    if name == RATE:
        return _rate(run)
    stall = run.stall(name)
    assert stall is not None, f"{run.source} has no {name} stall"
    return stall.time


def _rate(run: Breakdown) -> Interval:
    """Samples per second, from the step's interval; its ends change places."""
    assert run.samples_per_step is not None
    samples, step = run.samples_per_step, run.step
    if step.low is None or step.high is None or step.low <= 0:
        return Interval(value=samples / step.value)
    return Interval(value=samples / step.value, low=samples / step.high, high=samples / step.low)


def _mean(intervals: Sequence[Interval]) -> float:
    return sum(interval.value for interval in intervals) / len(intervals)


# Facts -----------------------------------------------------------------------------------------------------
# Facts in which profiles differ: those that make them different jobs, and those that may explain a difference.
#
# A fact is a label and what each side says, as text. Compares what profiles say of themselves, and no times.

UNSAID = "unknown"
_COMMIT = 12
"""Characters of a commit."""


class DifferingFact(Record):
    """One fact in which the sides differ."""

    name: str
    before: str
    after: str


def recorded_facts(profile: Profile) -> dict[str, str]:
    """Every fact that a profile says of its job, its machines and its software, by the names used here."""
    return {**_essentials(profile), **_circumstances(profile)}


def incomparable(before: Sequence[Profile], after: Sequence[Profile]) -> tuple[DifferingFact, ...]:
    """Facts in which the sides are different jobs, so that a difference of their times says nothing."""
    return _differing(_essentials, before, after)


def changed(before: Sequence[Profile], after: Sequence[Profile]) -> tuple[DifferingFact, ...]:
    """Facts that differ between runs of one job: the likely causes of a difference."""
    return _differing(_circumstances, before, after)


def _differing(
    facts_of: Callable[[Profile], Mapping[str, str]], before: Sequence[Profile], after: Sequence[Profile]
) -> tuple[DifferingFact, ...]:
    first, second = ([facts_of(profile) for profile in side] for side in (before, after))
    names = dict.fromkeys(name for facts in (*first, *second) for name in facts)
    found = (DifferingFact(name=name, before=_sentence(first, name), after=_sentence(second, name)) for name in names)
    return tuple(fact for fact in found if fact.before != fact.after)


def _sentence(side: Sequence[Mapping[str, str]], name: str) -> str:
    """What the runs of a side say; all that they say, if they do not agree."""
    return " or ".join(dict.fromkeys(facts.get(name, UNSAID) for facts in side))


def _essentials(profile: Profile) -> dict[str, str]:
    workload = profile.workload
    return {
        "workload": workload.name,
        "batch per device": _text(workload.batch),
        "precision": _text(workload.precision),
        "ranks": str(profile.world_size),
        "rungs": ", ".join(name for name in profile.settings.rungs if name != "cluster"),  # of several nodes
    }


def _circumstances(profile: Profile) -> dict[str, str]:
    return dict((*_of_job(profile), *_of_machines(profile), *_of_software(profile)))


def _of_job(profile: Profile) -> Iterator[tuple[str, str]]:
    workload = profile.workload
    yield "arguments", " ".join(workload.command[1:])
    yield "commit", _commit(workload)
    yield "parameters", _text(workload.parameters)
    yield "gradient buckets", _text(len(workload.bucket_bytes) or None)
    yield "communication hook", "none" if workload.exchange_hook == "" else _text(workload.exchange_hook)
    for number, loader in enumerate(workload.loaders, 1):
        which = f" of loader {number}" if len(workload.loaders) > 1 else ""
        yield f"workers{which}", _text(loader.workers)
        yield f"prefetch factor{which}", _text(loader.prefetch_factor)
        yield f"samples in the data set{which}", _text(loader.samples)
        yield f"batches per step{which}", str(loader.batches_per_step)
    yield "launches", "one" if not profile.settings.isolated else "one for each rung"


def _of_machines(profile: Profile) -> Iterator[tuple[str, str]]:
    yield "nodes", str(profile.nodes)
    for name, of in _MACHINE.items():
        yield name, listed(list(dict.fromkeys(of(host) for host in profile.hosts)) or [UNSAID])


def _of_software(profile: Profile) -> Iterator[tuple[str, str]]:
    yield "Stash", profile.stash_version
    yield from sorted(profile.software.items())


def _gpus(host: Host) -> str:
    names = [gpu.name for gpu in host.gpus]
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)) or "none"


_MACHINE: Mapping[str, Callable[[Host], str]] = {
    "host": lambda host: host.hostname,
    "CPU": lambda host: _text(host.cpu),
    "cores": lambda host: _text(host.cores),
    "GPUs": _gpus,
    "kernel": lambda host: _text(host.kernel),
}


def _commit(workload: Workload) -> str:
    """Of the script's repository; with uncommitted changes, two of the same commit may still differ."""
    if workload.git_commit is None:
        return UNSAID
    return workload.git_commit[:_COMMIT] + (" with changes" if workload.git_dirty else "")


def _text(value: object) -> str:
    return UNSAID if value is None else str(value)


# Scaling ---------------------------------------------------------------------------------------------------
# The paper's network stall: the same ranks on several nodes against all of them on one, from two profiles.
#
# ICDCS 2023 defines it as (T − T1) / T1 on synthetic data: a job on two small instances against the same on one
# large one. A profile of the job on several nodes alone cannot tell, since it has no machine that would hold all
# ranks.


def network_stall(one: Sequence[Profile], other: Sequence[Profile]) -> Interval | None:
    """(T − T1) / T1 as a fraction, of steps on replayed batches with all exchange; its interval on a log scale.

    ``None`` unless as many ranks are on one node on one side and on several on the other, or where a profile has no
    such steps; without ends where those of a step are unknown.
    """
    one, other = (one, other) if _on_one_node(one) else (other, one)
    ranks = {run.world_size for run in (*one, *other)}
    if len(ranks) > 1 or not _on_one_node(one) or any(run.nodes == 1 for run in other):
        return None
    alone, apart = _replayed(one), _replayed(other)
    if alone is None or apart is None:
        return None
    ratio = apart.value / alone.value
    ends = (alone.low, alone.high, apart.low, apart.high)
    if any(end is None or end <= 0 for end in ends):
        return Interval(value=ratio - 1)
    lowest, highest, fastest, slowest = (math.log(end) for end in ends if end is not None)
    below = math.hypot(math.log(apart.value) - fastest, highest - math.log(alone.value))
    above = math.hypot(slowest - math.log(apart.value), math.log(alone.value) - lowest)
    return Interval(value=ratio - 1, low=ratio * math.exp(-below) - 1, high=ratio * math.exp(above) - 1)


def _on_one_node(runs: Sequence[Profile]) -> bool:
    return all(run.nodes == 1 for run in runs)


def _replayed(runs: Sequence[Profile]) -> Interval | None:
    """The step on replayed batches, under the highest such rung."""
    found = []
    for run in runs:
        times = step_matrix(run).calmed()
        if times.top_replay is None:
            return None
        found.append(level(times.matrix, times.rungs.index(times.top_replay)))
    return together(found, LAUNCH_SPREAD * sum(each.value for each in found) / len(found))
