"""Asynchronous training on rented machines: what may be rented, what was measured, what was fitted, what was chosen.

A *fleet* is workers of several types that train one model through parameter servers. Holds numbers, not models: how
long an iteration takes and how loss falls is ``spot/model``'s business. Seconds, bytes, US dollars per hour;
``None`` means "not known". The symbols are those of spotDNN (Shang et al., IWQoS 2023).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stash.core.errors import UnitError
from stash.core.intervals import Interval
from stash.core.records.base import Count, Number, PlainName, Record, Sentence
from stash.core.units import parse_bytes, parse_interruptions, parse_rate
from stash.core.user_files import quantity

FLEET_SCHEMA = 1
FLEET_MODEL_SUFFIX = ".fleet.json"
RentalMarket = Literal["spot", "on-demand"]
MAX_WORKERS = 100_000
NonNegative = Annotated[Number, Field(ge=0)]
Positive = Annotated[Number, Field(gt=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
_Dollars = Annotated[Number, Field(ge=0, le=1e6)]
# In files people write units; a plain number is one of bytes, or of bytes a second.
_Bytes = Annotated[Number, quantity(parse_bytes, bare=True), Field(gt=0)]
_Rate = Annotated[Number, quantity(parse_rate, bare=True), Field(gt=0)]


class InterruptionBand(Record):
    """Between how many revocations a machine is, an hour of being there; the ends are equal where it is a rate."""

    low: Annotated[Number, Field(ge=0, le=1e6)]
    high: Annotated[Number, Field(ge=0, le=1e6)]

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, given: Any) -> Any:
        """As people write it, like ``5-10%/month``."""
        if not isinstance(given, str):
            return given
        try:
            low, high = parse_interruptions(given)
        except UnitError as error:
            raise ValueError(str(error)) from None
        return {"low": low, "high": high}

    @model_validator(mode="after")
    def _check_order(self) -> InterruptionBand:
        if self.high < self.low:
            raise ValueError("interruptions: the band ends before it begins")
        return self


class TypeLife(Record):
    """How long machines of one type live, and how that is known."""

    type: str
    mean_seconds: Number | None
    """``None``: beyond what can be stated."""
    why: Sentence


class FleetRisk(Record):
    """A plan's fleet where machines are revoked."""

    how: Literal["Monte Carlo", "replay"]
    p_deadline: Interval
    """With what the pool says of its own uncertainty."""
    dollars: Interval
    """Mean; a late run is paid until the deadline."""
    revocations: Number
    """Mean, of all machines."""
    runs: Count
    lives: tuple[TypeLife, ...]
    on_demand_dollars: Number | None
    """Of the cheapest fleet on demand that is in time; ``None`` without prices, or if there is none."""
    beyond: tuple[Sentence, ...] = ()
    advice: Sentence
    weighed: Count = 1
    """Fleets whose risk was computed until this one was chosen."""


class WorkerType(Record):
    """One type of machine that may work, and what it does when it works alone."""

    name: str = Field(min_length=1, max_length=100)
    gpus: int = Field(1, ge=1, le=1024)
    """g. Each keeps a copy of the parameters, exchanged over PCIe."""
    batch: Positive
    """b of equation (10): samples of one GPU in an iteration."""
    samples_per_second: Positive
    """Of the machine, alone with the server."""
    quota: int = Field(ge=0, le=MAX_WORKERS)
    """Lim of constraint (14)."""
    dollars_per_hour: _Dollars
    """p, as it would be rented."""
    on_demand_dollars_per_hour: Number | None = Field(None, ge=0, le=1e6)
    interruptions: InterruptionBand | None = None
    """How often it is revoked, as of the pool's date."""
    market: RentalMarket = "spot"
    """How it is rented, and what ``dollars_per_hour`` is the price of: on demand it is never revoked."""

    @property
    def is_on_demand(self) -> bool:
        """Whether it is rented on demand alone."""
        return self.market == "on-demand"

    @property
    def samples(self) -> float:
        """bᵢ = g · b: samples of one iteration."""
        return self.gpus * self.batch

    @property
    def single_seconds(self) -> float:
        """Seconds of one iteration, alone with the server: g · b / speed."""
        return self.samples / self.samples_per_second


