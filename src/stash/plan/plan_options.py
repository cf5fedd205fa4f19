"""A goal, its constraints, its bill and how much is trained, from what was typed; an error names the option."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from stash.catalog.facts import tokens
from stash.catalog.offers import Catalog, has_gpu
from stash.catalog.own import ON_PREMISE
from stash.catalog.reference import known_dataset, tariffs
from stash.core.errors import UnitError, UserError
from stash.core.formatting import listed
from stash.core.intervals import Interval
from stash.core.units import nearest, parse_bytes, parse_count, parse_dollars, parse_price, parse_rate, parse_seconds
from stash.plan.bill import BillFacts
from stash.plan.records import Constraints, Goal, ScalingPolicy, TrainingWork

# Typed -----------------------------------------------------------------------------------------------------
# Options as they were typed, read one by one: an error names the option, what was typed, what to type.


def number(typed: Mapping[str, str], name: str, read: Callable[[str], float], positive: bool = True) -> float:
    """The number that option ``name`` gives; raises UserError if it is none, or not above zero."""
    text = typed[name]
    try:
        value = read(text)
    except UnitError as error:
        raise UserError(f"--{name} {text}: {error}") from None
    if positive and value <= 0:
        raise UserError(f"--{name} {text}: it must be more than 0")
    return value


def fraction(typed: Mapping[str, str], name: str) -> float:
    """The fraction that option ``name`` gives, as ``0.9`` or ``90%``; raises UserError if it is none."""
    text = typed[name].strip()
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UserError(f"--{name} {text}: it is a fraction, like 0.9 or 90%") from None


def words(typed: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The words of an option that takes several, separated by commas; raises UserError if it has none."""
    if name not in typed:
        return ()
    found = tuple(dict.fromkeys(word.strip() for word in typed[name].split(",") if word.strip()))
    if not found:
        raise UserError(f"--{name} {typed[name]!r} names nothing; leave it out, or give it a name")
    return found


# Asked bill ------------------------------------------------------------------------------------------------
# What a bill needs, from what was typed: ``--start 5m``, ``--image-size 20GB``, ``--egress-price $0.09``.
#
# Reads options. What nobody typed is a cloud's own tariff where a source has it, else not counted.

_PER_GB = re.compile(r"\s*(/|per)\s*gb([\s-]*(/|per|and|a)?[\s-]*(mo|month))?\s*$", re.IGNORECASE)
"""What may follow the dollars: ``/GB``, ``per GB-month``."""


def bill_facts(typed: Mapping[str, str], dataset_bytes: float | None, catalog: Catalog) -> BillFacts:
    """Of options by name, each as it was typed; raises UserError. ``dataset_bytes`` is what a profile says of it.

    Reads ``start``, ``image-size``, ``data-size``, ``download``, ``disk-size``, ``disk-price``, ``data-in`` and
    ``egress-price``, and leaves others alone.
    """

    def size(name: str) -> float | None:
        return number(typed, name, parse_bytes, positive=False) if name in typed else None

    def dollars(name: str) -> float | None:
        return number(typed, name, _dollars_per_gb, positive=False) if name in typed else None

    return BillFacts(
        start_seconds=_start(typed),
        image_bytes=size("image-size"),
        dataset_bytes=size("data-size") if "data-size" in typed else dataset_bytes,
        download_bytes_per_second=number(typed, "download", parse_rate) if "download" in typed else None,
        disk_bytes=size("disk-size"),
        disk_dollars_per_gb_month=dollars("disk-price"),
        egress_dollars_per_gb=dollars("egress-price"),
        data_in=_cloud(typed, catalog),
        tariffs=tariffs(),
    )


def _start(typed: Mapping[str, str]) -> Interval | None:
    """A duration, exact as typed; or two, between which it lies with 95 %, like ``3m..8m``."""
    if "start" not in typed:
        return None
    first, dots, last = typed["start"].partition("..")
    ends = [
        number({"start": text}, "start", parse_seconds, positive=False) for text in (first, last if dots else first)
    ]
    if ends[0] > ends[1]:
        raise UserError(f"--start {typed['start']}: the shorter time comes first, like 3m..8m")
    return Interval(value=sum(ends) / 2, low=ends[0], high=ends[1])


def _dollars_per_gb(text: str) -> float:
    """Dollars in ``$0.08``, ``$0.08/GB`` or ``0.08 USD per GB-month``; raises UnitError."""
    try:
        return parse_dollars(_PER_GB.sub("", text))
    except UnitError:
        raise UnitError("it is in US dollars per GB, like $0.08") from None


def _cloud(typed: Mapping[str, str], catalog: Catalog) -> str | None:
    if "data-in" not in typed:
        return None
    name = typed["data-in"].strip().lower()
    clouds = {instance.cloud for instance in catalog.instances} | {ON_PREMISE}
    known = {cloud.lower(): cloud for cloud in clouds}
    if name not in known:
        alike = nearest(name, clouds)
        hint = f"did you mean {listed(alike)}?" if alike else f"there are {listed(sorted(clouds))}"
        raise UserError(f"--data-in {typed['data-in']}: no offer is of that cloud; {hint}")
    return known[name]


