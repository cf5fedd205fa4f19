"""Whether steps have become slower than they were: a test of slices of training, one after the other. Pure.

A *slice* is 2.5 seconds of training and three steps at least. Its reference is the run's own steady start, or a
profile. A stall has risen if in each of three slices in a row it is longer than it was by more than 5 % of the step
and four times what slices usually differ by, and the step has risen by as much, and by more than the rise's own
interval; it has ended if in three in a row it is longer by less than half of that. Four standard deviations of
three independent slices are once in 10^13; real jitter has heavier tails and remembers, so how often healthy runs
raise an alert was counted (``bench.watch``).

What the training thread was kept from running (its run-queue delay) is taken out of both before the test: other work
on the machine is told of, and is no change of the job. Checkpoints and validation, between steps, are left out.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from stash.monitor.accounting import STALL_OF, StepAccount

SLICE_SECONDS, SLICE_STEPS = 2.5, 3
TESTED = ("compute", "contention", "transfer", "exchange", "input")
_IN_A_ROW = 3
_LEAST_SHARE = 0.05
_DEVIATIONS = 4.0
_WINDOWS_A_MINUTE, _GROWS, _GROWS_OF_STEP = 6, 0.5, 0.1
_SKIPPED, _REFERENCE = 1, 6
"""Slices of warming up, and of the steady start at least."""
_MAX_START = 80
"""Slices after which the start is taken as it is."""
_STEADY = 0.10
"""Slices of a steady start do not differ by more from their median."""
_KEPT = 240
"""Healthy slices by which it is judged how much they differ: ten minutes."""
_ALIKE = 0.5
"""A stage that takes longer on every rank, by this part of what it does on the worst, is no single rank's."""


@dataclass(frozen=True)
class Slice:
    """A few seconds of training."""

    first_step: int
    last_step: int
    account: StepAccount
    ended: float = 0.0
    """When its last step ended (Unix time)."""
    saved_step: int | None = None
    """The last of its steps before which a checkpoint was saved."""


@dataclass(frozen=True)
class StallChange:
    """A stall that has risen, or has come back."""

    stall: str
    step: int
    """The first of the slices that show it."""
    seconds: float
    """By which a step is longer."""
    plus_minus: float
    """95 %, by how slices differ."""
    ratio: float
    """Of the step to what it was."""
    rank: int | None
    """Whose stage grew; ``None``: all ranks', or of the exchange."""
    stage: str | None
    ended: bool = False


_TestedSlice = tuple[Slice, dict[str, float]]


class ChangeTest:
    """Takes one slice after the other; ``known``: stalls of a profile, by name, with ``step``, if there is one.

    A stall that the profile does not know is held against the run's own start.
    """

    def __init__(self, known: Mapping[str, float] | None = None) -> None:
        self._known = known or {}
        self.reference: dict[str, float] = {}
        """Seconds of stalls and ``step`` before any change; none until the run was steady."""
        self._healthy: dict[str, deque[float]] = {
            name: deque(maxlen=_KEPT) for name in (*TESTED, "step")
        }
        self._start: deque[_TestedSlice] = deque(maxlen=_REFERENCE)
        self._seen = 0
        self._ranks: dict[int, dict[str, float]] = {}
        """Each rank's stages in the steady start."""
        self._recent: deque[_TestedSlice] = deque(maxlen=_IN_A_ROW)
        self._open: dict[str, StallChange] = {}

    def add_slice(self, slice: Slice) -> list[StallChange]:
        """What has begun or ended with this slice."""
        values = correct_stalls(slice.account)
        if not self.reference:
            if values["step"] > 0:  # else it only waited for a core
                self._learn_start(slice, values)
            return []
        self._recent.append((slice, values))
        found = [change for name in TESTED if (change := self._judge(name)) is not None]
        if not self._open:
            for name, kept in self._healthy.items():
                kept.append(values[name])
        return found

    def _learn_start(self, slice: Slice, values: dict[str, float]) -> None:
        self._seen += 1
        if self._seen > _SKIPPED:
            self._start.append((slice, values))
        steps = np.array([each["step"] for _, each in self._start])
        if len(steps) < _REFERENCE:
            return
        if np.abs(steps / np.median(steps) - 1).max() > _STEADY and self._seen < _MAX_START:
            return
        for name, kept in self._healthy.items():
            kept.extend(each[name] for _, each in self._start)
            self.reference[name] = self._known.get(name, float(np.median(kept)))
        self._ranks = {
            rank: {stage: float(np.median(_seconds_of(self._start, rank, stage))) for stage in own}
            for rank, own in slice.account.ranks.items()
        }

    def _judge(self, name: str) -> StallChange | None:
        if len(self._recent) < _IN_A_ROW:
            return None
        step = self.reference["step"]
        scatter = _robust_deviation(self._healthy[name])
        least = max(_LEAST_SHARE * step, _DEVIATIONS * scatter)
        whole = max(_LEAST_SHARE * step, _DEVIATIONS * _robust_deviation(self._healthy["step"]))
        rises = [values[name] - self.reference[name] for _, values in self._recent]
        steps = [values["step"] - step for _, values in self._recent]
        first = self._recent[0][0]
        if name in self._open:
            if max(rises) >= least / 2:
                return None
            began = self._open.pop(name)
            return StallChange(
                name, first.first_step, 0.0, 0.0, 1.0, began.rank, began.stage, ended=True
            )
        if min(rises) <= least or min(steps) <= min(least, whole):
            return None
        begins, *full = rises  # the first slice may have begun before: it tells since when
        seconds = float(np.mean(full))
        since = (
            first.last_step
            + 1
            - round(min(1.0, begins / seconds) * (first.last_step + 1 - first.first_step))
        )
        spread = max(float(np.std(full, ddof=1)), scatter)
        plus_minus = 1.96 * spread * (1 / len(full) + 1 / len(self._start)) ** 0.5
        if plus_minus >= seconds:
            return None
        ratio = 1 + float(np.mean(steps[1:])) / step
        self._open[name] = StallChange(
            name, since, seconds, plus_minus, ratio, *self._find_cause(name)
        )
        return self._open[name]

    def _find_cause(self, name: str) -> tuple[int | None, str | None]:
        """The rank and its stage that grew most since the steady start, of those that make up this stall."""
        if name == "exchange":
            return None, None
        growth = {
            stage: {
                rank: float(np.mean(now)) - before[stage]
                for rank, before in self._ranks.items()
                if (now := _seconds_of(self._recent, rank, stage))
            }
            for stage, stall in STALL_OF.items()
            if stall == ("compute" if name == "contention" else name)
        }
        stage = max(growth, key=lambda each: max(growth[each].values(), default=0.0))
        by_rank = growth[stage]
        if not by_rank:
            return None, stage
        rank = max(by_rank, key=lambda each: by_rank[each])
        alike = len(by_rank) > 1 and min(by_rank.values()) > _ALIKE * by_rank[rank]
        if (
            name == "compute" and len(by_rank) > 1
        ):  # of the rank in the middle: one rank's alone is contention
            return None, stage if alike else None
        return (None if alike else rank), stage


