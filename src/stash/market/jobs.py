"""What is replayed: how much work, how fast it goes on each instance, and what starting, saving and moving take.

From a profile each instance's rate is the forecast of the whole step with all its stalls on all of its GPUs, never k
times that of one. A job.yaml states the same by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from stash.api import Alteration, Base, Catalog, missing_stalls, stall_draws
from stash.core.errors import StashError, UserError, one_line
from stash.core.ladder import STALLS
from stash.core.records.base import PlainName, Record
from stash.core.units import parse_bytes, parse_count, parse_rate, parse_seconds
from stash.core.user_files import load, quantity
from stash.market.market_trace import MarketOffer

BOOT = 180.0
FETCH = 250e6
EVERY = 1800.0
"""Assumed unless stated: seconds until a machine is up, bytes a second, seconds between checkpoints."""
_CHECKPOINT = 3.0
"""Times the parameters: with Adam's two moments, as most optimizers of large models keep them."""
_SHORTEST = 1e-9

_Bytes = Annotated[float, quantity(parse_bytes, bare=True), Field(ge=0, le=1e18)]
_Seconds = Annotated[float, quantity(parse_seconds, bare=True), Field(ge=0, le=1e9)]
_Rate = Annotated[float, quantity(parse_rate, bare=True), Field(gt=0, le=1e15)]
_Count = Annotated[float, quantity(parse_count, bare=True), Field(gt=0, le=1e18)]


class InstanceRate(Record):
    """How fast the job trains on one instance type, or on as many of it as the job rents together."""

    samples_per_second: Annotated[float, Field(gt=_SHORTEST, le=1e12, allow_inf_nan=False)]
    gpus: Annotated[int, Field(ge=1, le=1024)] = 1
    """Of a machine."""
    stalls: dict[PlainName, Annotated[float, Field(ge=-10, le=10)]] = Field(default_factory=dict)
    """Of a step, the share of each stall besides compute; empty: not known."""


def _bare_rate(given: object) -> object:
    return {"samples_per_second": given} if type(given) in (int, float) else given


class MarketJob(Record):
    """One training, ready to be replayed. Bytes, seconds, samples."""

    name: PlainName = "job"
    samples: _Count
    rates: dict[PlainName, Annotated[InstanceRate, BeforeValidator(_bare_rate)]] = Field(
        min_length=1
    )
    """By instance type, or ``cloud/type``."""
    machines: Annotated[int, Field(ge=1, le=1024)] = 1
    """Rented together, all of one offer."""
    checkpoint: _Bytes = 0.0
    data: _Bytes = 0.0
    data_in: PlainName | None = None
    """The region, ``cloud/region``, or the cloud, in which the data lie; ``None``: wherever the first machine is."""
    boot: _Seconds = BOOT
    fetch: _Rate = FETCH
    save: _Seconds | None = None
    """``None``: the checkpoint at the rate of ``fetch``."""
    checkpoint_every: _Seconds | None = EVERY
    """Of work; 0 or ``None``: none is written but before a move."""

    @property
    def save_seconds(self) -> float:
        return self.checkpoint / self.fetch if self.save is None else self.save

    @property
    def interval(self) -> float:
        """Seconds of work between two checkpoints; infinite without."""
        return self.checkpoint_every or math.inf

    def rate(self, offer: MarketOffer) -> InstanceRate | None:
        """``None``: how fast the job is there is not known."""
        return self.rates.get(f"{offer.cloud}/{offer.instance}") or self.rates.get(offer.instance)

    def fetch_seconds(self, resumes: bool) -> float:
        """Data, and the checkpoint of a job that goes on."""
        return (self.data + (self.checkpoint if resumes else 0.0)) / self.fetch


def read_job(path: str | Path) -> MarketJob:
    """A job.yaml; raises UserError that names every mistake with its line."""
    found = load(
        Path(path), MarketJob, "the job", "docs/how-to/market.md shows such a file"
    ).content
    return (
        found
        if "name" in found.model_fields_set
        else found.model_copy(update={"name": Path(path).stem})
    )


def job_of_profile(
    base: Base, samples: float, offers: Iterable[MarketOffer], catalog: Catalog
) -> tuple[MarketJob, dict[str, str]]:
    """The profiled job on every instance of a market that the catalog knows, and why not of each other one.

    Raises UserError where it cannot be forecast anywhere.
    """
    rates: dict[str, InstanceRate] = {}
    missing: dict[str, str] = {}
    for key in sorted({f"{each.cloud}/{each.instance}" for each in offers}):
        try:
            # All GPUs of one machine; raises StashError.
            drawn = stall_draws(base, Alteration().replace_facts(nodes=1, instance=key))
            lacking = missing_stalls(base, drawn)
            if lacking:
                raise UserError(lacking[0].why)
            if drawn.samples is None:
                raise UserError("the samples of a step were not counted")
            step = float(drawn.step.mean())
            shares = {part.name: float(part.seconds.mean()) / step for part in drawn.parts}
            rates[key] = InstanceRate(
                samples_per_second=drawn.samples / step,
                gpus=catalog.instance(key).devices,
                stalls={
                    name: share
                    for name, share in shares.items()
                    if name in STALLS and name != "compute"
                },
            )
        except StashError as error:
            missing[key] = one_line(error)
    work = base.profile.workload
    if not rates:
        name, why = next(iter(missing.items()))
        raise UserError(
            f"{work.name} cannot be forecast on any instance of this market ({name}: {why}); or state rates in a "
            "job.yaml"
        )
    given: dict[str, object] = {"name": work.name, "samples": samples, "rates": rates}
    if work.dataset_bytes is not None:
        given["data"] = work.dataset_bytes
    return MarketJob.model_validate(
        {**given, "checkpoint": (work.parameter_bytes or 0.0) * _CHECKPOINT}
    ), missing
