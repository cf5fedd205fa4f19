"""Compute on another GPU against published speeds: the scale, with GPUs and models left out, beside one-line rules.

Every two rows of a series (one source, model, batch, precision) that differ in the GPU are a case in each direction:
the first is given, the second predicted. *Left out* says which rows the scale was fitted without: the model on the
second GPU, the model anywhere, the second GPU whatever it trains, or both. The rules' *best mix* is the powers of
memory rate and FLOP/s that would have been best on the very rows.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from bench.machine import arguments
from bench.predict.errors import Prediction, evidence
from bench.table import median_90
from stash.catalog.facts import GpuFacts
from stash.catalog.reference import Speed, speeds
from stash.predict.draws import Draws
from stash.predict.gpu_pairs import batch_pairs
from stash.predict.gpu_scale import GpuCell, GpuScale, rates, sheets, whole_job

DRAWS = Draws()
_SETS = {"lambdal/deeplearning-benchmark @aa5addb": "Lambda", "Gavel (OSDI 2020)": "Gavel"}
_GRID = np.linspace(0, 1.2, 25)


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
        found = _SETS.get(self.second.source.split(",")[0], "others")
        return (found, f"{found}, Recommendation alone") if self.second.key == "recommendation" else (found,)


LEFT_OUT: dict[str, Callable[[Case, Speed], bool]] = {
    "the model on that GPU": lambda case, row: row.key == case.second.key and row.gpu == case.second.gpu,
    "the model": lambda case, row: row.key == case.second.key,
    "the GPU": lambda case, row: row.gpu == case.second.gpu,
    "the model and the GPU": lambda case, row: row.key == case.second.key or row.gpu == case.second.gpu,
}
"""By what is left out: whether a row is."""


def section() -> str:
    found = list(predictions())
    split = (
        f"{len(cases())} pairs of published speeds of one series on two GPUs, as seconds on the second for each on "
        f"the first. {' '.join((__doc__ or '').split())}"
    )
    return "\n\n".join((evidence("Another GPU", split, found), batches()))


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


def predictions(left_out: tuple[str, ...] = tuple(LEFT_OUT)) -> Iterator[Prediction]:
    """Each case by each split, a source of its own in the table."""
    for name in left_out:
        for belongs, of in sorted(_by_set().items()):
            mix = _mix(belongs)
            for case in of:
                mean, deviation = _without(name, case).ratio(_cell(case.first), _cell(case.second))
                drawn = np.exp(mean + deviation * DRAWS.normals("validation"))
                one, other = case.first, case.second
                label = f"{one.model}, batch {one.batch}, {one.precision}, {one.gpu} to {other.gpu}"
                measured = math.exp(case.log_ratio)
                # A ratio's middle is what is compared.
                yield Prediction(
                    f"{belongs}, without {name}", label, measured, drawn, _rules(case, mix), math.exp(mean)
                )


@cache
def _by_set() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        for name in case.sets:
            found[name].append(case)
    return found


def _rules(case: Case, mix: tuple[float, float]) -> dict[str, float]:
    memory, flops = _sheet_logs(case)
    return {
        "memory rate": math.exp(memory),
        "FLOP/s": math.exp(flops),
        "best mix": math.exp(mix[0] * memory + mix[1] * flops),
    }


def _sheet_logs(case: Case) -> tuple[float, float]:
    """ln of the first's rate over the second's: of memory, and of FLOP/s as its precision has them."""
    first, second = _facts(case.first), _facts(case.second)
    old, new = rates(first, case.first.precision), rates(second, case.first.precision)
    assert old is not None
    assert new is not None
    return old.memory - new.memory, old.products - new.products


@cache
def _mix(name: str) -> tuple[float, float]:
    return best_mix(_by_set()[name])


def best_mix(of: list[Case]) -> tuple[float, float]:
    """Powers of memory rate and FLOP/s of the least median error over these very cases."""
    logs = np.array([_sheet_logs(case) for case in of])
    measured = np.array([case.log_ratio for case in of])
    tried = [(a, b) for a in _GRID.tolist() for b in _GRID.tolist()]
    return min(tried, key=lambda mix: float(np.median(np.abs(np.exp(logs @ np.array(mix) - measured) - 1))))


def _facts(row: Speed) -> GpuFacts:
    return sheets()[row.variant or row.gpu]


def _cell(row: Speed) -> GpuCell:
    return GpuCell(row.key, _facts(row), row.precision, whole_job(row))


def _without(name: str, case: Case) -> GpuScale:
    kept = tuple(row for row in speeds() if not LEFT_OUT[name](case, row))
    return _fitted(kept)


@cache
def _fitted(rows: tuple[Speed, ...]) -> GpuScale:
    return GpuScale(rows, sheets())


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


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