class ParameterServers(Record):
    """What keeps the parameters; never spot."""

    count: int = Field(1, ge=1, le=1000)
    bytes_per_second: _Rate
    """Bps, of one server, each way."""
    dollars_per_hour: _Dollars = 0.0
    """Of one."""
    apply_seconds: NonNegative = 0.0
    """To apply one update to all parameters, on one core of one server."""
    cores: int = Field(1, ge=1, le=1024)
    instance: str | None = Field(None, max_length=100)
    """Its type, where a plan is to rent it."""
    memory_bytes: _Bytes | None = None
    """Of one machine."""
    needs_bytes: _Bytes | None = None
    """That training takes of the one that needs most, as predicted."""

    @property
    def is_too_small(self) -> bool:
        """Whether one is known not to hold what it has to."""
        return (
            self.memory_bytes is not None
            and self.needs_bytes is not None
            and self.memory_bytes < self.needs_bytes
        )


class LossLevel(Record):
    """A loss, and the updates it takes: ``updates`` · N^``workers_exponent`` · bw^``batch_exponent``."""

    loss: Number
    updates: Positive
    """Of one worker with one sample."""
    workers_exponent: Annotated[Number, Field(ge=-20, le=20)]
    batch_exponent: Annotated[Number, Field(ge=-20, le=20)]


class LossCurve(Record):
    """γ₁ … γ₅ of equation (3): (γ₂ · bw + γ₃) · N^q / (j + γ₁)^p + γ₅; (3) has p = 1 and q = ½."""

    gamma1: Number
    """Updates."""
    gamma2: Number
    """Loss · updates / sample."""
    gamma3: Number
    """Loss · updates."""
    gamma5: Number
    """The loss that is left after any number of updates."""
    exponent: Annotated[Number, Field(gt=0, le=10)] = 1.0
    """p, of the updates. γ₂ and γ₃ are then in loss · updatesᵖ."""
    workers_exponent: Annotated[Number, Field(ge=-10, le=10)] = 0.5
    """q, of the workers."""
    levels: tuple[LossLevel, ...] = Field((), max_length=1000)
    """Losses that fleets were seen to reach, the highest first: believed within them; beyond them γ₁ … γ₅ are."""

    @model_validator(mode="after")
    def _levels_fall(self) -> LossCurve:
        losses = [each.loss for each in self.levels]
        if any(lower >= higher for higher, lower in pairwise(losses)):
            raise ValueError("levels: their losses do not fall")
        return self


class LearnedRange(Record):
    """Where a loss curve was seen: what lies beyond is extrapolated."""

    most_workers: Count
    least_batch: Number
    most_batch: Number
    """Of mean batches, bw."""
    most_imbalance: Number
    most_updates: Count
    """That all replays reached."""
    least_loss: Number
    """That all replays reached."""


class Uncertainty(Record):
    """Standard deviations, as fractions, of what is predicted around what comes true."""

    speed: Annotated[Number, Field(ge=0, le=2)] = 0.0
    updates: Annotated[Number, Field(ge=0, le=2)] = 0.0


class FleetPool(Record):
    """Everything a choice rests on, from one dated file."""

    as_of: PlainName
    source: Sentence
    exchange_bytes: _Bytes
    """S, one way."""
    worker_bytes_per_second: _Rate
    """Breq: what a single worker uses while it communicates."""
    pcie_bytes_per_second: _Rate
    server: ParameterServers
    loss: LossCurve
    start_seconds: NonNegative = 0.0
    """From the request to the first update; paid."""
    uncertainty: Uncertainty | None = None
    types: tuple[WorkerType, ...] = Field(min_length=1, max_length=2000)
    learned: LearnedRange | None = None
    """Where ``loss`` was seen; ``None`` if unstated."""
    notes: tuple[Sentence, ...] = ()
    """What a reader of a plan has to know of these numbers."""
    cloud: PlainName | None = None
    region: PlainName | None = None
    """Where the prices are of; ``None`` if unstated."""
    randomness: Annotated[Number, Field(ge=0, le=1)] | None = None
    """How workers arrive at the servers, as ``FittedQueue`` has it; ``None``: they were not timed."""

    @property
    def senders(self) -> int:
        """Workers that it takes to fill a server's link, each with what it uses while it communicates."""
        return math.ceil(self.server.bytes_per_second / self.worker_bytes_per_second)

    @model_validator(mode="after")
    def _names_differ(self) -> FleetPool:
        names = [each.name for each in self.types]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"types: there are two called {twice!r}")
        return self


class FleetRun(Record):
    """One measured fleet."""

    servers: int = Field(ge=1, le=1000)
    workers: dict[PlainName, int]
    updates_per_second: Positive

    @property
    def size(self) -> int:
        return sum(self.workers.values())


