"""Compute elsewhere: how many times as long a step takes on another GPU, batch or precision; contention of several.

The same model's own published pair is the best witness, then pairs of other models, then a roofline of the job's
operators, then the peak rates of data sheets. Each has the interval that its own errors over published pairs show.
Knows GPUs and models by name; knows no profile and no target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from stash.catalog.facts import GpuFacts
from stash.catalog.reference import model_key, node_scaling
from stash.catalog.shipped import gpus, rows
from stash.predict.draws import Array, Quantity
from stash.predict.gpu_pairs import (
    PRECISIONS,
    Pair,
    arm,
    batch_pairs,
    by_model,
    left_out_errors,
    near,
    pairs,
    precision_pairs,
    published,
)

_FEW = 3
"""Models: from fewer of a pair of GPUs it is unknown how models differ, and all pairs' errors are taken."""


# Another GPU


@lru_cache(maxsize=1024)
def time_ratio(
    first: GpuFacts, second: GpuFacts, model: str, batch: int | None, precision: str, roofline: float | None = None
) -> Quantity | None:
    """Seconds on ``second`` over seconds on ``first``, of compute; ``None`` if nothing is known of one of them.

    ``roofline`` is the same by the job's operators (``roofline.roofline_ratio``), where its profile holds them: it
    stands in where no pair was published.
    """
    if first.name == second.name:
        return Quantity(value=1.0, origin="given", source="the same GPU")
    if first.model == second.model:
        return _variants(first, second, precision)
    known = pairs(first.model, second.model, precision)
    own = [pair for pair in known if pair.model == model_key(model) and near(pair.batch, batch)]
    if own:
        return _from_pairs(own, _spread_within(), f"{model} on both GPUs")
    if known:
        count = len({pair.model for pair in known})
        spread = _spread_between(first.model, second.model, precision)
        return _from_pairs(known, spread, f"{count} other models on both GPUs")
    if roofline is not None:
        spread = _spread_of_rooflines(_old(first, second))
        return _quantity(math.log(roofline), spread, "a roofline of the job's operators")
    sheet = sheet_ratio(first, second, precision)
    if sheet is None:
        return None
    return _quantity(math.log(sheet), _spread_of_sheets(_old(first, second)), "peak rates of data sheets")


def _old(*gpus_asked_about: GpuFacts) -> bool:
    """Whether one is a Kepler, whose kernels reach a far smaller share of its peak than those of all later ones."""
    return any(gpu.architecture == "Kepler" for gpu in gpus_asked_about)


def _variants(first: GpuFacts, second: GpuFacts, precision: str) -> Quantity | None:
    """Of one model: between the ratio of arithmetic and that of memory, as one architecture has one efficiency."""
    ratio, flops = sheet_ratio(first, second, precision), flops_ratio(first, second, precision)
    if ratio is None or flops is None:
        return None
    memory = ratio * ratio / flops
    source = f"peak rates of {first.name} and {second.name}"
    low, high = sorted((flops, memory))
    return Quantity(value=ratio, low=min(low, ratio), high=max(high, ratio), origin="data sheet", source=source)


def sheet_ratio(first: GpuFacts, second: GpuFacts, precision: str) -> float | None:
    """The geometric mean of the ratios of peak arithmetic and of memory rate: a job is bound by either at times."""
    rates = [
        (peak(first, precision), peak(second, precision)),
        (first.memory_bytes_per_second, second.memory_bytes_per_second),
    ]
    ratios = [math.log(old / new) for old, new in rates if old and new]
    return math.exp(sum(ratios) / len(ratios)) if ratios else None


def flops_ratio(first: GpuFacts, second: GpuFacts, precision: str) -> float | None:
    """The simplest baseline: the ratio of peak arithmetic alone."""
    old, new = peak(first, precision), peak(second, precision)
    return old / new if old and new else None


def peak(gpu: GpuFacts, precision: str) -> float | None:
    """FLOP/s that matrix products can have: tensor cores where the GPU and the precision have them."""
    if precision == "amp":
        return gpu.tensor_fp16_flops_per_second or gpu.fp16_flops_per_second or gpu.fp32_flops_per_second
    return gpu.tensor_tf32_flops_per_second or gpu.fp32_flops_per_second


def _from_pairs(known: Sequence[Pair], spread: float, what: str) -> Quantity:
    sources = sorted({pair.source for pair in known})
    dates = sorted(pair.as_of for pair in known if pair.as_of)
    return _quantity(by_model(known), spread, f"{what} ({'; '.join(sources)})", dates[-1] if dates else None)


def _quantity(log_ratio: float, spread: float, source: str, as_of: str | None = None) -> Quantity:
    value, low, high = (math.exp(log_ratio + shift) for shift in (0.0, -spread, spread))
    return Quantity(value=value, low=low, high=high, origin="data sheet", as_of=as_of, source=source)


@lru_cache(maxsize=1)
def _spread_within() -> float:
    """Of a model's pair against its pairs at other batches and of other sources, each left out in turn."""
    errors = []
    for _, _, known in published():
        for pair in known:
            others = [p for p in known if p != pair and p.model == pair.model and p.precision == pair.precision]
            alike = [p for p in others if near(p.batch, pair.batch)]
            errors += [by_model(alike) - pair.log_ratio] if alike else []
    return arm(errors)


@lru_cache(maxsize=32)
def _spread_between(first: str, second: str, precision: str) -> float:
    """Of other models' pairs against a model's own, each model left out in turn."""
    own = left_out_errors(pairs(first, second, precision))
    if len(own) >= _FEW:
        return arm(own)
    everywhere = [
        error
        for *_, known in published()
        for kind in PRECISIONS
        for error in left_out_errors([pair for pair in known if pair.precision == kind])
    ]
    return arm(everywhere)