# Asked work ------------------------------------------------------------------------------------------------
# How much is to be trained, from what was typed: epochs, samples, steps or tokens, or a data set's name.
#
# What was not typed comes from the profile where that knows it. Every way of saying it ends in samples.

EXAMPLE = "--epochs 90 --samples 1281167"
_WAYS = ("epochs", "steps", "tokens")


@dataclass(frozen=True)
class TrainedJob:
    """What a profile knows of how much its job trains."""

    samples_per_step: float | None = None
    """Of the whole job, as it was profiled."""
    dataset_samples: int | None = None


def work(typed: Mapping[str, str], job: TrainedJob) -> TrainingWork:
    """The training that these options ask for, by their names; raises UserError if they do not agree on one."""
    ways = [name for name in _WAYS if name in typed]
    if len(ways) > 1:
        raise UserError(f"--{ways[0]} and --{ways[1]} both say how much is to be trained; give one of them")
    _refuse_idle(typed, ways)
    if ways == ["steps"]:
        return _of_steps(typed, job)
    if ways == ["tokens"]:
        return _of_tokens(number(typed, "tokens", parse_count), "", typed)
    if "dataset" in typed and "samples" in typed:
        raise UserError("--samples and --dataset both say how large an epoch is; give one of them")
    if ways == ["epochs"] or "dataset" in typed:
        return _of_epochs(typed, job)
    if "samples" in typed:
        samples = number(typed, "samples", parse_count)
        return TrainingWork(samples=samples, text=f"{samples:,.0f} samples")
    raise UserError(
        f"how much is to be trained? Say it like {EXAMPLE}, --epochs 90 --dataset imagenet, --samples 50M, --steps "
        "100k or --tokens 300B --tokens-per-sample 1024"
    )


def _refuse_idle(typed: Mapping[str, str], ways: list[str]) -> None:
    """Options that would say nothing beside others."""
    for way in ("steps", "tokens"):
        beside = [f"--{name}" for name in ("samples", "dataset") if name in typed]
        if way in ways and beside:
            raise UserError(f"--{way} and {listed(beside)} both say how much is to be trained; give one of them")
    if "tokens-per-sample" in typed and "tokens" not in typed and "dataset" not in typed:
        raise UserError("--tokens-per-sample turns tokens into samples; say how many, like --tokens 300B")


def _of_steps(typed: Mapping[str, str], job: TrainedJob) -> TrainingWork:
    steps = number(typed, "steps", parse_count)
    if job.samples_per_step is None:
        raise UserError(
            "--steps: the profile does not know how many samples a step has; give --samples instead, or profile "
            "with --batch"
        )
    samples = steps * job.samples_per_step
    text = f"{steps:,.0f} steps of {job.samples_per_step:,.0f} samples, as profiled: {samples:,.0f} samples"
    return TrainingWork(samples=samples, text=text)


def _of_epochs(typed: Mapping[str, str], job: TrainedJob) -> TrainingWork:
    epochs = number(typed, "epochs", parse_count) if "epochs" in typed else 1.0
    many = f"{epochs:g} epoch{'' if epochs == 1 else 's'}"
    if "samples" in typed:
        samples = number(typed, "samples", parse_count)
        return TrainingWork(samples=epochs * samples, text=f"{many} of {samples:,.0f} samples")
    if "dataset" in typed:
        found = known_dataset(typed["dataset"])
        if found.samples is None:
            return _of_tokens(epochs * (found.tokens or 0), f"{many} of {found.name}: ", typed)
        return TrainingWork(samples=epochs * found.samples, text=f"{many} of {found.name}, {found.samples:,} samples")
    if job.dataset_samples is None:
        raise UserError(
            "--epochs: how large is an epoch? The profile does not know; add --samples 1281167, or --dataset imagenet"
        )
    text = f"{many} of {job.dataset_samples:,} samples, as profiled"
    return TrainingWork(samples=epochs * job.dataset_samples, text=text)


def _of_tokens(tokens: float, about: str, typed: Mapping[str, str]) -> TrainingWork:
    if "tokens-per-sample" not in typed:
        raise UserError(
            f"{about}{tokens:,.0f} tokens are how many samples? Add --tokens-per-sample, the length of a sequence, "
            "like 1024"
        )
    length = number(typed, "tokens-per-sample", parse_count)
    samples = tokens / length
    text = f"{about}{tokens:,.0f} tokens, {length:,.0f} a sample: {samples:,.0f} samples"
    return TrainingWork(samples=samples, text=text)


# Asked -----------------------------------------------------------------------------------------------------
# A goal and its constraints, from what was typed: ``--deadline 24h``, ``--cloud aws``, ``--quota p3.16xlarge=2``.
#
# Every name is held against the catalog, so that a mistyped one is told instead of excluding everything. Reads
# options and judges no machine.

SCALING: Mapping[str, ScalingPolicy] = {"per-device": "per device", "global": "global"}


