"""Compute on another GPU against published pairs: own pairs, other models' pairs, rooflines, data sheets.

Split: a model is left out when it is predicted, whichever way. ``python -m bench.predict.gpus --write`` writes
``catalog/data/roofline_errors.csv``, from which forecasts take the roofline's spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bench import recorded
from bench.machine import ROOT, arguments
from bench.predict.errors import Prediction, evidence
from bench.predict.operators import MODELS, operators
from bench.table import median_90
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


def section() -> str:
    split = (
        f"{len(_cases())} published pairs of one model on two GPUs, as seconds on the second for each on the first. "
        "*Split*: what is predicted is left out. *Same model*: its pairs at other batches and of other sources; "
        "*other models*: the rest on the same two GPUs; *roofline*: of torchvision's models alone; *data sheets*: "
        "the geometric mean of the ratios of arithmetic and of memory."
    )
    return evidence("Another GPU", split, list(predictions())) + "\n\n" + batches()


def batches() -> str:
    """Steps grow as batch^γ: γ of each series of published speeds, each model predicted from the others."""
    every = batch_pairs()
    errors, plain = [], []
    for each in every:
        others = [other.log_ratio for other in every if other.model != each.model]
        errors.append(2 ** (float(np.mean(others)) - each.log_ratio) - 1)
        plain.append(2 ** (1 - each.log_ratio) - 1)
    return (
        f"## Another batch\n\nA step at a doubled batch, {len(every)} series, each model from the others: median and "
        f"90th percentile of errors {median_90(errors)}; in proportion to the batch {median_90(plain)}."
    )


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
    for way, predicted in (("roofline of operators", _roofline), ("data sheets", _sheet)):
        ratio = predicted(first, second, own)
        if ratio is not None:
            found[way] = _drawn(math.log(ratio), arm(_errors(predicted, own, first.model == "K80")))
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


def _errors(predicted: Callable[[GpuFacts, GpuFacts, Pair], float | None], own: Pair, old: bool) -> list[float]:
    """Of other models' pairs, with or without a K80 as the one that is predicted."""
    found = [
        (predicted(first, second, pair), pair)
        for first, second, pair, _ in _cases()
        if pair.model != own.model and (first.model == "K80") is old
    ]
    return [math.log(ratio) - pair.log_ratio for ratio, pair in found if ratio is not None]


def _sheet(first: GpuFacts, second: GpuFacts, pair: Pair) -> float | None:
    return sheet_ratio(first, second, pair.precision)


def write(path: Path = TABLE) -> None:
    """The errors of rooflines, one line a pair."""
    lines = []
    for first, second, own, _ in _cases():
        ratio = _roofline(first, second, own)
        if ratio is not None:
            row = [own.model, own.batch or "", own.precision, first.model, second.model]
            lines.append([*row, f"{math.exp(own.log_ratio):.5g}", f"{ratio:.5g}"])
    recorded.write(path, ("model", "batch", "precision", "first", "second", "published", "roofline"), lines)


if __name__ == "__main__":
    if arguments(__doc__, write=(False, "write what forecasts take from it")).write:
        write()
    print(section())
