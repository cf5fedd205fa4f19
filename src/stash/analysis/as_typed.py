"""The job's first steps, as it was typed, against the ladder's highest rung: whether what was measured is the job.

Nothing is changed in those steps but that they are timed. They come early and are few, so a difference counts only
beyond both intervals; a step between the data rungs agrees with them, as files of the first steps may be in memory or
not. Knows nothing of what follows for the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from stash.analysis.disturbance import Undisturbed
from stash.analysis.epoch_starts import level_epoch_starts
from stash.core.intervals import Interval, mean_interval
from stash.core.ladder import DATA_STALLS, EXCHANGE_STALLS, UNTOUCHED, rung
from stash.core.measured import Block
from stash.core.records.base import Record
from stash.core.records.profile import Profile

WARNING, CONTRADICTION = 0.03, 0.10
"""Of the step: differences beyond both intervals that are worth a sentence, and that leave no verdict."""
PACE = 0.5
"""Likewise where the difference is processor time of the process: the same work takes a third longer while others use
the caches, or the other half of a core, and while first steps touch their memory for the first time."""
_LOADER = "waiting for the loader"
_EXCHANGE = "the exchange"
_MOSTLY = 0.5
"""Of the step."""
_PROCESSOR = "processor time of the training thread"
_HELPERS = "processor time of other threads of the process"
DENORMALS = "arithmetic on denormal values, which Stash flushes to 0 afterwards"
_WAITS = ("exchange", "collective")
"""Stages of a step in which a rank waits for others."""
_MIN_STEPS = 3
_READ_BYTES = 2**16
"""A step: who reads more from disks may have waited for them in these steps only."""


class FirstSteps(Record):
    """A step of the job before anything was changed, without what other work on the machine cost."""

    step: Interval
    """In seconds."""
    steps: int
    loading: float
    """Of the step, what it waited for its loader, and what its loader's workers kept it from a core."""
    exchange: float
    """Of the step, what its last rank waited for collectives, its own and those of gradients."""


class AsTyped(Record):
    """The first steps compared with the ladder's highest rung."""

    first: FirstSteps
    share: float
    """By how much of a measured step with data it is longer (negative: shorter); 0 within both intervals."""
    cause: str = ""
    """The part of the step that most of that is in; empty without one."""

    @property
    def contradicts(self) -> bool:
        """Whether what was measured is another job than what was typed."""
        if self.cause == DENORMALS:
            return False
        is_pace = self.cause in (_PROCESSOR, _HELPERS)
        return abs(self.share) > (PACE if is_pace else CONTRADICTION)

    @property
    def measured_seconds(self) -> float:
        """The step that it is held against."""
        return self.first.step.value / (1 + self.share)

    @property
    def longer_seconds(self) -> float:
        """By how much it is longer (negative: shorter); 0 within both intervals."""
        return self.first.step.value - self.measured_seconds

    @property
    def unnamed_seconds(self) -> float:
        """By how much it is longer for no known cause, or by work of the training thread, as its own code is."""
        return max(0.0, self.longer_seconds) if self.cause in ("", _PROCESSOR) else 0.0

    @property
    def is_mostly_denormal(self) -> bool:
        """Whether most of a step as typed is arithmetic on denormal values, of which measured ones have none."""
        return self.cause == DENORMALS and self.longer_seconds > _MOSTLY * self.first.step.value

    @property
    def differs(self) -> bool:
        """Whether a reader should know."""
        return abs(self.share) > WARNING


def is_explained(typed: AsTyped, own_seconds: float) -> bool:
    """Whether first steps are longer by the script's own code, ``own_seconds`` a step.

    What was measured may lack any part of it, such as logging, which is taken out. Few first steps tell only within
    noise by how much they are longer.
    """
    longer, step = typed.unnamed_seconds, typed.first.step
    least = longer - (step.value - _end(step.low, step))
    return (
        longer > 0
        and longer / 2 <= own_seconds
        and least <= own_seconds + CONTRADICTION * typed.measured_seconds
    )


def is_other_job(typed: AsTyped, own_seconds: float, stalls: Mapping[str, float]) -> bool:
    """Whether first steps contradict what was measured, and nothing explains by how much.

    Where steps wait for their loader for the most part, in the first steps as by the measured ``stalls`` (seconds by
    name), both agree on what matters, if not on how much it is; likewise where ranks wait for collectives.
    """

    def is_most(first: float, names: Sequence[str]) -> bool:
        measured = sum(stalls.get(name, 0.0) for name in names)
        return (
            first > _MOSTLY * typed.first.step.value and measured > _MOSTLY * typed.measured_seconds
        )

    agree = typed.cause == _LOADER and is_most(typed.first.loading, DATA_STALLS)
    agree |= is_most(typed.first.exchange, EXCHANGE_STALLS)
    return typed.contradicts and not agree and not is_explained(typed, own_seconds)


