"""What happened in spot training, as records: runs, rehearsals, learned curves; what a loss means in all of them.

Holds what happened, not what it means. Seconds count from the moment the training's coordinator began; ``None`` means
"not known".
"""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from stash.core.records.base import Count, Number, PlainName, Record, Sentence
from stash.spot.fleet_records import AtLeastOne, LearnedRange, LossCurve, NonNegative, Positive

SPOT_LOG_SCHEMA = 1
SPOT_LOG_SUFFIX = ".spotlog.json"
SpotGround = Literal["testbed", "local"]
_MAX_LOSS = 1e18
_SHORTEST = 1e-6
"""Seconds of a stretch: clocks of two machines agree no better."""


def _finite(loss: Any) -> Any:
    return None if isinstance(loss, float) and not abs(loss) <= _MAX_LOSS else loss


RunLoss = Annotated[Number | None, BeforeValidator(_finite)]
"""``None`` where it was no number, or is too large to compute with: training may diverge."""


class SpotEvent(Record):
    """One thing that happened."""

    at: NonNegative | None
    what: PlainName
    """``joined``, ``notice``, ``wanted``, ``left``, ``lost``, ``server lost``, ``checkpoint`` …"""
    who: PlainName = ""
    type: PlainName | None = None
    instead_of: PlainName | None = None
    seconds: Number | None = None
    """Of notice, or that a checkpoint took."""
    leases: Count | None = None
    """That a lost worker left to others."""
    samples: Count | None = None
    """To be trained on again by a server that was set back."""
    told: tuple[Sentence, ...] = ()


class SpotUpdates(Record):
    """All updates, one entry each in every column."""

    seconds: tuple[NonNegative, ...] = ()
    worker: tuple[PlainName, ...] = ()
    samples: tuple[Count, ...] = ()
    staleness: tuple[Count, ...] = ()
    """Updates that others made in between."""
    loss: tuple[RunLoss, ...] = ()
    """Before the update."""

    @model_validator(mode="after")
    def _check_lengths(self) -> SpotUpdates:
        lengths = {len(getattr(self, name)) for name in type(self).model_fields}
        if len(lengths) > 1:
            raise ValueError("updates: the columns are not equally long")
        return self


class SpotStretch(Record):
    """A time in which no worker came or went, of a log that an older Stash wrote."""

    start: NonNegative
    stop: Number
    workers: dict[PlainName, Count]
    """By type."""
    updates: Count
    predicted: Annotated[Number, Field(ge=1e-9)] | None
    """Updates per second; ``None`` where nothing was predicted."""

    @model_validator(mode="after")
    def _takes_time(self) -> SpotStretch:
        if self.stop - self.start < _SHORTEST:
            raise ValueError(f"it ends {self.stop - self.start:g} s after it starts")
        return self

    @property
    def observed_rate(self) -> float:
        """Updates per second."""
        return self.updates / (self.stop - self.start)


class SpotTakeover(Record):
    """One that went, and who came for it."""

    gone: PlainName
    successor: PlainName | None
    notice: Number | None
    """Seconds of notice that it had; ``None``: it vanished."""
    decided_seconds: Number | None
    """From the notice, or from when it was found missing, to the decision."""
    noticed_seconds: Number | None
    """From the last sign of life of what vanished until it was found missing."""
    joined_seconds: Number | None
    """From the decision until the successor had joined; ``None`` if it had not before the end."""


class LeaseBooks(Record):
    """How the ledger stood at the end, in samples."""

    issued: Count
    done: Count
    out: Count
    """Leases."""
    waiting: Count
    """Leases."""
    reissued: Count
    repeated: Count
    wrong: Sentence | None
    """What the audit found; ``None``: no lease lost, none doubled."""


class SpotLog(Record):
    """One run."""

    log_schema: int = SPOT_LOG_SCHEMA
    stash_version: PlainName
    created: PlainName
    plan: str
    job: str
    on: SpotGround
    slower: Positive
    """How many times slower than planned everything was emulated; 1 on real machines."""
    servers: Count
    reason: Sentence
    """Why it ended."""
    seconds: Number | None
    """From the first update to the last; ``None`` if there were no two."""
    loss: RunLoss
    """Running mean at the end."""
    loss_window: Count
    """Updates that it is taken over."""
    stretches: tuple[SpotStretch, ...] = ()
    takeovers: tuple[SpotTakeover, ...] = ()
    events: tuple[SpotEvent, ...] = ()
    updates: SpotUpdates = SpotUpdates()
    books: LeaseBooks | None = None
    """``None`` if it ended too suddenly for that."""
    goal_loss: RunLoss = None
    """What ``--loss`` asked for, else what the plan was made for; ``None`` where it was not kept."""