class SingleWorker(Record):
    """An iteration of one worker alone with its servers."""

    type: PlainName
    servers: AtLeastOne
    seconds: Interval

    @model_validator(mode="after")
    def _takes_time(self) -> SingleWorker:
        if not 0 < self.seconds.value < 1e12:
            raise ValueError(
                f"seconds: an iteration of {self.type} cannot take {self.seconds.value:g} s"
            )
        return self


class FittedQueue(Record):
    """The servers as a queue: what one update keeps one server busy."""

    server_seconds: Positive
    randomness: Annotated[Number, Field(ge=0, le=1)]
    """1: workers arrive at random, as product-form networks have it; 0: they take turns."""
    unsplit: Annotated[Number, Field(ge=0, le=1)]
    """Share of that work that more servers do not divide; 0 where only one number of servers was measured."""


class HeldOut(Record):
    """One measured fleet as a queue fitted to all others predicts it."""

    run: FleetRun
    queue: Number | None


class FleetModel(Record):
    """What ``stash spot fit`` learned, as ``stash spot predict`` reads it."""

    fleet_schema: int = FLEET_SCHEMA
    stash_version: PlainName
    created: PlainName
    source: Sentence
    lone: tuple[SingleWorker, ...]
    queue: FittedQueue
    spread: Number | None
    """Standard deviation of ln(measured / predicted), out of sample; ``None`` if none could be left out."""
    error: Number | None
    """Median of |predicted / measured − 1|, out of sample."""
    judged: tuple[HeldOut, ...]
    runs: tuple[FleetRun, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _servers_are_part_of_it(self) -> FleetModel:
        for each in self.lone:
            if each.seconds.value <= self.queue.server_seconds:
                raise ValueError(
                    f"queue.server_seconds: more than an iteration of {each.type} takes"
                )
        return self


class FleetSpeed(Record):
    """What a fleet is predicted to do."""

    servers: int
    workers: dict[PlainName, int]
    updates_per_second: Number
    low: Number | None
    high: Number | None
    """Ends of the 95 % interval; ``None`` if the error of the model is unknown."""
    beyond: tuple[Sentence, ...] = ()
    """Where it leaves what was measured."""


class CostedFleet(Record):
    """A fleet, and what it would take."""

    workers: dict[PlainName, int]
    """Without those of which there are none."""
    updates: Number
    """j: until the loss is reached."""
    updates_per_second: Number
    mean_batch: Number
    imbalance: Number
    """R."""
    seconds: Number
    """With start-up."""
    dollars: Number
    """With servers and start-up."""
    p_deadline: Number | None
    on_demand: tuple[PlainName, ...] = ()
    """Those of its types that are not spot machines."""


class RunnerUp(Record):
    """A fleet that was not chosen."""

    fleet: CostedFleet
    why: Sentence


class Baseline(Record):
    """What another way of choosing would rent."""

    name: PlainName
    text: Sentence
    fleet: CostedFleet | None
    why: Sentence = ""
    """Why it chooses nothing, or why that does not do."""
    feasible: bool | None = None
    evaluations: Count = 0


class LooserWish(Record):
    """The nearest wish that can be kept, others being as they are."""

    option: Literal["deadline", "loss", "quota", "budget"]
    to: Sentence
    text: Sentence


class FleetPlan(Record):
    """The answer to one ``stash spot plan``."""

    fleet_schema: int = FLEET_SCHEMA
    stash_version: PlainName
    created: PlainName
    deadline_seconds: Number
    loss: Number
    confidence: Number | None
    pool: FleetPool
    chosen: CostedFleet | None
    optimal: bool
    gap: Number | None
    """How much cheaper, as a fraction, another fleet could be at most; 0 if it is optimal; ``None`` with none."""
    evaluations: Count
    search_seconds: Number
    runners_up: tuple[RunnerUp, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    looser: tuple[LooserWish, ...] = ()
    beyond: tuple[Sentence, ...] = ()
    risk: FleetRisk | None = None
    """What revocations do to it; ``None`` where it is unstated how often machines go."""

    @property
    def planned_types(self) -> list[WorkerType]:
        """Those of which the plan rents some, in the pool's order; none without a fleet."""
        workers = {} if self.chosen is None else self.chosen.workers
        return [kind for kind in self.pool.types if workers.get(kind.name)]

    @property
    def planned_workers(self) -> list[WorkerType]:
        """The type of each worker."""
        workers = {} if self.chosen is None else self.chosen.workers
        return [kind for kind in self.planned_types for _ in range(workers[kind.name])]
