"""What the users of rules know of their job, read from its profiles and from published tables.

A profile gives what anybody can time: how fast one device trains by itself, and the whole job where it ran. Other
GPUs' speeds are published ratios to the profiled one, of the same model where there are some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stash.base.plan import Goal
from stash.derive.findings.machine import model_of
from stash.derive.plan.rules.offered import RuleFacts
from stash.derive.predict.compute.pairs import by_model, pairs
from stash.derive.predict.whatif.base import Base
from stash.keep.catalog import Catalog
from stash.keep.catalog.speeds import model_key

_AMP = ("float16", "bfloat16")


def rule_facts(bases: Sequence[Base], goal: Goal, catalog: Catalog) -> RuleFacts:
    """Of the profiles of one job, one at least; the first is what people ask for again."""
    first = bases[0]
    precision = "amp" if first.profile.workload.precision in _AMP else "fp32"
    return RuleFacts(
        samples=goal.work.samples,
        nodes=first.target.nodes,
        devices=first.target.devices,
        precision=precision,
        deadline_seconds=goal.deadline_seconds,
        budget_dollars=goal.budget_dollars,
        rates=_rates(bases, precision, catalog),
        measured=_measured(bases),
        trial_seconds=first.profile.elapsed_seconds,
    )


def _rates(bases: Sequence[Base], precision: str, catalog: Catalog) -> dict[str, float]:
    """Samples per second of one GPU, by model: measured where it was, else by published ratios to the first one's."""
    own = {model: rate for base in bases if (model := _model(base, catalog)) and (rate := _alone(base))}
    if not own:
        return {}
    first, rate = next(iter(own.items()))
    published = {
        gpu.model: rate * math.exp(-ratio)
        for gpu in catalog.gpus
        if (ratio := _ratio(first, gpu.model, precision, bases[0].profile.workload.name)) is not None
    }
    return {**published, **own}


def _ratio(first: str, second: str, precision: str, workload: str) -> float | None:
    """ln(seconds on the second / on the first): of this model if it was published, else the mean over models."""
    found = pairs(first, second, precision)
    same = [pair for pair in found if pair.model == model_key(workload)]
    return by_model(same or found) if found else None


def _model(base: Base, catalog: Catalog) -> str | None:
    """The profiled GPU's model, as clouds call it."""
    host = base.profile.hosts[0] if base.profile.hosts else None
    return None if base.target.device is None or host is None or not host.gpus else model_of(host.gpus[0], catalog)


def _alone(base: Base) -> float | None:
    """Samples per second of one device by itself, on replayed batches."""
    samples, seconds = base.breakdown.samples_per_step, base.breakdown.seconds("compute", "transfer")
    return None if not samples or seconds <= 0 else samples / base.breakdown.world_size / seconds


def _measured(bases: Sequence[Base]) -> dict[tuple[str, int], float]:
    found = {}
    for base in bases:
        instance = base.profile.hosts[0].instance if base.profile.hosts else None
        rate = base.breakdown.samples_per_second
        if instance is not None and rate:
            found[instance, base.target.nodes] = rate
    return found
