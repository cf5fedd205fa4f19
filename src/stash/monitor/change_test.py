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
from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass
class _Level:
    """One quantity: what it was, how it scatters, and the slices in a row that are above."""

    reference: float | None = None
    healthy: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))

    @property
    def scatter(self) -> float:
        """Robust standard deviation of healthy slices."""
        values = np.asarray(self.healthy)
        return float(1.4826 * np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


class ChangeTest:
    """Takes one slice after the other; ``known``: stalls of a profile, by name, with ``step``, if there is one.

    A stall that the profile does not know is held against the run's own start.
    """

    def __init__(self, known: Mapping[str, float] | None = None) -> None:
        self._known = known
        self._levels = {name: _Level() for name in (*TESTED, "step")}
        self._start: deque[tuple[Slice, dict[str, float]]] = deque(maxlen=_REFERENCE)
        self._seen = 0
        self._ranks: dict[int, dict[str, float]] = {}
        """Each rank's stages in the steady start."""
        self._recent: deque[tuple[Slice, dict[str, float]]] = deque(maxlen=_IN_A_ROW)
        self._open: dict[str, StallChange] = {}

    @property
    def reference(self) -> dict[str, float] | None:
        """Seconds of stalls and ``step`` before any change; ``None`` until the run was steady."""
        if self._levels["step"].reference is None:
            return None
        return {name: level.reference or 0.0 for name, level in self._levels.items()}

    def take(self, slice: Slice) -> list[StallChange]:
        """What has begun or ended with this slice."""
        values = corrected(slice.account)
        if self._levels["step"].reference is None:
            if values["step"] > 0:  # else it only waited for a core
                self._learn(slice, values)
            return []
        self._recent.append((slice, values))
        found = [change for name in TESTED if (change := self._judge(name)) is not None]
        if not self._open:
            for name, level in self._levels.items():
                level.healthy.append(values[name])
        return found

    def _learn(self, slice: Slice, values: dict[str, float]) -> None:
        self._seen += 1
        if self._seen <= _SKIPPED:
            return
        self._start.append((slice, values))
        steps = np.array([each["step"] for _, each in self._start])
        middle = float(np.median(steps))
        steady = len(steps) == _REFERENCE and np.abs(steps / middle - 1).max() <= _STEADY
        if len(steps) < _REFERENCE or (not steady and self._seen < _MAX_START):
            return
        for name, level in self._levels.items():
            own = [each[name] for _, each in self._start]
            level.reference = (self._known or {}).get(name, float(np.median(own)))
            level.healthy.extend(own)
        accounts = [each.account for each, _ in self._start]
        self._ranks = {
            rank: {
                stage: float(np.median([a.ranks[rank][stage] for a in accounts if rank in a.ranks])) for stage in own
            }
            for rank, own in accounts[-1].ranks.items()
        }

    def _judge(self, name: str) -> StallChange | None:
        if len(self._recent) < _IN_A_ROW:
            return None
        level, step = self._levels[name], self._levels["step"]
        assert level.reference is not None
        assert step.reference is not None
        least = max(_LEAST_SHARE * step.reference, _DEVIATIONS * level.scatter)
        whole = max(_LEAST_SHARE * step.reference, _DEVIATIONS * step.scatter)
        rises = [values[name] - level.reference for _, values in self._recent]
        steps = [values["step"] - step.reference for _, values in self._recent]
        if name not in self._open and min(rises) > least and min(steps) > min(least, whole):
            rank, stage = self._cause(name)
            change = self._change(name, rises, steps, rank, stage)
            if change.plus_minus >= change.seconds:
                return None
            self._open[name] = change
            return change
        if name in self._open and max(rises) < least / 2:
            began = self._open.pop(name)
            return StallChange(
                name, self._recent[0][0].first_step, 0.0, 0.0, 1.0, began.rank, began.stage, ended=True
            )
        return None

    def _change(
        self, name: str, rises: list[float], steps: list[float], rank: int | None, stage: str | None
    ) -> StallChange:
        first, full = self._recent[0][0], float(np.mean(rises[1:]))
        # of the first slice, which may have begun before
        share = min(1.0, max(0.0, rises[0] / full)) if full > 0 else 1.0
        since = first.last_step + 1 - round(share * (first.last_step + 1 - first.first_step))
        rises, steps = rises[1:], steps[1:]
        reference = self._levels["step"].reference or 0.0
        spread = max(float(np.std(rises, ddof=1)), self._levels[name].scatter)
        plus_minus = 1.96 * spread * (1 / len(rises) + 1 / max(1, len(self._start))) ** 0.5
        ratio = (reference + float(np.mean(steps))) / reference if reference else 1.0
        return StallChange(name, since, full, plus_minus, ratio, rank, stage)

    def _cause(self, name: str) -> tuple[int | None, str | None]:
        """The rank and its stage that grew most since the steady start, of those that make up this stall."""
        if name == "exchange":
            return None, None
        accounts = [each.account for each, _ in self._recent]
        growth = {
            stage: {
                rank: float(np.mean([a.ranks[rank][stage] for a in accounts if rank in a.ranks])) - before[stage]
                for rank, before in self._ranks.items()
                if any(rank in a.ranks for a in accounts)
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
        if name == "compute" and len(by_rank) > 1:  # of the rank in the middle: one rank's alone is contention
            return None, stage if alike else None
        return (None if alike else rank), stage


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

    def take(self, first_step: int, between: float, step: float) -> SlowGrowth | None:
        """The next window: seconds of a step ``between`` steps, and of the whole ``step``."""
        self._held.append((first_step, between))
        if len(self._held) < _WINDOWS_A_MINUTE or self.is_told:
            return None
        held, self._held = self._held, []
        if not self._minutes:
            self._step = step
        self._minutes.append((held[0][0], min(seconds for _, seconds in held)))
        first, last = self._minutes[0][1], [seconds for _, seconds in self._minutes[-_IN_A_ROW - 1 :]]
        rise = last[-1] - first
        is_rising = len(last) > _IN_A_ROW and all(b > a for a, b in itertools.pairwise(last))
        if not is_rising or rise < max(_GROWS * first, _GROWS_OF_STEP * self._step):
            return None
        self.is_told = True
        return SlowGrowth(held[0][0], first, last[-1], (self._step + rise) / self._step)


def corrected(account: StepAccount) -> dict[str, float]:
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
