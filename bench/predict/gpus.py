"""Compute on another GPU against published speeds: the scale, with GPUs and models left out, beside one-line rules.

Every two rows of a series (one source, model, batch, precision) that differ in the GPU are a case in each direction:
the first is given, the second predicted. *Left out* says which rows the scale was fitted without: the model on the
second GPU, the model anywhere, the second GPU whatever it trains, both, or the whole source. Its constants are those
under which the rows of all other sources are most probable; ``--fit`` prints those of all, and ``--shipped`` takes
them. The rules are powers of
memory rate and FLOP/s.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from bench.machine import arguments
from bench.predict.errors import Prediction, evidence
from stash.catalog.reference import Speed, speeds
from stash.predict.compute_ratios import batch_exponent
from stash.predict.draws import Draws
from stash.predict.gpu_scale import (
    FITTED,
    WHOLE_JOBS,
    GpuScale,
    ScaleConstants,
    cell_of,
    sheet_rates,
    shipped_sheets,
)

DRAWS = Draws()
_SETS = {
    "lambdal/deeplearning-benchmark": "Lambda",
    "Gavel": "Gavel",
    "mosaicml/llm-foundry": "language models",
    "NVIDIA/DeepLearningExamples READMEs": "NVIDIA",
    "siasosp23/artifacts": "Sia",
    "ml-energy/zeus": "Zeus",
    "MLPerf Training v5.1": "MLPerf",
}
_BY_EPOCH = "ml-energy/zeus"
"""Whose rates are epochs, so that its steps are of unknown length."""
_RULES = {
    "memory rate": (1.0, 0.0),
    "FLOP/s": (0.0, 1.0),
    "memory^.75 FLOP/s^.25": (0.75, 0.25),
    "root of both": (0.5, 0.5),
}
"""Powers of memory rate and FLOP/s."""


def _set_of(row: Speed) -> str:
    return next((name for start, name in _SETS.items() if row.source.startswith(start)), "others")


class Case(NamedTuple):
    """One row given, another of its series predicted: seconds on its GPU over those on the first's."""

    first: Speed
    second: Speed

    @property
    def log_ratio(self) -> float:
        return math.log(self.first.per_second / self.second.per_second)

    @property
    def sets(self) -> tuple[str, ...]:
        """What it is counted with: its source, and what its GPU does not limit by itself as well."""
        found = _set_of(self.second)
        return (
            (found, f"{found}, Recommendation alone")
            if self.second.key == "recommendation"
            else (found,)
        )


LEFT_OUT: dict[str, Callable[[Case, Speed], bool]] = {
    "the model on that GPU": lambda case, row: (
        row.key == case.second.key and row.gpu == case.second.gpu
    ),
    "the model": lambda case, row: row.key == case.second.key,
    "the GPU": lambda case, row: row.gpu == case.second.gpu,
    "the source": lambda case, row: row.source.split(",")[0] == case.second.source.split(",")[0],
    "the model and the GPU": lambda case, row: (
        row.key == case.second.key or row.gpu == case.second.gpu
    ),
}
"""By what is left out: whether a row is."""


def section(shipped: bool = False) -> str:
    found = list(predictions(shipped=shipped))
    split = (
        f"{len(cases())} pairs of published speeds of one series on two GPUs, as seconds on the second for each on "
        f"the first. {' '.join((__doc__ or '').split())}"
    )
    batches = evidence(
        "Another batch",
        "What does not grow with the batch is the median of other models'.",
        list(other_batches()),
    )
    return "\n\n".join((evidence("Another GPU", split, found), batches))


@cache
def cases() -> tuple[Case, ...]:
    series: dict[tuple[object, ...], list[Speed]] = defaultdict(list)
    for row in speeds():
        series[row.key, row.precision, row.batch, row.series].append(row)
    return tuple(
        Case(first, second)
        for rows in series.values()
        for first, second in itertools.permutations(rows, 2)
        if first.gpu != second.gpu
    )


