"""How a job's loss falls, as it was learned: the fleets that were replayed, the forms that were fitted, how they err.

A *replay* trains a job on one machine as a fleet would, in virtual time. Holds numbers; what they mean is
``derive/spot/loss/convergence.py``'s business. Losses are running means over the last ``window`` updates.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from stash.base.records.base import Count, Number, PlainName, Record, Sentence
from stash.base.spot.fleets import LearnedRange, LossCurve
from stash.base.stats.intervals import Interval

CURVE_SCHEMA = 1
CURVE_SUFFIX = ".curve.json"
LossForm = Literal["printed", "shipped", "free", "levels"]
"""Of equation (3): with R, as printed; without, as √N, as shipped; without R and with exponents of its own; and no
form at all: a power law in N and bw for each loss that was seen."""
MOST_REPLAYED = 256
"""Workers of one replay: each holds a gradient."""


class VirtualWorker(Record):
    """A worker of a replay."""

    samples: int = Field(ge=1)
    """bᵢ: of an iteration."""
    seconds: Number = Field(gt=0)
    """Tᵢ, in virtual time: what counts is how many times another worker's it is."""


class LossReplay(Record):
    """One fleet's training, replayed."""

    workers: tuple[VirtualWorker, ...] = Field(min_length=1, max_length=MOST_REPLAYED)
    bound: Count | None
    """Iterations that a worker may be ahead of the slowest; ``None``: any number."""
    seed: Count
    """Of the order of samples."""
    mean_batch: Number = Field(gt=0)
    """bw of equation (4)."""
    imbalance: Annotated[Number, Field(ge=0)]
    """R of equation (5)."""
    staleness: Annotated[Number, Field(ge=0)]
    """Updates that others made while a gradient was computed: the mean."""
    updates: tuple[Count, ...] = Field(min_length=2, max_length=100_000)
    losses: tuple[Number, ...]
    """After so many updates."""
    seconds: Annotated[Number, Field(ge=0)]
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


class LossSpread(Record):
    """How sure the updates to a loss are."""

    loss: Number
    spread: Annotated[Number, Field(ge=0)]
    """Standard deviation of ln(predicted / replayed)."""


class FittedLoss(Record):
    """One form of equation (3), and how wrong it was of replays that it had not seen."""

    form: LossForm
    curve: LossCurve
    intervals: dict[PlainName, Interval]
    """Of each coefficient by name: 95 % of what other choices among the replayed fleets would have given."""
    loss_error: Number
    """Median of |predicted / replayed − 1| of losses after so many updates."""
    error: Number
    """The same of updates to a loss: what a plan asks for; 1 where the form says that it is never reached."""
    worst_error: Number
    """Its 90th percentile."""
    spread: Number | None
    """Standard deviation of ln(predicted / replayed) of updates to a loss; ``None`` if it is not finite."""
    spreads: tuple[LossSpread, ...] = Field((), max_length=1000)
    """The same of each loss that was judged, the highest first; none if one is not finite."""


class LearnedCurve(Record):
    """What ``stash spot learn`` found, as ``stash spot plan`` reads it."""

    curve_schema: int = CURVE_SCHEMA
    stash_version: PlainName
    created: PlainName
    job: Sentence
    """File and name."""
    device: PlainName
    """That the replays ran on."""
    batch: int = Field(ge=1)
    """Samples of one GPU in an iteration, as the job has it."""
    samples: int = Field(ge=1)
    """Of the data set."""
    parameters: int = Field(ge=1)
    """Trained ones."""
    parameter_bytes: int = Field(ge=1)
    """S: one way."""
    apply_seconds: Annotated[Number, Field(ge=0)]
    """That the optimizer takes to apply one update to all parameters, on one core of this machine."""
    window: int = Field(ge=1)
    """Updates that a loss is the mean of."""
    seed: Count
    """Of the first parameters, the same in all replays."""
    replays: tuple[LossReplay, ...] = Field(min_length=1, max_length=1000)
    forms: tuple[FittedLoss, ...] = Field(min_length=1)
    """The one that erred least in updates to a loss first."""
    ended: Literal["done", "budget", "interrupted"]
    left_out: tuple[Sentence, ...] = ()
    """Fleets that were not to be replayed to the end, and why."""
    optimizer_bytes: Count | None = None
    """Of the optimizer's state for all parameters; ``None`` in curves of earlier versions, as the next two."""
    buffer_bytes: Count | None = None
    """Of what the model keeps and nobody trains."""
    largest_bytes: Count | None = None
    """Of the largest tensor that is trained."""

    @property
    def best(self) -> FittedLoss:
        return self.forms[0]

    @property
    def learned(self) -> LearnedRange:
        """Where the curve was seen."""
        return LearnedRange(
            most_workers=max(len(each.workers) for each in self.replays),
            least_batch=min(each.mean_batch for each in self.replays),
            most_batch=max(each.mean_batch for each in self.replays),
            most_imbalance=max(each.imbalance for each in self.replays),
            most_updates=min(each.updates[-1] for each in self.replays),
            least_loss=max(min(each.losses) for each in self.replays),
            bound=self.replays[0].bound,
        )
