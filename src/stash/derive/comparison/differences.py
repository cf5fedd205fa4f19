"""Two sides of one or more profiles each, line by line: the step, every stall, the rate; and whether one is slower.

A difference counts as shown only if its whole interval lies on one side of zero, and "no difference shown" never
means that there is none. Knows breakdowns; whether they are of the same job is ``facts``' to say.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.ladder import STALLS
from stash.base.records import Record
from stash.base.stats.differences import change, together
from stash.base.stats.intervals import Interval
from stash.derive.stalls import Breakdown

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