# How a job's loss falls. A *replay* trains a job on one machine as a fleet would, in virtual time. Losses are running
# means over the last ``window`` updates.

CURVE_SCHEMA = 1
CURVE_SUFFIX = ".curve.json"
MAX_REPLAYED = 256
"""Workers of one replay: each holds a gradient."""


class VirtualWorker(Record):
    """A worker of a replay."""

    samples: AtLeastOne
    """bᵢ: of an iteration."""
    seconds: Positive
    """Tᵢ, in virtual time: what counts is how many times another worker's it is."""


class LossReplay(Record):
    """One fleet's training, replayed."""

    workers: tuple[VirtualWorker, ...] = Field(min_length=1, max_length=MAX_REPLAYED)
    seed: Count
    """Of the order of samples."""
    mean_batch: Positive
    """bw of equation (4)."""
    imbalance: NonNegative
    """R of equation (5)."""
    staleness: NonNegative
    """Updates that others made while a gradient was computed: the mean."""
    updates: tuple[Count, ...] = Field(min_length=2, max_length=100_000)
    losses: tuple[Number, ...]
    """After so many updates."""
    seconds: NonNegative
    """That the replay took on its machine."""

    @model_validator(mode="after")
    def _is_a_course(self) -> LossReplay:
        if len(self.updates) != len(self.losses):
            raise ValueError("updates and losses: they are not equally many")
        if any(later <= earlier for earlier, later in pairwise(self.updates)):
            raise ValueError("updates: they do not grow")
        if not all(map(math.isfinite, self.losses)):
            raise ValueError("losses: one is no number")
        return self


class FittedLoss(Record):
    """A loss curve, and how wrong it was of replays that it had not seen."""

    curve: LossCurve
    error: Number
    """Median of |predicted / replayed − 1| of updates to a loss; 1 where the curve says that it is never reached."""
    worst_error: Number
    """Its 90th percentile."""
    spread: Number | None
    """Standard deviation of ln(predicted / replayed) of updates to a loss; ``None`` if it is not finite."""
    beyond_spread: Number | None
    """``spread`` of the curve without its levels, which is asked for losses below all of them."""


class LearnedCurve(Record):
    """What ``stash spot learn`` found, as ``stash spot plan`` reads it."""

    curve_schema: int = CURVE_SCHEMA
    stash_version: PlainName
    created: PlainName
    job: Sentence
    """File and name."""
    device: PlainName
    """That the replays ran on."""
    batch: AtLeastOne
    """Samples of one GPU in an iteration, as the job has it."""
    samples: AtLeastOne
    """Of the data set."""
    parameters: AtLeastOne
    """Trained ones."""
    parameter_bytes: AtLeastOne
    """S: one way."""
    apply_seconds: NonNegative
    """That the optimizer takes to apply one update to all parameters, on one core of this machine."""
    window: AtLeastOne
    """Updates that a loss is the mean of."""
    seed: Count
    """Of the first parameters, the same in all replays."""
    replays: tuple[LossReplay, ...] = Field(min_length=1, max_length=1000)
    fitted: FittedLoss
    ended: Literal["done", "budget", "interrupted"]
    left_out: tuple[Sentence, ...] = ()
    """Fleets that were not to be replayed to the end, and why."""
    optimizer_bytes: Count
    """Of the optimizer's state for all parameters."""
    buffer_bytes: Count
    """Of what the model keeps and is not trained."""
    largest_bytes: Count
    """Of the largest tensor that is trained."""

    @property
    def learned_range(self) -> LearnedRange:
        """Where the curve was seen."""
        return LearnedRange(
            most_workers=max(len(each.workers) for each in self.replays),
            least_batch=min(each.mean_batch for each in self.replays),
            most_batch=max(each.mean_batch for each in self.replays),
            most_imbalance=max(each.imbalance for each in self.replays),
            most_updates=min(each.updates[-1] for each in self.replays),
            least_loss=max(min(each.losses) for each in self.replays),
        )


LOSS_WINDOW = 50
"""Updates that a loss of spot training is the mean of, wherever one is stated."""


def mean_loss(updates: Collection[tuple[float, int]]) -> float:
    """The running loss: the mean by samples of (loss, samples) of each update; one sample at least."""
    return sum(loss * samples for loss, samples in updates) / sum(samples for _, samples in updates)