def first_steps(profile: Profile, calm: Undisturbed) -> FirstSteps | None:
    """What the job's first steps tell by themselves, from their stamps; ``None`` if they are too few, or unknown.

    ``calm`` is ``profile`` without what strangers cost.
    """
    seen, first = (_untouched_blocks(each) for each in (profile, calm.profile))
    ranks = len(profile.ranks)
    if not ranks or len(seen) < ranks or min(block.steps for block in seen) < _MIN_STEPS:
        return None
    lost = {
        rank: each
        for (_, name), of_ranks in calm.lost.items()
        if name == UNTOUCHED.name
        for rank, each in of_ranks.items()
    }
    slowest = max(first, key=lambda block: block.seconds / block.steps)
    step = mean_interval(slowest.step_seconds)
    doubt = max((each.doubt for each in lost.values()), default=0.0)
    least = _end(step.low, step) - doubt - profile.missed_seconds
    has_workers = any(loader.workers for loader in profile.workload.loaders)
    loading = 0.0
    for before, after in zip(seen, first, strict=True):
        waited = (after.wait_seconds or 0.0) / after.steps
        if has_workers and before.rank in lost:
            own = sum(before.step_delays) / before.steps - lost[before.rank].seconds
            waited += max(0.0, own)
        loading = max(loading, waited)
    high = _end(step.high, step) + doubt
    if has_workers:  # samples that sleep may have come no earlier
        high = max(high, *(block.seconds / block.steps for block in seen))
    waits = [
        sum(block.stage_seconds.get(name, 0.0) for name in _WAITS) / block.seconds for block in seen
    ]
    return FirstSteps(
        step=step.model_copy(update={"low": least, "high": high}),
        steps=slowest.steps,
        loading=min(loading, step.value),
        exchange=min(waits) * step.value if ranks > 1 else 0.0,
    )


def _untouched_blocks(profile: Profile) -> list[Block]:
    return [block for block in profile.blocks if block.rung == UNTOUCHED.name]


def lost_share(profile: Profile, calm: Undisturbed) -> float:
    """Of the first steps, what other work on the machine cost; 0 where there are none."""
    with_others, without = (
        sum(block.seconds for block in _untouched_blocks(each)) for each in (profile, calm.profile)
    )
    return max(0.0, 1 - without / with_others) if with_others else 0.0


def compare_first_steps(
    profile: Profile, calm: Undisturbed, steps: Mapping[str, Interval], rounds: Sequence[int]
) -> AsTyped | None:
    """The first steps against the whole ``steps`` by rung, of these rounds; ``None`` if they cannot be compared."""
    profile = level_epoch_starts(profile)
    calm = calm._replace(profile=level_epoch_starts(calm.profile))
    reading = {name: step for name, step in steps.items() if rung(name).reads_data}
    against = reading or dict(list(steps.items())[-1:])
    first = first_steps(profile, calm)
    if first is None or not against:
        return None
    if len(profile.ranks) > 1 and not rung(next(iter(against))).exchanges:
        return None
    shortest, longest = (end(against.values(), key=lambda step: step.value) for end in (min, max))
    has_read = any(
        (block.disk_bytes or 0) > _READ_BYTES * block.steps for block in _untouched_blocks(profile)
    )
    share = 0.0
    if _end(first.step.low, first.step) > _end(longest.high, longest):
        if "cold" in against or not has_read:
            share = first.step.value / longest.value - 1
    elif _end(first.step.high, first.step) < _end(shortest.low, shortest):
        share = first.step.value / shortest.value - 1
    name = list(against)[-1]
    later = [b for b in calm.profile.blocks if b.rung == name and b.round in rounds]
    cause = _find_cause(calm.profile, share, later) if share else ""
    return AsTyped(first=first, share=share, cause=cause)


def _end(end: float | None, interval: Interval) -> float:
    return interval.value if end is None else end


def _find_cause(profile: Profile, share: float, later: Sequence[Block]) -> str:
    """The part of a step that differs most between the first steps and ``later`` blocks."""
    first = _untouched_blocks(profile)
    parts: dict[str, Callable[[Block], float]] = {
        _LOADER: lambda block: block.wait_seconds or 0.0,
        _PROCESSOR: lambda block: block.thread_cpu_seconds or 0.0,
        _HELPERS: lambda block: (block.cpu_seconds or 0.0) - (block.thread_cpu_seconds or 0.0),
        _EXCHANGE: lambda block: sum(block.step_exchanges),
    }
    if not first or not later:
        return ""

    def longer(part: Callable[[Block], float]) -> float:
        """Seconds of a first step beyond a later one."""
        before, after = (
            sum(map(part, each)) / sum(b.steps for b in each) for each in (first, later)
        )
        return before - after

    apart = {text: longer(part) * math.copysign(1, share) for text, part in parts.items()}
    whole = abs(longer(lambda block: block.seconds))
    # making batches in the training thread is processor time of that, too
    waits = [text for text in (_LOADER, _EXCHANGE) if apart[text] > _MOSTLY * whole]
    cause = max(waits or apart, key=lambda text: apart[text])
    if not whole or apart[cause] < _MOSTLY * whole:
        cause = ""
    computes = cause not in (_LOADER, _EXCHANGE)
    return DENORMALS if share > 0 and computes and profile.workload.vanished_values else cause