@lru_cache(maxsize=2)
def _spread_of_sheets(old: bool) -> float:
    """Of ``sheet_ratio``, which is fitted to nothing, against published pairs with or without an ``old`` GPU.

    A model counts once a pair of GPUs.
    """
    by_name = {gpu.model: gpu for gpu in reversed(gpus())}
    errors = []
    for first, second, known in published():
        if _old(by_name[first], by_name[second]) is not old:
            continue
        for kind in PRECISIONS:
            sheet = sheet_ratio(by_name[first], by_name[second], kind)
            for model in sorted({pair.model for pair in known if pair.precision == kind} if sheet else ()):
                own = [pair for pair in known if pair.model == model and pair.precision == kind]
                errors.append(math.log(sheet or 1.0) - by_model(own))
    return arm(errors)


@lru_cache(maxsize=2)
def _spread_of_rooflines(old: bool) -> float:
    """Of operators' rooflines, fitted to nothing either, as ``python -m bench.predict.gpus`` found it."""
    by_name = {gpu.model: gpu for gpu in reversed(gpus())}
    return arm(
        [
            math.log(float(row["roofline"]) / float(row["published"]))
            for row in rows("roofline_errors.csv")
            if _old(by_name[row["first"]], by_name[row["second"]]) is old
        ]
    )


# A slice of a GPU


def slice_ratio(first: float, second: float) -> Quantity:
    """Seconds of compute on the share ``second`` of a GPU over those on the share ``first`` of one.

    In proportion, as (first / second)ᵉ with e = 1 ± 0.5: an assumption. Below 1 where a slice may use more of the
    GPU while its neighbours are idle, or where a job did not fill the whole one; above it where they get in its way.
    """
    ratio = first / second
    low, high = sorted((ratio**0.5, ratio**1.5))
    return Quantity(value=ratio, low=low, high=high, origin="data sheet", source="in proportion: an assumption")


# Another batch, another precision


@lru_cache(maxsize=256)
def batch_exponent(model: str, gpu: str | None) -> Quantity:
    """γ in seconds ∝ batchᵞ, of compute: below 1 where a GPU is not yet full. From published speeds at two batches.

    The model's own on that GPU, else the mean over models; the interval is that of models left out.
    """
    every = batch_pairs()
    own = [each for each in every if each.model == model_key(model) and each.gpu == gpu]
    witnesses = own or list(every)
    value = float(np.mean([each.log_ratio for each in witnesses]))
    spread = _spread_of_exponents() if own else arm(left_out_errors(every))
    what = f"{model} on {gpu} at several batches" if own else "other models at several batches"
    sources = "; ".join(sorted({each.source for each in witnesses}))
    return Quantity(
        value=value,
        low=value - spread,
        high=value + spread,
        origin="data sheet",
        as_of=max((each.as_of for each in witnesses if each.as_of), default=None),
        source=f"{what} ({sources})",
    )


@lru_cache(maxsize=1)
def _spread_of_exponents() -> float:
    """Of a model's γ against its own on other GPUs and of other sources, each left out in turn."""
    errors = []
    for each in batch_pairs():
        others = [other.log_ratio for other in batch_pairs() if other.model == each.model and other != each]
        errors += [float(np.mean(others)) - each.log_ratio] if others else []
    return arm(errors)


def precision_ratio(model: str, gpu: str | None, roofline: float | None = None) -> Quantity | None:
    """Seconds with automatic mixed precision over seconds in fp32, on the same GPU.

    The model's own where it was published, else a roofline of the job's operators, else other models on that GPU;
    ``None`` where there is nothing.
    """
    every = [each for each in precision_pairs() if each.gpu == gpu]
    own = [each for each in every if each.model == model_key(model)]
    spread = arm(left_out_errors(precision_pairs()))
    if not own and roofline is not None:
        return _quantity(math.log(roofline), _spread_of_rooflines(False), "a roofline of the job's operators")
    witnesses = own or every
    if not witnesses:
        return None
    what = f"{model} on {gpu} in both precisions" if own else f"other models on {gpu} in both precisions"
    sources = "; ".join(sorted({each.source for each in witnesses}))
    return _quantity(float(np.mean([each.log_ratio for each in witnesses])), spread, f"{what} ({sources})")


# Contention


def crowding() -> Quantity:
    """By how much a step takes longer on several devices than its exchange explains, as a fraction of it on one.

    Where it was not measured: of published models, by how much theirs did (shared hosts and power, input, launching
    kernels, an exchange that is not DistributedDataParallel's). Median and the ends between which 95 % of them lie.
    """
    jobs = node_scaling()
    low, middle, high = crowded(np.array([0.025, 0.5, 0.975])).tolist()
    return Quantity(
        value=middle,
        low=low,
        high=high,
        origin="data sheet",
        as_of=max(each.as_of for each in jobs),
        source="; ".join(dict.fromkeys(each.source for each in jobs)),
    )


def crowded(uniforms: Array) -> Array:
    """That fraction at these places of its distribution, between 0 and 1: as it was seen, every model on a machine
    counting alike. Most models lose some per cent and a few a third, which no normal distribution holds."""
    losses, places = _losses()
    return np.interp(uniforms, places, losses)


@lru_cache(maxsize=1)
def _losses() -> tuple[Array, Array]:
    """Published losses in ascending order, and each one's place between 0 and 1."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for each in node_scaling():
        groups.setdefault((each.source, each.model, each.machine), []).append(each.loss)
    counted = sorted((loss, 1 / len(group)) for group in groups.values() for loss in group)
    losses, counts = np.array(counted).T
    return losses, (np.cumsum(counts) - counts / 2) / counts.sum()
