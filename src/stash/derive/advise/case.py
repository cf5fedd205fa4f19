"""What remedies are made of: the case at hand, with the few numbers several of them share, and a remedy.

Knows how to read a breakdown and its profile together; which remedy fits is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from stash.base.ladder import DATA_STALLS
from stash.base.records import Loader, Profile
from stash.derive.advise.gains import gain
from stash.derive.predict.whatif.base import Base
from stash.derive.predict.whatif.changes import Alteration
from stash.derive.predict.whatif.forecasting import AS_IT_IS, base_of
from stash.derive.stalls.breakdown import Breakdown
from stash.derive.stalls.missing import ranks_per_node
from stash.derive.stalls.step_times import mean_over_rounds, rank_values

LARGER_BATCH = "the effective batch grows, so tune the learning rate again"
"""What it costs to put more samples into a step."""


@dataclass(frozen=True)
class Remedy:
    """Something to do, without a full stop, the seconds per step it saves, and what it costs."""

    text: str
    saves: float | None = None
    cost: str | None = None
    """What else changes, where the job's result may: a clause."""
    per_sample: bool = False
    """Steps become longer, of more samples: ``saves`` is for as many samples as a step has now."""
    name: str = ""
    """What programs know it by, where one has to (``bench/remedies.py``); texts change."""
    asks: Alteration | None = None
    """The question to ``stash whatif`` whose answer ``saves`` is; ``None`` where it is no such question."""


@dataclass(frozen=True)
class Case:
    """A breakdown with its profile, and the few numbers several remedies share."""

    breakdown: Breakdown
    profile: Profile
    removed: str | None = None
    """A stall supposed to be gone already."""
    done: Alteration = AS_IT_IS
    """What is supposed to be done already, before any remedy."""

    @cached_property
    def base(self) -> Base:
        """What every forecast from the profile starts with."""
        return base_of(self.profile, self.breakdown)

    def saves(self, wanted: Alteration = AS_IT_IS, less: Mapping[str, float] | None = None) -> float | None:
        """Seconds that a remedy saves, see ``gains``."""
        return gain(self.base, wanted, {**self._gone, **(less or {})}, self.done)

    @property
    def _gone(self) -> dict[str, float]:
        return {} if self.removed is None else {self.removed: self.seconds(self.removed)}

    @property
    def busy_seconds(self) -> float:
        """What the devices need for a step, exchange included, if no data were waited for."""
        idle = {*DATA_STALLS, self.removed}
        return sum(stall.seconds for stall in self.breakdown.stalls if stall.name not in idle)

    @property
    def loader_seconds(self) -> float | None:
        """What the loaders alone need for a step's batches, files in the page cache."""
        samples, rate = self.breakdown.samples_per_step, self.breakdown.rates.prep
        return samples / rate if samples and rate else None

    def seconds(self, *stalls: str) -> float:
        return self.breakdown.seconds(*stalls)

    @property
    def on_cpu(self) -> bool:
        return all(rank.device == "cpu" for rank in self.profile.ranks)

    @property
    def loader(self) -> Loader | None:
        return self.profile.workload.loaders[0] if self.profile.workload.loaders else None

    @property
    def cores_per_rank(self) -> float | None:
        """Of the node where cores are scarcest."""
        counts = ranks_per_node(self.profile)
        shares = [
            host.cores / counts[node]
            for node, host in enumerate(self.profile.hosts)
            if host.cores and counts.get(node)
        ]
        return min(shares, default=None)

    def block_mean(self, field: str, rung: str) -> float | None:
        """Mean per step of a block's field under ``rung``, of the rank with most; ``None`` if unknown."""
        values = rank_values(self.profile, lambda block: getattr(block, field))
        rounds = sorted({number for number, name in values if name == rung})
        return mean_over_rounds(values, rung, rounds)
