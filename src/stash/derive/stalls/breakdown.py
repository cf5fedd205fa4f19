"""What is derived from a profile, as frozen records: the breakdown of a step.

Times are in seconds per step, rates in samples per second of the whole job; ``None`` means "not known"
and is never written as zero. Nothing here is ever saved as if it had been measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import model_validator

from stash.base.errors import StashError
from stash.base.ladder import NAMES, stall_names
from stash.base.records import Record
from stash.base.stats.intervals import Interval

SIGNIFICANT_SHARE = 0.03
"""A stall smaller than this share of the step is not worth a sentence."""
_ROUNDING = 1e-9
"""Of the largest stall: how exactly the stalls add up to the step."""


class Stall(Record):
    """What one rung adds to a step; negative if the measurement says so."""

    name: str
    time: Interval
    """Seconds per step, with their interval; unknown after a single round."""
    share: float
    """Of the step."""

    @property
    def seconds(self) -> float:
        return self.time.value

    @property
    def low(self) -> float | None:
        return self.time.low

    @property
    def high(self) -> float | None:
        return self.time.high

    @property
    def within_noise(self) -> bool:
        """The interval contains zero: this stall may not exist."""
        return self.time.within_noise

    @property
    def significant(self) -> bool:
        """Outside the noise (or its noise is unknown) and at least 3 % of the step."""
        return not self.within_noise and self.share >= SIGNIFICANT_SHARE


class Missing(Record):
    """A stall nobody measured, and why."""

    name: str
    why: str


class Paper(Record):
    """The percentages of the ICDCS 2023 paper, from its formulas; ``None`` where a rung is missing."""

    interconnect_pct: float | None = None
    """(T1 − T0) / T1: all devices of a node against one device, synthetic data."""
    network_pct: float | None = None
    """(T − T1) / T1: all nodes against one node, synthetic data."""
    prep_pct: float | None = None
    """(T3 − T1) / T3: real data, cached, against synthetic data."""
    fetch_pct: float | None = None
    """(T2 − T3) / T2: real data, not cached, against cached."""


class Stability(Record):
    """Whether the numbers deserve trust; each warning says what to do about it."""

    ok: bool
    warnings: tuple[str, ...] = ()


class SlowRank(Record):
    """A rank that holds all others up, found where the ranks run side by side without exchanging anything."""

    rank: int
    seconds: float
    """Its step time under ``crowd``."""
    others_seconds: float
    """The median of the other ranks'."""


class Rates(Record):
    """DS-Analyzer's rates of the whole job in samples per second: a data stall exists if G > min(P, F)."""

    device: float | None = None
    """G: devices and communication, on replayed batches."""
    prep: float | None = None
    """P: the loaders alone, files in the page cache."""
    fetch: float | None = None
    """F: the loaders alone, files not in the page cache."""


class Communication(Record):
    """A step's gradient exchange: by itself, and the part of it that the step had to wait for."""

    total_seconds: float | None = None
    exposed_seconds: float | None = None
    """Interconnect and network stall together."""
    bytes: int | None = None
    """Gradients of one rank, all buckets."""
    wire_bytes_per_second: float | None = None
    """Bus bandwidth, as nccl-tests defines it: payload / time · 2(p−1)/p."""

    @property
    def hidden_seconds(self) -> float | None:
        """Exchange behind the backward pass, or ``None`` unless both parts are known."""
        if self.total_seconds is None or self.exposed_seconds is None:
            return None
        return self.total_seconds - self.exposed_seconds


class Surfacing(Record):
    """A stall hidden behind another: what appears once ``removed`` is gone."""

    removed: str
    appears: str
    seconds: float


class Breakdown(Record):
    """The stalls of one step of the whole job; their ``seconds`` add up to ``step_seconds``.

    Checks itself: one whose stalls do not add up, do not belong to its rungs or lie outside their own intervals is
    never made, and StashError says what contradicts what.
    """

    source: str = "the profile"
    """What it is a breakdown of, to be named in errors: a file, or a job."""
    step_seconds: float
    samples_per_second: float | None
    rounds: int
    """Kept."""
    rounds_dropped: int
    world_size: int
    nodes: int
    rungs: tuple[str, ...]
    """Climbed, in ladder order, one per stall."""
    stalls: tuple[Stall, ...]
    skipped: tuple[Missing, ...]
    paper: Paper
    stability: Stability
    rates: Rates
    communication: Communication
    slow_rank: SlowRank | None = None
    surfacing: tuple[Surfacing, ...] = ()
    startup_seconds: float | None = None
    """Starting the loader's workers, once per iteration over the data set unless they persist."""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Breakdown:
        contradiction = next(self._contradictions(), None)
        if contradiction is not None:
            raise StashError(f"the breakdown of {self.source} contradicts itself: {contradiction}; please report it")
        return self

    def _contradictions(self) -> Iterator[str]:
        names = tuple(stall.name for stall in self.stalls)
        if self.rungs != tuple(name for name in NAMES if name in self.rungs):
            yield f"its rungs ({', '.join(self.rungs)}) are not in the ladder's order"
        elif not self.rungs or names != stall_names(self.rungs):
            yield f"its stalls ({', '.join(names)}) are not those of its rungs ({', '.join(self.rungs)})"
        for stall in self.stalls:
            if not stall.time.holds_itself:
                yield f"{stall.name} ({stall.seconds:g} s) is not within its interval, {stall.low} to {stall.high} s"
        together, largest = self.seconds(*names), max((abs(stall.seconds) for stall in self.stalls), default=0.0)
        if not abs(together - self.step_seconds) <= _ROUNDING * largest:
            yield f"its stalls add up to {together:g} s and its step takes {self.step_seconds:g} s"

    def stall(self, name: str) -> Stall | None:
        """The stall called ``name``, if it was measured."""
        return next((stall for stall in self.stalls if stall.name == name), None)

    def seconds(self, *names: str) -> float:
        """Seconds of the named stalls together; those not measured add nothing."""
        return sum(stall.seconds for stall in self.stalls if stall.name in names)