def _seconds_of(slices: Iterable[_TestedSlice], rank: int, stage: str) -> list[float]:
    """A rank's seconds of a stage in each of the slices that have the rank."""
    return [each.account.ranks[rank][stage] for each, _ in slices if rank in each.account.ranks]


def _robust_deviation(healthy: Collection[float]) -> float:
    """Robust standard deviation of healthy slices."""
    values = np.asarray(healthy)
    return float(1.4826 * np.median(np.abs(values - np.median(values))))


@dataclass(frozen=True)
class SlowGrowth:
    """What lies between steps takes longer and longer."""

    step: int
    """The first of the minute that showed it."""
    before: float
    """Seconds of a step in the first minute."""
    now: float
    ratio: float
    """Of the step to what it was."""


class GrowthTest:
    """Takes windows, and tells once that what lies between steps grows: metrics over all that was seen, say.

    Of each minute the shortest window counts, since validation and saving come now and then. It grows if it has in
    three minutes in a row, by half of what it was and a tenth of the step.
    """

    def __init__(self) -> None:
        self._minutes: list[tuple[int, float]] = []
        """Of each its first step, and the least that lay between steps."""
        self._held: list[tuple[int, float]] = []
        self._step = 0.0
        self.is_told = False

    def add_window(self, first_step: int, between: float, step: float) -> SlowGrowth | None:
        """The next window: seconds of a step ``between`` steps, and of the whole ``step``."""
        self._held.append((first_step, between))
        if len(self._held) < _WINDOWS_A_MINUTE or self.is_told:
            return None
        held = self._held
        self._held = []
        if not self._minutes:
            self._step = step
        self._minutes.append((held[0][0], min(seconds for _, seconds in held)))
        first = self._minutes[0][1]
        last = [seconds for _, seconds in self._minutes[-_IN_A_ROW - 1 :]]
        rise = last[-1] - first
        is_rising = len(last) > _IN_A_ROW and all(b > a for a, b in itertools.pairwise(last))
        if not is_rising or rise < max(_GROWS * first, _GROWS_OF_STEP * self._step):
            return None
        self.is_told = True
        return SlowGrowth(held[0][0], first, last[-1], (self._step + rise) / self._step)


def correct_stalls(account: StepAccount) -> dict[str, float]:
    """Seconds of ``TESTED`` stalls and of the ``step`` without what lies between, less the delay of the last rank.

    The delay is taken out of compute and contention of the rank that has most of it: where the thread waits, in input
    or exchange, it has no use for a core.
    """
    values = {name: account.seconds[name] for name in TESTED}
    delays = list(account.delays.values())
    shared, own = (min(delays), max(delays) - min(delays)) if delays else (0.0, 0.0)
    values["compute"] -= min(shared, values["compute"])
    values["contention"] -= min(own, max(0.0, values["contention"]))
    values["step"] = sum(values.values())
    return values