def predictions(
    left_out: tuple[str, ...] = tuple(LEFT_OUT), shipped: bool = False
) -> Iterator[Prediction]:
    """Each case by each split, a source of its own in the table."""
    for name in left_out:
        for belongs, of in sorted(_cases_by_set().items()):
            for case in of:
                mean, deviation = _scale_without(name, case, shipped).ratio(
                    *(cell_of(row, shipped_sheets()) for row in case)
                )
                drawn = np.exp(mean + deviation * DRAWS.normals("validation"))
                one, other = case.first, case.second
                label = f"{one.model}, batch {one.batch}, {one.precision}, {one.gpu} to {other.gpu}"
                measured = math.exp(case.log_ratio)
                # A ratio's middle is what is compared.
                yield Prediction(
                    f"{belongs}, without {name}",
                    label,
                    measured,
                    drawn,
                    _rules(case),
                    math.exp(mean),
                )


@cache
def _cases_by_set() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        for name in case.sets:
            found[name].append(case)
    return found


def _rules(case: Case) -> dict[str, float]:
    old, new = (
        sheet_rates(shipped_sheets()[row.variant or row.gpu], row.precision) for row in case
    )
    assert old is not None
    assert new is not None
    memory, flops = (
        math.exp(one - other)
        for one, other in ((old.memory, new.memory), (old.products, new.products))
    )
    return {name: memory**a * flops**b for name, (a, b) in _RULES.items()}


def _scale_without(name: str, case: Case, shipped: bool = False) -> GpuScale:
    dropped = tuple(LEFT_OUT[name](case, row) for row in speeds())
    return _fit_scale(dropped, FITTED if shipped else fit_constants(case.sets[0]))


@cache
def _fit_scale(dropped: tuple[bool, ...], constants: ScaleConstants) -> GpuScale:
    rows = [row for row, drop in zip(speeds(), dropped, strict=True) if not drop]
    return GpuScale(rows, shipped_sheets(), constants)


@cache
def fit_constants(without: str | None = None) -> ScaleConstants:
    """Under which all rows but those of one set are most probable."""
    rows = [row for row in speeds() if _set_of(row) != without]

    def improbability(logarithms: np.ndarray) -> float:
        constants = ScaleConstants(*np.exp(logarithms).tolist())
        return -GpuScale(rows, shipped_sheets(), constants).log_density()

    found = minimize(improbability, np.log(FITTED), method="L-BFGS-B", options={"maxiter": 20})
    return ScaleConstants(*np.exp(found.x).tolist())


def other_batches() -> Iterator[Prediction]:
    """Seconds of a step at each published batch, from the same series at the next one, up and down, as runs differ."""
    pairs = list(_batch_pairs())
    roots: dict[str, list[float]] = defaultdict(list)
    for first, second in pairs:
        more = math.sqrt((second.batch or 1) / (first.batch or 1))
        before, after = (math.sqrt(step_seconds(row)) for row in (first, second))
        roots[first.key].append((after - before * more) / (1 - more))
    for first, second in pairs:
        without = [float(np.mean(each)) for key, each in roots.items() if key != first.key]
        ratio, before = (second.batch or 1) / (first.batch or 1), step_seconds(first)
        exponent = batch_exponent(before, ratio, float(np.median(without)))
        is_whole = first.source.startswith(WHOLE_JOBS)
        spread = (FITTED.whole_run if is_whole else FITTED.run) * math.sqrt(2)
        runs = np.exp(spread * DRAWS.normals("two runs"))
        yield Prediction(
            "another batch, without the model",
            f"{first.model} on {first.gpu}, {first.precision}, batch {first.batch} to {second.batch}",
            step_seconds(second),
            before * ratio ** DRAWS.draw("batch exponent", exponent) * runs,
            {"in proportion": before * ratio, "batch^.77": before * ratio**0.77},
            before * ratio**exponent.value,
        )


def _batch_pairs() -> Iterator[tuple[Speed, Speed]]:
    series: dict[tuple[str, str, str, str], list[Speed]] = defaultdict(list)
    for row in speeds():
        if row.batch is not None and not row.source.startswith(_BY_EPOCH):
            series[row.key, row.gpu, row.precision, row.series].append(row)
    for rows in series.values():
        ordered = sorted(rows, key=lambda row: row.batch or 0)
        for pair in itertools.pairwise(ordered):
            if pair[0].batch != pair[1].batch:
                yield from (pair, pair[::-1])


def step_seconds(row: Speed) -> float:
    """Of one GPU's batch."""
    return (row.batch or 1) / row.per_second


if __name__ == "__main__":
    asked = arguments(
        __doc__,
        fit=(False, "print the constants under which all rows are most probable"),
        shipped=(False, "take the constants that are shipped"),
    )
    print(fit_constants() if asked.fit else section(asked.shipped))
