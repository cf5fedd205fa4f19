"""The job's first steps, as it was typed, against the ladder's highest rung: whether what was measured is the job.

Nothing is changed in those steps but that they are timed. They come early and are few, so a difference counts only
beyond both intervals; a step between the data rungs agrees with them, as files of the first steps may be in memory or
not. Knows nothing of what follows for the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stash.analysis.disturbance import Undisturbed
from stash.core.intervals import Interval, mean_interval
from stash.core.ladder import UNTOUCHED, rung
from stash.core.records.base import Record
from stash.core.records.profile import Block, Profile

WARNING, CONTRADICTION = 0.03, 0.10
"""Of the step: differences beyond both intervals that are worth a sentence, and that leave no verdict."""
_MIN_STEPS = 5
_READ_BYTES = 2**16
"""A step: who reads more from disks may have waited for them in these steps only."""


class AsTyped(Record):
    """A step of the job before anything was changed, without what other work on the machine cost."""

    step: Interval
    """In seconds."""
    beyond: float
    """Seconds by which it is longer (negative: shorter) than any measured step with data, beyond both intervals."""
    share: float
    """That of the measured step."""
    waited: float | None
    """Of the step, what it waited for its loader."""
    cause: str = ""
    """The part of the step that most of ``beyond`` is in; empty without one."""

    @property
    def contradicts(self) -> bool:
        """Whether what was measured is another job than what was typed."""
        return abs(self.share) > CONTRADICTION

    @property
    def differs(self) -> bool:
        """Whether a reader should know."""
        return abs(self.share) > WARNING


def as_typed(calm: Undisturbed, steps: Mapping[str, Interval], rounds: Sequence[int]) -> AsTyped | None:
    """The first steps against the whole ``steps`` by rung; ``None`` if they were not measured, or too few.

    ``rounds`` are those that ``steps`` are of.
    """
    reading = {name: step for name, step in steps.items() if rung(name).reads_data}
    against = reading or dict(list(steps.items())[-1:])
    if not against or (not rung(next(iter(against))).exchanges and len(calm.profile.ranks) > 1):
        return None
    first = [block for block in calm.profile.blocks if block.rung == UNTOUCHED.name and len(block.step_seconds) > 1]
    steps_seen = min((block.steps for block in first), default=0)
    if len(first) < len(calm.profile.ranks) or steps_seen < _MIN_STEPS:
        return None
    slowest = max(first, key=lambda block: block.seconds / block.steps)
    step = mean_interval(slowest.step_seconds)
    doubt = max(
        (each.doubt for key in calm.lost if key[1] == UNTOUCHED.name for each in calm.lost[key].values()), default=0
    )
    low, high = _end(step.low, step.value) - doubt, _end(step.high, step.value) + doubt
    least = min(_end(each.low, each.value) for each in against.values())
    most = max(_end(each.high, each.value) for each in against.values())
    beyond = max(0.0, low - most) or min(0.0, high - least)
    if beyond > 0 and "cold" not in against and _reads(slowest):
        beyond = 0.0
    nearest = (
        max(against.values(), key=lambda each: each.value)
        if beyond > 0
        else min(against.values(), key=lambda each: each.value)
    )
    difference = step.value - nearest.value if beyond else 0.0
    waited = None if slowest.wait_seconds is None else slowest.wait_seconds / slowest.steps
    return AsTyped(
        step=step.model_copy(update={"low": low, "high": high}),
        beyond=beyond,
        share=difference / nearest.value,
        waited=waited,
        cause=_cause(calm.profile, slowest, difference, next(iter(reversed(against))), rounds) if beyond else "",
    )


def _end(end: float | None, value: float) -> float:
    return value if end is None else end


def _reads(block: Block) -> bool:
    return (block.disk_bytes or 0) > _READ_BYTES * block.steps


def _cause(profile: Profile, first: Block, difference: float, name: str, rounds: Sequence[int]) -> str:
    """The part of a step whose difference explains half of that of the step."""
    later = [b for b in profile.blocks if b.rung == name and b.rank == first.rank and b.round in rounds]
    steps = sum(block.steps for block in later)
    if not steps:
        return ""
    found = {
        "waiting for the loader": (first.wait_seconds, sum(block.wait_seconds or 0.0 for block in later)),
        "processor time of the training thread": (
            first.thread_cpu_seconds, sum(block.thread_cpu_seconds or 0.0 for block in later)
        ),
        "processor time of its other threads": (
            (first.cpu_seconds or 0.0) - (first.thread_cpu_seconds or 0.0),
            sum((block.cpu_seconds or 0.0) - (block.thread_cpu_seconds or 0.0) for block in later),
        ),
    }  # fmt: skip
    parts = {text: (was or 0.0) / first.steps - now / steps for text, (was, now) in found.items()}
    text = max(parts, key=lambda each: parts[each] * (1 if difference > 0 else -1))
    return text if parts[text] / difference >= 0.5 else ""
