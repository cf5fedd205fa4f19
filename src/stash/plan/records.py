"""A plan: what is to be trained by when, every machine weighed, which to rent; and its file, ``*.plan.json``.

Holds answers, not how they were found. Times are in seconds, sizes in bytes, money in US dollars; ``None`` means "not
known" and is never written as zero. Every interval holds 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stash.catalog.facts import Date, is_date
from stash.core import documents
from stash.core.documents import DocumentFile
from stash.core.intervals import Interval
from stash.core.ladder import STALLS
from stash.core.records.base import (
    CommandWords,
    Count,
    Duration,
    Number,
    PlainName,
    Record,
    Sentence,
)

PLAN_SCHEMA = 1
PLAN_SUFFIX = documents.PLAN.suffix
CALLED = {"budget": "max-dollars", "min-memory": "min-gpu-memory"}
"""Options by the names that they have in plans, where those of the command line have changed since."""

LIMITED = {
    "max-price": "most_dollars_per_hour",
    "quota": "quotas",
    "min-memory": "least_gpu_memory_bytes",
    "gpu": "gpus",
    "cloud": "clouds",
    "region": "regions",
    "exclude": "excluded",
}
"""Fields of ``Constraints`` that leave offers out, by their options' names in plans."""

ScalingPolicy = Literal["per device", "global"]
"""What more devices do to a step: each trains as many samples as now, or all together as many as now."""
PaidAs = Literal["on-demand", "spot", "reserved", "own"]
ChoiceStanding = Literal["chosen", "tied", "front", "lost", "infeasible"]
"""*tied*: as good as the chosen one within its intervals. *front*: nothing else is both cheaper and sooner. *lost*:
something else is better in both. *infeasible*: misses the deadline, the budget, a quota or memory."""


IN_TIME, IN_BUDGET = 0.2, 0.9
"""Without a confidence: what keeps a deadline less probably is no choice, else what being late costs decides."""


class TrainingWork(Record):
    """How much is to be trained."""

    samples: Number = Field(gt=0)
    text: Sentence
    """As it was asked for: ``90 epochs of 1,281,167 samples``."""


class Goal(Record):
    """What is wanted of the whole training."""

    work: TrainingWork
    deadline_seconds: Number | None = Field(None, gt=0)
    budget_dollars: Number | None = Field(None, gt=0)
    confidence: float | None = Field(None, ge=0.5, lt=1)
    """How probable it has to be that deadline and budget are kept; ``None``: ``IN_TIME`` and ``IN_BUDGET``."""
    late_dollars: Number | None = Field(None, ge=0)
    """What missing the deadline costs; ``None``: as much as training on what keeps it with ``IN_BUDGET``."""
    scaling: ScalingPolicy = "per device"

    @property
    def surely_in_time(self) -> float:
        """How probable it has to be that the deadline is kept."""
        return IN_TIME if self.confidence is None else self.confidence

    @property
    def surely_in_budget(self) -> float:
        return IN_BUDGET if self.confidence is None else self.confidence

    @property
    def weighs_lateness(self) -> bool:
        """Whether being late has a price; with a confidence it is forbidden as surely as that, and has none."""
        priced = self.late_dollars is not None or self.confidence is None
        return self.deadline_seconds is not None and priced

    @property
    def aim(self) -> Literal["seconds", "dollars"]:
        """What is to be least: time where only a budget is given, money else."""
        return (
            "seconds"
            if self.budget_dollars is not None and self.deadline_seconds is None
            else "dollars"
        )


class Constraints(Record):
    """What may be rented."""

    clouds: tuple[PlainName, ...] = ()
    """Any, where empty; so with regions and GPUs."""
    regions: tuple[PlainName, ...] = ()
    gpus: tuple[PlainName, ...] = ()
    excluded: tuple[PlainName, ...] = ()
    "Leave out these instance types or clouds."
    most_nodes: int = Field(16, ge=1)
    most_dollars_per_hour: Number | None = Field(None, gt=0)
    """Of all nodes together."""
    least_gpu_memory_bytes: Number | None = Field(None, gt=0)
    quotas: dict[PlainName, Count] = Field(default_factory=dict)
    """Instances at most, by type."""
    spot: Literal["never", "allow"] = "never"
    transport: Literal["sockets", "rdma"] | None = None
    """Between nodes; ``None``: what the profile used, else sockets."""