def goal(typed: Mapping[str, str], job: TrainedJob, now: datetime) -> Goal:
    """What is wanted of the training; raises UserError. A deadline as a date without a zone is in that of ``now``."""
    asked = work(typed, job)
    deadline = _deadline(typed, now) if "deadline" in typed else None
    budget = number(typed, "budget", parse_dollars) if "budget" in typed else None
    confidence = fraction(typed, "confidence") if "confidence" in typed else Goal.model_fields["confidence"].default
    if not 0.5 < confidence < 1:
        raise UserError(
            f"--confidence {typed['confidence']}: how probable it has to be lies between 0.5 and 1, like 0.9"
        )
    scaling = typed.get("scaling", "per-device")
    if scaling not in SCALING:
        raise UserError(f"--scaling {scaling}: it is {' or '.join(SCALING)}")
    efficiency = fraction(typed, "efficiency") if "efficiency" in typed else None
    if efficiency is not None and not 0 <= efficiency <= 1:
        raise UserError(
            f"--efficiency {typed['efficiency']}: samples grow with (global batch)^e, and e lies between 0 and 1"
        )
    return Goal(
        work=asked,
        deadline_seconds=deadline,
        budget_dollars=budget,
        confidence=confidence,
        scaling=SCALING[scaling],
        efficiency=efficiency,
    )


def constraints(typed: Mapping[str, str], quotas: Sequence[str], catalog: Catalog) -> Constraints:
    """What may be rented; raises UserError, with the nearest names for those that ``catalog`` does not have."""
    clouds = {item.cloud for item in catalog.instances}
    spot = typed.get("spot", "never")
    return Constraints(
        clouds=tuple(_known("cloud", word, clouds, "cloud") for word in words(typed, "cloud")),
        regions=tuple(_known("region", word, catalog.regions, "region") for word in words(typed, "region")),
        gpus=tuple(_gpu(word, catalog) for word in words(typed, "gpu")),
        excluded=tuple(_excluded(word, clouds, catalog) for word in words(typed, "exclude")),
        most_nodes=_whole(typed, "max-nodes", Constraints.model_fields["most_nodes"].default, least=1),
        most_dollars_per_hour=number(typed, "max-price", parse_price) if "max-price" in typed else None,
        least_gpu_memory_bytes=number(typed, "min-memory", parse_bytes) if "min-memory" in typed else None,
        quotas=dict(_quota(text, catalog) for text in quotas),
        spot=_spot(spot),
        oldest_price_days=_days(typed) if "max-age" in typed else None,
    )


def _deadline(typed: Mapping[str, str], now: datetime) -> float:
    """Seconds from ``now``: a duration, or a date and perhaps a time."""
    text = typed["deadline"].strip()
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        return number(typed, "deadline", parse_seconds)
    until = until if until.tzinfo is not None else until.replace(tzinfo=now.tzinfo)
    if until <= now:
        raise UserError(f"--deadline {text} is past; give a later one, or how long it may take, like --deadline 24h")
    return (until - now).total_seconds()


def _whole(typed: Mapping[str, str], name: str, otherwise: int, least: int) -> int:
    if name not in typed:
        return otherwise
    value = number(typed, name, parse_count, positive=False)
    if value != int(value) or value < least:
        raise UserError(f"--{name} {typed[name]}: it is a whole number from {least} on")
    return int(value)


def _days(typed: Mapping[str, str]) -> int:
    text = {"max-age": typed["max-age"].strip().lower().removesuffix("days").removesuffix("d").strip()}
    return _whole({**typed, **text}, "max-age", 0, least=0)


def _spot(text: str) -> Literal["never", "allow"]:
    if text == "never":
        return "never"
    if text == "allow":
        return "allow"
    raise UserError(f"--spot {text}: it is never or allow")


def _gpu(name: str, catalog: Catalog) -> str:
    if tokens(name) and any(has_gpu(item, name) for item in catalog.instances):
        return name
    raise _unknown("GPU", name, {item.gpu_model for item in catalog.instances if item.gpu_model}, "gpu")


def _excluded(name: str, clouds: Iterable[str], catalog: Catalog) -> str:
    known = {item.name for item in catalog.instances} | {f"{item.cloud}/{item.name}" for item in catalog.instances}
    return _known("instance type or cloud", name, (*clouds, *known), "exclude")


def _quota(text: str, catalog: Catalog) -> tuple[str, int]:
    name, sign, count = text.partition("=")
    if not sign or not count.strip().isdigit():
        raise UserError(f"--quota {text}: it is an instance type and how many, like --quota p3.16xlarge=2")
    return _known("instance type", name.strip(), (item.name for item in catalog.instances), "quota"), int(count)


def _known(what: str, name: str, known: Iterable[str], option: str) -> str:
    """The name as the catalog writes it."""
    written = {item.lower(): item for item in known}
    if name.lower() in written:
        return written[name.lower()]
    raise _unknown(what, name, written.values(), option)


def _unknown(what: str, name: str, known: Iterable[str], option: str) -> UserError:
    alike = nearest(name, known)
    hint = f"did you mean {', '.join(alike)}?" if alike else "`stash catalog` lists what there is"
    return UserError(f"--{option} {name}: no such {what} in the catalog; {hint}")
