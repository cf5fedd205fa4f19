"""What is asked of ``stash recommend``: its options, and the goal, constraints, bill and work that they make.

The command line and Python read them alike; an error names the option. Every name is held against the catalog, so
that a mistyped one is told instead of excluding everything. Judges no machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from stash.catalog.facts import match_name
from stash.catalog.offers import Catalog
from stash.catalog.own import ON_PREMISE
from stash.catalog.reference import known_dataset, tariffs
from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.formatting import join_names
from stash.core.intervals import Interval
from stash.plan.bill import BillFacts
from stash.plan.records import PLAN_SUFFIX, Constraints, Goal, ScalingPolicy, TrainingWork
from stash.predict.cluster import TRANSPORTS, NodeTransport
from stash.store.storing import store_option
from stash.ui.options import Options, argument, flag, json_flag, option

if TYPE_CHECKING:
    from stash.predict.passes import Base

SCALING: Mapping[str, ScalingPolicy] = {"per-device": "per device", "global": "global"}
ENDINGS = (".html", ".md", ".png", ".svg", ".pdf")
EXAMPLE = "--epochs 90 --samples 1281167"
_WORK, _GOAL, _MAY, _BILL, _HOW, _SHOWN = (
    "Training length",
    "Deadline and budget",
    "Machines to consider",
    "Costs besides machine hours",
    "How the job runs there",
    "Output",
)
_WAYS = ("epochs", "steps", "tokens")


def _deadline(text: str) -> float | datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        pass
    try:
        return parsers.duration(text)
    except UnitError:
        if re.match(r"\s*[-+.\d]", text):
            raise
        raise UnitError("it must be a time or a date, like 24h, 3d or 2027-01-31T18:00") from None


def _output(text: str) -> Path:
    if not text.endswith((PLAN_SUFFIX, *ENDINGS)):
        raise UserError(f"a name ends in {', '.join(ENDINGS)} or {PLAN_SUFFIX}")
    return Path(text)


@dataclass(frozen=True, kw_only=True)
class PlanOptions(Options):
    """One call of ``stash recommend``."""

    common: ClassVar[tuple[str, ...]] = (
        "epochs",
        "samples",
        "dataset",
        "steps",
        "tokens",
        "deadline",
        "max_dollars",
        "cloud",
        "region",
        "gpu",
        "max_nodes",
        "allow_spot",
        "explain",
        "json",
        "output",
    )
    runs: tuple[str, ...] = argument(
        "RUN...",
        "Profiles of the job, on one kind of machine or several.",
        many=True,
        default=None,
    )

    epochs: float | None = option(
        "N", "Train for N passes over the data set.", parsers.count, panel=_WORK
    )
    samples: float | None = option(
        "N",
        "Train on N samples, like 50M; with --epochs, N per epoch.",
        parsers.count,
        panel=_WORK,
    )
    dataset: str | None = option(
        "NAME", "Take an epoch's size from a known data set: imagenet, coco-2017 …", panel=_WORK
    )
    steps: float | None = option(
        "N", "Train for N optimizer steps of the profiled size.", parsers.count, panel=_WORK
    )
    tokens: float | None = option("N", "Train on N tokens, like 300B.", parsers.count, panel=_WORK)
    tokens_per_sample: float | None = option(
        "N", "Set the length of a sequence.", parsers.count, panel=_WORK
    )

    deadline: float | datetime | None = option(
        "TIME", "Finish within 24h or 3d, or by 2027-01-31T18:00.", _deadline, panel=_GOAL
    )
    max_dollars: float | None = option(
        "DOLLARS", "Spend at most this in total.", parsers.dollars, panel=_GOAL
    )
    late_costs: float | None = option(
        "DOLLARS",
        "Missing the deadline costs this (default: a bill surely in time).",
        parsers.dollars,
        panel=_GOAL,
    )
    confidence: float | None = option(
        "P",
        "Meet deadline and cost with at least this probability.",
        parsers.probability,
        panel=_GOAL,
    )

    cloud: tuple[str, ...] | None = option(
        "NAMES", "Rent only from these clouds, like aws,gcp.", parsers.names, panel=_MAY
    )
    region: tuple[str, ...] | None = option(
        "NAMES", "Rent only in these regions, like us-east-1.", parsers.names, panel=_MAY
    )
    gpu: tuple[str, ...] | None = option(
        "NAMES", "Rent only these GPUs, like V100,A100-80GB.", parsers.names, panel=_MAY
    )
    min_gpu_memory: float | None = option(
        "SIZE", "Require this much memory per GPU, like 40GB.", parsers.size_above_zero, panel=_MAY
    )
    max_nodes: int | None = option(
        "N", "Rent at most N machines (default 16).", parsers.whole(1), panel=_MAY
    )
    max_price: float | None = option(
        "DOLLARS/H", "Pay at most this for all machines together.", parsers.price, panel=_MAY
    )
    quota: tuple[tuple[str, int], ...] = option(
        "TYPE=N",
        "Rent at most N of a type, like p3.16xlarge=2; repeatable.",
        parsers.amounts,
        panel=_MAY,
        many=True,
    )
    allow_spot: bool = flag("Include spot machines, which may be revoked.", panel=_MAY)
    exclude: tuple[str, ...] | None = option(
        "NAMES", "Leave out these instance types or clouds.", parsers.names, panel=_MAY
    )
    instances: Path | None = option(
        "FILE",
        "Read your own machines and prices (docs/how-to/own-instances.md).",
        Path,
        panel=_MAY,
    )

    transport: NodeTransport | None = option(
        "HOW",
        "Connect nodes by sockets, efa or infiniband (default: as profiled).",
        parsers.one_of(TRANSPORTS, shown=("sockets", "efa", "infiniband")),
        panel=_HOW,
    )
    scaling: ScalingPolicy = option(
        "per-device|global",
        "Keep the batch of each device, or the global one.",
        parsers.one_of(SCALING),
        default="per-device",
        panel=_HOW,
    )

    start: tuple[float, float] | None = option(
        "TIME", "Machines take this long to start: 5m, or 3m..8m.", parsers.durations, panel=_BILL
    )
    image_size: float | None = option(
        "SIZE", "Set the size of the container's image.", parsers.size, panel=_BILL
    )
    data_size: float | None = option(
        "SIZE", "Set the size of the data set (default: as profiled).", parsers.size, panel=_BILL
    )
    download: float | None = option(
        "RATE", "Set the download rate of a node, like 500MB/s.", parsers.rate, panel=_BILL
    )
    data_in: str | None = option(
        "CLOUD", "The data is in this cloud; others pay egress.", panel=_BILL
    )

    pareto: bool = flag("Show the whole front of cost against time.", panel=_SHOWN)
    explain: bool = flag(
        "Explain the sums behind the answer's time and bill, with sources.", panel=_SHOWN
    )
    explain_type: str | None = option(
        "TYPE",
        "Explain the time and the bill of this type, with sources.",
        panel=_SHOWN,
    )
    json: bool = json_flag("Print JSON; docs/format.md documents its keys.", _SHOWN)
    output: tuple[Path, ...] = option(
        "FILE",
        "Write a page (.html, .md), plan (.plan.json) or picture (.png, .svg, .pdf).",
        _output,
        "--output",
        "-o",
        panel=_SHOWN,
        many=True,
    )
    launch: Literal["sky"] | None = option(
        "sky",
        "Write the choice as a SkyPilot task, NAME.sky.yaml.",
        parsers.one_of(("sky",), ": a choice can be written as a SkyPilot task"),
        panel=_SHOWN,
    )
    store: str | None = store_option()

    def check(self) -> None:
        shown = self.list_given("pareto", "explain", "explain_type", "json")
        if len(shown) > 1 and shown != ["--pareto", "--json"]:
            raise UserError(
                f"{join_names(shown)} are different ways to show a plan; leave out all but one of them"
            )
        if self.late_costs is not None and self.deadline is None:
            raise UserError(
                "--late-costs says what missing a deadline costs; give one, like --deadline 24h"
            )
        ways = self.list_given(*_WAYS)
        if len(ways) > 1:
            raise UserError(
                f"{ways[0]} and {ways[1]} both say how much is to be trained; give one of them"
            )
        sizes = self.list_given("samples", "dataset")
        if sizes and ways in (["--steps"], ["--tokens"]):
            raise UserError(
                f"{ways[0]} and {join_names(sizes)} both say how much is to be trained; give one of them"
            )
        if self.tokens_per_sample is not None and self.tokens is None and self.dataset is None:
            raise UserError(
                "--tokens-per-sample turns tokens into samples; say how many, like --tokens 300B"
            )
        if len(sizes) > 1:
            raise UserError(
                "--samples and --dataset both say how large an epoch is; give one of them"
            )


# What was not given is a cloud's own tariff where a source has it, else not counted.


def bill_facts(asked: PlanOptions, dataset_bytes: float | None, catalog: Catalog) -> BillFacts:
    """What a bill needs; raises UserError. ``dataset_bytes`` is what a profile says of it."""
    clouds = {instance.cloud for instance in catalog.instances} | {ON_PREMISE}
    start = None
    if asked.start is not None:  # exact as typed; or two times, between which it lies with 95 %
        low, high = asked.start
        start = Interval(value=(low + high) / 2, low=low, high=high)
    return BillFacts(
        start_seconds=start,
        image_bytes=asked.image_size,
        dataset_bytes=dataset_bytes if asked.data_size is None else asked.data_size,
        download_bytes_per_second=asked.download,
        data_in=None
        if asked.data_in is None
        else match_name(asked.data_in, clouds, "cloud", "data-in"),
        tariffs=tariffs(),
    )


# How much is to be trained: epochs, samples, steps or tokens, or a data set's name. What is not given comes from the
# profile where that knows it. Every way of saying it ends in samples.


@dataclass(frozen=True)
class TrainedJob:
    """What a profile knows of how much its job trains."""

    samples_per_step: float | None = None
    """Of the whole job, as it was profiled."""
    dataset_samples: int | None = None

    @classmethod
    def read_base(cls, base: Base) -> TrainedJob:
        sizes = [
            loader.samples for loader in base.profile.workload.loaders if loader.samples is not None
        ]
        return cls(base.breakdown.samples_per_step, sizes[0] if len(sizes) == 1 else None)


def training_work(asked: PlanOptions, job: TrainedJob) -> TrainingWork:
    """The training that these options ask for; raises UserError if they ask for none."""
    if asked.steps is not None:
        if job.samples_per_step is None:
            raise UserError(
                "--steps: the profile does not know how many samples a step has; give --samples instead, or profile "
                "with --batch"
            )
        samples = asked.steps * job.samples_per_step
        text = f"{asked.steps:,.0f} steps of {job.samples_per_step:,.0f} samples, as profiled: {samples:,.0f} samples"
        return _make_work(samples=samples, text=text)
    if asked.tokens is not None:
        return _work_of_tokens(asked.tokens, "", asked)
    if asked.epochs is not None or asked.dataset is not None:
        epochs = 1.0 if asked.epochs is None else asked.epochs
        many = f"{epochs:g} epoch{'' if epochs == 1 else 's'}"
        if asked.samples is not None:
            return _make_work(
                samples=epochs * asked.samples, text=f"{many} of {asked.samples:,.0f} samples"
            )
        if asked.dataset is not None:
            found = known_dataset(asked.dataset)
            if found.samples is None:
                return _work_of_tokens(
                    epochs * (found.tokens or 0), f"{many} of {found.name}: ", asked
                )
            if asked.tokens_per_sample is not None:
                raise UserError(
                    f"--tokens-per-sample turns tokens into samples, and {found.name} is {found.samples:,} samples; "
                    "leave it out"
                )
            return _make_work(
                samples=epochs * found.samples,
                text=f"{many} of {found.name}, {found.samples:,} samples",
            )
        if job.dataset_samples is None:
            raise UserError(
                "--epochs: how large is an epoch? The profile does not know; add --samples 1281167, or --dataset imagenet"
            )
        text = f"{many} of {job.dataset_samples:,} samples, as profiled"
        return _make_work(samples=epochs * job.dataset_samples, text=text)
    if asked.samples is not None:
        return _make_work(samples=asked.samples, text=f"{asked.samples:,.0f} samples")
    raise UserError(
        f"how much is to be trained? Say it like {EXAMPLE}, --epochs 90 --dataset imagenet, --samples 50M, --steps "
        "100k or --tokens 300B --tokens-per-sample 1024"
    )


def _make_work(samples: float, text: str) -> TrainingWork:
    if samples > parsers.LARGEST:
        raise UserError(f"{text}: that is more than {parsers.LARGEST:g} samples; give fewer")
    return TrainingWork(samples=samples, text=text)


def _work_of_tokens(tokens: float, about: str, asked: PlanOptions) -> TrainingWork:
    length = asked.tokens_per_sample
    if length is None:
        raise UserError(
            f"{about}{tokens:,.0f} tokens are how many samples? Add --tokens-per-sample, the length of a sequence, "
            "like 1024"
        )
    samples = tokens / length
    text = f"{about}{tokens:,.0f} tokens, {length:,.0f} a sample: {samples:,.0f} samples"
    return _make_work(samples=samples, text=text)


def make_goal(asked: PlanOptions, job: TrainedJob, now: datetime) -> Goal:
    """What is wanted of the training; raises UserError. A deadline as a date without a zone is in that of ``now``."""
    return Goal(
        work=training_work(asked, job),
        deadline_seconds=_seconds_left(asked, now),
        budget_dollars=asked.max_dollars,
        confidence=asked.confidence,
        late_dollars=asked.late_costs,
        scaling=asked.scaling,
    )


def _seconds_left(asked: PlanOptions, now: datetime) -> float | None:
    deadline = asked.deadline
    if not isinstance(deadline, datetime):
        return deadline
    until = deadline
    if deadline.tzinfo is None:  # of this machine's zone: as its clocks are on that day
        here = now.utcoffset() == now.astimezone().utcoffset()
        until = deadline.astimezone() if here else deadline.replace(tzinfo=now.tzinfo)
    if until <= now:
        raise UserError(
            f"--deadline {asked.typed.get('deadline', deadline)} is past; give a later one, or how long it may take, "
            "like --deadline 24h"
        )
    return (until - now).total_seconds()


def make_constraints(asked: PlanOptions) -> Constraints:
    """What may be rented, names as they were typed."""
    return Constraints(
        clouds=asked.cloud or (),
        regions=asked.region or (),
        gpus=asked.gpu or (),
        excluded=asked.exclude or (),
        most_nodes=Constraints().most_nodes if asked.max_nodes is None else asked.max_nodes,
        most_dollars_per_hour=asked.max_price,
        least_gpu_memory_bytes=asked.min_gpu_memory,
        quotas=dict(asked.quota),
        spot="allow" if asked.allow_spot else "never",
        transport=asked.transport,
    )