class HourlyPrice(Record):
    """What one instance costs for an hour."""

    dollars_per_hour: Interval
    paid_as: PaidAs
    region: PlainName | None = None
    as_of: Date = None
    source: Sentence
    moved: Sentence = ""
    """How far it may have moved since, and how that is known; empty where it is exact."""


class Rental(Record):
    """Instances of one type at one price."""

    instance: PlainName
    cloud: PlainName
    nodes: int = Field(ge=1)
    devices: int = Field(ge=1)
    """Of a node, a rank each."""
    device: PlainName | None = None
    """``None`` where ranks run on CPUs."""
    price: HourlyPrice

    @property
    def name(self) -> str:
        """``"2 × p3.8xlarge"``."""
        return f"{self.nodes} × {self.instance}"

    @property
    def dollars_per_hour(self) -> float:
        """Dollars an hour of all nodes."""
        return self.nodes * self.price.dollars_per_hour.value


class Setting(Record):
    """How the job is to be run there; ``None`` leaves a setting as it was profiled."""

    batch: int | None = None
    """Samples of a device in one forward and backward pass."""
    accumulate: int | None = None
    workers: int | None = None


class PlanFact(Record):
    """One number that a choice rests on."""

    about: PlainName
    unit: PlainName
    """``bytes/s``, ``seconds``, ``bytes``, ``samples/s``, ``fraction``, ``count`` or ``dollars/h``."""
    value: Number
    low: Number | None = None
    high: Number | None = None
    origin: PlainName
    """``given``, ``measured``, ``scaled`` or ``data sheet``."""
    as_of: Date = None
    source: Sentence


def _stall(name: str) -> str:
    if name not in STALLS:
        raise ValueError(f"Input should be one of {', '.join(STALLS)}")
    return name


class StallShare(Record):
    """One stall of a step, and what it costs over the whole training."""

    name: Annotated[str, AfterValidator(_stall)]
    seconds: Interval
    """Of a step."""
    share: float
    """Of the step."""
    dollars: Interval
    """Of the bill. Stalls' dollars add up to those of the bill's item ``training``."""
    origin: PlainName
    facts: tuple[PlanFact, ...] = ()


class BillItem(Record):
    """A part of the bill."""

    name: Literal["training", "start-up", "first epoch", "rounding", "disk", "egress"]
    seconds: Interval
    """Wall time it adds; 0 where it adds none."""
    dollars: Interval
    text: Sentence = ""
    """What it was computed from."""


class Choice(Record):
    """One thing that may be rented, and what it would do."""

    rented: Rental
    setting: Setting
    standing: ChoiceStanding
    why: Sentence
    """The one reason for its standing."""
    samples_per_step: Number
    steps: Number
    """Optimizer steps of the whole training."""
    step: Interval
    """Seconds."""
    stalls: tuple[StallShare, ...]
    items: tuple[BillItem, ...]
    seconds: Interval
    """From start to end."""
    dollars: Interval
    on_time: float | None = None
    """Probability that the deadline is kept; ``None`` without one, and of machines that may be interrupted."""
    within_budget: float | None = None
    """Likewise."""
    best: float | None = None
    """Probability that nothing else ranked is better in what is to be least; ``None`` of what is infeasible."""
    median_seconds: Number | None = None
    """Half of the draws take less: far below the mean where a tail is heavy."""
    median_dollars: Number | None = None
    transport: PlainName | None = None
    """How its nodes talk: ``sockets``, ``EFA``, ``InfiniBand``; ``None`` of one node, and where it is unknown."""
    origin: PlainName
    """Of the forecast: its least certain part's."""
    beyond: tuple[Sentence, ...] = ()
    """Where the forecast leaves what was calibrated."""

    @property
    def name(self) -> str:
        return self.rented.name

    @property
    def samples_per_second(self) -> float:
        return self.samples_per_step / self.step.value


class Unranked(Record):
    """What was left out because something about it is not known."""

    instance: PlainName
    cloud: PlainName
    why: Sentence
    count: int = 1
    """Offers."""
    dollars_per_gpu_hour: Number | None = None


class Experiment(Record):
    """What would tell which of several tied choices is best, for the least money."""

    command: CommandWords
    on: PlainName
    """Instance type."""
    seconds: Duration
    dollars: Number
    """That it costs."""
    worth: Number = 0.0
    """What choosing after it is expected to save, in the unit of ``Risk``."""
    text: Sentence


