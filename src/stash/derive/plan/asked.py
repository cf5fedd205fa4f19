"""A goal and its constraints, from what was typed: ``--deadline 24h``, ``--cloud aws``, ``--quota p3.16xlarge=2``.

Every name is held against the catalog, so that a mistyped one is told instead of excluding everything. Reads options
and judges no machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from stash.base.errors import UserError
from stash.base.plan import Constraints, Goal, ScalingPolicy
from stash.base.words.spelling import nearest
from stash.base.words.units import parse_bytes, parse_count, parse_dollars, parse_price, parse_seconds
from stash.derive.plan.asked_work import TrainedJob, work
from stash.derive.plan.typed import fraction, number, words
from stash.keep.catalog import Catalog
from stash.keep.catalog.filter import has_gpu
from stash.keep.catalog.names import tokens

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
        regions=tuple(_known("region", word, catalog.columns.regions, "region") for word in words(typed, "region")),
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
