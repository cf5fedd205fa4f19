"""Compute on another GPU against published pairs: own pairs, other models' pairs, rooflines, data sheets.

Split: a model is left out when it is predicted, whichever way. ``python -m bench.predict.gpus --write`` writes
``catalog/data/roofline_errors.csv`` anew, from which forecasts take the roofline's spread.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bench.common import ROOT
from bench.predict.errors import Prediction, summary, worst
from bench.predict.operators import MODELS, operators
from stash.catalog.facts import GpuFacts
from stash.catalog.shipped import gpus
from stash.predict.compute_ratios import flops_ratio, sheet_ratio
from stash.predict.draws import Draws, Quantity
from stash.predict.gpu_pairs import (
    PRECISIONS,
    Pair,
    arm,
    batch_pairs,
    by_model,
    left_out_errors,
    near,
    pairs,
    published,
    roofline_ratio,
)

TABLE = ROOT / "src/stash/catalog/data/roofline_errors.csv"
DRAWS = Draws()
_UNKNOWN_BATCH = 128
HEAD = """## Another GPU

{cases} published pairs of one model on two GPUs, as seconds on the second for each on the first. *Split*: what is
predicted is left out. *Same model* is the mean of its pairs at other batches and of other sources; *other models*
is the mean of the rest on the same two GPUs, which is what a forecast uses of a model that nobody published;
*roofline* is that of the model's operators, which are known of torchvision's models only; *data sheets* are the
geometric mean of the ratios of arithmetic and of memory, fitted to nothing. Baseline: the ratio of peak FLOP/s.
"""
FAILURES = """
- All that *other models* and *data sheets* miss is Gavel's *Recommendation*, which trains faster on older GPUs, and
  its *A3C*: on those machines something other than the GPU limits them, which no ratio of GPUs tells. Intervals are
  a factor of three and wider because of them.
- Rooflines, and sheets less so, take a K80 for almost twice as fast as it is: convolutions reached a smaller share
  of its peak than of a P100's. So pairs with a K80 and those without have intervals of their own; between the later
  GPUs the roofline is the better one, though ten pairs of two networks are little to say so.
"""
BATCHES = """## Another batch

Seconds of a step at one batch from those at another grow as batchᵞ: γ of each of {cases} series of published
speeds, each model predicted from the others. Median error of a doubled batch {median:.1%}, 90th percentile
{ninetieth:.1%}; baseline, in proportion to the batch (γ = 1): {plain:.1%}, {plain_ninetieth:.1%}.
"""


def section() -> list[str]:
    """Of the page on validation."""
    found = list(predictions())
    return [HEAD.format(cases=len(_cases())), *summary(found), "", "The farthest off:", "", *worst(found),
            FAILURES.rstrip(), "", *_batches()]  # fmt: skip


def predictions() -> Iterator[Prediction]:
    """Each pair by each way, a source of its own in the table."""
    for first, second, own, rest in _cases():
        measured = math.exp(own.log_ratio)
        base = flops_ratio(first, second, own.precision)
        baselines = {} if base is None else {"ratio of FLOP/s": base}
        name = f"{own.model}, batch {own.batch}, {own.precision}, {first.model} to {second.model}"
        for way, predicted in _ways(first, second, own, rest).items():
            yield Prediction(way, name, measured, predicted, baselines)


def _ways(first: GpuFacts, second: GpuFacts, own: Pair, rest: list[Pair]) -> dict[str, np.ndarray]:
    found = {}
    alike = [p for p in _same_model(first, second, own) if near(p.batch, own.batch)]
    if alike:
        found["same model, other batch or source"] = _drawn(by_model(alike), _within(own.model))
    if rest:
        errors = left_out_errors(rest)
        found["other models"] = _drawn(by_model(rest), arm(errors) if len(errors) > 1 else arm([0.7]))
    for way, told in (("roofline of operators", _roofline), ("data sheets", _sheet)):
        ratio = told(first, second, own)
        if ratio is not None:
            found[way] = _drawn(math.log(ratio), arm(_errors(told, own, first.model == "K80")))
    return found


def _drawn(log_ratio: float, spread: float) -> np.ndarray:
    value, low, high = (math.exp(log_ratio + shift) for shift in (0.0, -spread, spread))
    quantity = Quantity(value=value, low=low, high=high, origin="data sheet", source="validation")
    drawn = DRAWS.of("validation", quantity)
    return drawn * (value / drawn.mean())  # a ratio's middle is what is compared


def _cases() -> list[tuple[GpuFacts, GpuFacts, Pair, list[Pair]]]:
    by_name = {gpu.model: gpu for gpu in reversed(gpus())}
    return [
        (by_name[first], by_name[second], own,
         [p for p in found if p.precision == own.precision and p.model != own.model])
        for first, second, found in published()
        for kind in PRECISIONS
        for own in found
        if own.precision == kind
    ]  # fmt: skip


def _same_model(first: GpuFacts, second: GpuFacts, own: Pair) -> list[Pair]:
    return [p for p in pairs(first.model, second.model, own.precision) if p.model == own.model and p != own]


def _within(model: str) -> float:
    """The spread of a model's own pairs among each other, of all models but this one."""
    errors = []
    for first, second, own, _ in _cases():
        alike = [p for p in _same_model(first, second, own) if near(p.batch, own.batch)]
        if own.model != model and alike:
            errors.append(by_model(alike) - own.log_ratio)
    return arm(errors)


def _roofline(first: GpuFacts, second: GpuFacts, pair: Pair) -> float | None:
    model = "inceptionv3" if pair.model == "inception" else pair.model
    if model not in MODELS or pair.precision != "fp32":
        return None
    return roofline_ratio(operators(model, pair.batch or _UNKNOWN_BATCH), first, second)


def _errors(told: Callable[[GpuFacts, GpuFacts, Pair], float | None], own: Pair, old: bool) -> list[float]:
    """Of other models' pairs, with or without a K80 as the one that is predicted."""
    found = [
        (told(first, second, pair), pair)
        for first, second, pair, _ in _cases()
        if pair.model != own.model and (first.model == "K80") is old
    ]
    return [math.log(ratio) - pair.log_ratio for ratio, pair in found if ratio is not None]


def _sheet(first: GpuFacts, second: GpuFacts, pair: Pair) -> float | None:
    return sheet_ratio(first, second, pair.precision)


def _batches() -> list[str]:
    every = batch_pairs()
    errors, plain = [], []
    for each in every:
        others = [other.log_ratio for other in every if other.model != each.model]
        errors.append(abs(2 ** (float(np.mean(others)) - each.log_ratio) - 1))
        plain.append(abs(2 ** (1 - each.log_ratio) - 1))
    numbers = [float(np.percentile(each, q)) for each in (errors, plain) for q in (50, 90)]
    return [BATCHES.format(cases=len(every), median=numbers[0], ninetieth=numbers[1], plain=numbers[2],
                           plain_ninetieth=numbers[3]).rstrip()]  # fmt: skip


def write(path: Path = TABLE) -> None:
    """The errors of rooflines, one line a pair."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "batch", "precision", "first", "second", "published", "roofline"])
        for first, second, own, _ in _cases():
            told = _roofline(first, second, own)
            if told is not None:
                ratio = math.exp(own.log_ratio)
                row = [own.model, own.batch or "", own.precision, first.model, second.model]
                writer.writerow([*row, f"{ratio:.5g}", f"{told:.5g}"])


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    print("\n".join(section()))