class Risk(Record):
    """What the choice risks, over draws that all candidates share."""

    best: Number
    """Probability that nothing else ranked is better in what is to be least."""
    regret: Interval
    """What the choice costs beyond the best of each draw: the mean, and the ends that hold 95 % of the draws."""
    unit: PlainName
    """``dollars``, or ``seconds`` where only a budget was given."""
    among: Count
    """Types ranked, each by its best."""


class Relaxation(Record):
    """A wish that, given up or loosened to this, makes something feasible."""

    option: PlainName
    """``deadline``, ``budget``, ``max-nodes`` …"""
    to: Sentence
    """What to type instead."""
    text: Sentence

    @property
    def command_words(self) -> str:
        """The same as words of the command line, where some options have another name than here."""
        if self.option == "spot":
            return "--allow-spot"
        if " and " in self.option:
            return self.to
        return f"--{CALLED.get(self.option, self.option)} {self.to}".rstrip()


def _begin_with_day(moment: str) -> str:
    day = moment[: len("2026-11-01")]
    if day.count("-") != 2 or not is_date(day):
        raise ValueError(f"{moment!r} is not a date; write it like 2026-11-01")
    return moment


class RentalPlan(Record):
    """The answer to one ``stash recommend``."""

    plan_schema: int = PLAN_SCHEMA
    stash_version: PlainName
    created: Annotated[PlainName, AfterValidator(_begin_with_day)]
    """ISO date and time, UTC."""
    workload: PlainName
    profiles: tuple[str, ...]
    """The files it was made from."""
    goal: Goal
    constraints: Constraints
    choices: tuple[Choice, ...]
    """The chosen one first if there is one, then those tied with it, the front by cost, and one (the best setting and
    node count) for every other offered type."""
    unranked: tuple[Unranked, ...] = ()
    risk: Risk | None = None
    """``None`` where nothing was chosen."""
    experiment: Experiment | None = None
    """Worth more than it costs; ``None`` where guessing is cheaper."""
    exchanges: tuple[Sentence, ...] = ()
    """What more or less certainty would buy: ``55% instead of 88%: $31 less``."""
    relaxations: tuple[Relaxation, ...] = ()
    """Where nothing is feasible: the nearest wishes that are."""
    assumptions: tuple[Sentence, ...] = ()
    """What was taken for granted, in sentences."""
    warnings: tuple[Sentence, ...] = ()
    weighed: Count
    """Combinations of offer, nodes and setting."""
    pruned: Count
    """Of those, how many a bound proved to be worse than something that was forecast."""
    seed: Count
    draws: Count

    @property
    def chosen_choice(self) -> Choice | None:
        first = self.choices[0] if self.choices else None
        return first if first is not None and first.standing == "chosen" else None

    @property
    def tied_choices(self) -> tuple[Choice, ...]:
        return tuple(choice for choice in self.choices if choice.standing == "tied")


# ``*.plan.json``: a plan is no artefact, since it holds nothing that was measured, so stores do not keep it.


def _contradictions(item: object, name: str = "") -> Iterator[str]:
    """Numbers that no forecast can have, by the names of their fields: whoever shows a plan computes with them."""
    if isinstance(item, Interval):
        if not item.holds_itself:
            yield f"{name} ({item.value:g}) is not within its interval, {item.low} to {item.high}"
    elif isinstance(item, Record):
        for field, value in item:
            yield from _contradictions(value, f"{name}.{field}" if name else field)
    elif isinstance(item, tuple):
        for number, value in enumerate(item):
            yield from _contradictions(value, f"{name}.{number}")
    elif isinstance(item, float) and not math.isfinite(item):
        yield f"{name} is {item}, which is no number"
    if isinstance(item, Choice):
        above_zero = {
            "samples_per_step": item.samples_per_step,
            "steps": item.steps,
            "step": item.step.value,
            "seconds": item.seconds.value,
        }
        yield from (
            f"{name}.{field} is {value:g}, not above 0"
            for field, value in above_zero.items()
            if value <= 0
        )


PLANS = DocumentFile(
    documents.PLAN,
    RentalPlan,
    PLAN_SCHEMA,
    lists=("choices",),
    contradiction=lambda plan: next(_contradictions(plan), None),
)
save_plan, load_plan, is_plan = PLANS.save, PLANS.load, PLANS.is_one
