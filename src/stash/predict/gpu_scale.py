"""One scale of training speed over GPUs, models and precisions: log-linear, fitted to every published speed.

ln(rate) of a model on a GPU is the model's own constant plus, over three rates r of the GPU's data sheet, the sum of
(w + wₘ) · ln r, plus what the GPU, and the model on that GPU, are off by. Every unknown is normal with a prior (a
Gaussian process, or generalised ridge: Rasmussen and Williams 2006, chapter 2), so the fit is one linear solve, and a
GPU that nobody measured falls back on its data sheet, with the spread of those that were measured. Ratios are
differences on the scale: they are transitive, whatever they rest on. The priors are rounded from the likelihood of
all rows; ``python -m bench.predict.gpus`` leaves out GPUs and models in turn. Knows no job and no operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from stash.catalog.facts import GpuFacts
from stash.catalog.reference import Speed, model_key, speeds
from stash.catalog.shipped import gpus
from stash.predict.draws import Array, Draws

RULE = (0.55, 0.25, 0.15)
"""Prior exponents of the memory's rate, of the rate of instructions and of the peak of dense products."""
_RULE_SPREAD = 0.08
"""Standard deviations, of logarithms: of those exponents,"""
_MODEL_SPREAD = 0.09
"""of a model's own beside them,"""
_GPU_SPREAD = 0.11
"""of a GPU, whatever it trains,"""
_CELL_SPREAD = 0.10
"""of a model on a GPU,"""
_RUN_SPREAD = 0.07
"""and of a published number: its run, host and versions."""
_WHOLE_JOBS = frozenset({"Gavel (OSDI 2020)"})
"""Sources that published whole jobs, with whatever else limits them: reading, preparing, a simulator."""
_WHOLE_MODEL_SPREAD, _WHOLE_CELL_SPREAD, _WHOLE_RUN_SPREAD = 0.3, 0.2, 0.15
"""Of those beside the others: of a model's exponents, of a model on a GPU whatever its batch, and of a number. Six
batches of a job that its host limits are one witness, not six."""
_FREE = 10.0
"""Of a series' constant: nothing is known of it."""
_LANES = {"Kepler": 192, "Maxwell": 128, "Pascal": 64, "Volta": 64, "Turing": 64, "Ada": 128, "Hopper": 128,
          "Blackwell": 128}  # fmt: skip
"""Float32 lanes of a multiprocessor (CUDA C++ Programming Guide, arithmetic throughput)."""


class SheetRates(NamedTuple):
    """A GPU's data sheet, as logarithms."""

    memory: float
    """Of bytes per second."""
    instructions: float
    """Of warps of instructions per second, but for a factor: multiprocessors times clock. Lanes count alike however
    many a multiprocessor has, as four schedulers feed them from Maxwell on."""
    products: float
    """Of FLOP/s of dense products in this precision."""


class GpuCell(NamedTuple):
    """What has a place on the scale."""

    model: str
    """Its key (``catalog.reference.model_key``)."""
    gpu: GpuFacts
    precision: str
    whole: bool = False
    """Whether it is the speed of a whole job that is known or asked for, not of what the device computes."""


def peak(gpu: GpuFacts, precision: str) -> float | None:
    """FLOP/s that matrix products can have: tensor cores where the GPU and the precision have them."""
    if precision == "amp":
        return gpu.tensor_fp16_flops_per_second or gpu.fp16_flops_per_second or gpu.fp32_flops_per_second
    return gpu.tensor_tf32_flops_per_second or gpu.fp32_flops_per_second


def rates(gpu: GpuFacts, precision: str) -> SheetRates | None:
    """``None`` where the data sheet has a hole."""
    memory, float32, products = gpu.memory_bytes_per_second, gpu.fp32_flops_per_second, peak(gpu, precision)
    lanes = _lanes(gpu)
    if not memory or not float32 or not products or lanes is None:
        return None
    return SheetRates(math.log(memory / 1e12), math.log(float32 / lanes / 2.4e11), math.log(products / 5e13))


def _lanes(gpu: GpuFacts) -> int | None:
    if gpu.architecture == "Ampere":  # A100's and A30's have half of the lanes of all others, and large tensor cores
        tensor, float32 = gpu.tensor_fp16_flops_per_second, gpu.fp32_flops_per_second
        return 64 if tensor and float32 and tensor >= 8 * float32 else 128
    return _LANES.get(gpu.architecture or "")


def whole_job(row: Speed) -> bool:
    """Whether the row is of a whole job, which other things than its GPU may limit."""
    return row.source.split(",")[0] in _WHOLE_JOBS


class _Places(NamedTuple):
    """Cells as arrays, a row each."""

    rates: Array
    models: list[str]
    gpus: list[str]
    whole: Array
    """1 of whole jobs, else 0."""

    @property
    def noise(self) -> Array:
        """Variance of a number as it is published, ``[places]``."""
        return np.where(self.whole > 0, _WHOLE_RUN_SPREAD, _RUN_SPREAD) ** 2


def _places(cells: Sequence[GpuCell]) -> _Places:
    known = [rates(cell.gpu, cell.precision) for cell in cells]
    holes = [cell.gpu.name for cell, found in zip(cells, known, strict=True) if found is None]
    if holes:
        raise ValueError(f"{holes[0]}'s data sheet has a hole")
    # The peak of products is one rate for each precision: what TF32 brings says little of what fp16 does.
    wide = [
        (found.memory, found.instructions, *((found.products, 0.0) if half else (0.0, found.products)))
        for cell, found in zip(cells, known, strict=True)
        if found is not None
        for half in (cell.precision == "amp",)
    ]
    whole = np.array([float(cell.whole) for cell in cells])
    return _Places(np.array(wide), [cell.model for cell in cells], [cell.gpu.model for cell in cells], whole)


def _same(one: Sequence[object], other: Sequence[object]) -> Array:
    codes = {each: number for number, each in enumerate(dict.fromkeys([*one, *other]))}
    equal: Array = np.equal.outer([codes[each] for each in one], [codes[each] for each in other]).astype(np.float64)
    return equal


def _shared(one: _Places, other: _Places) -> Array:
    """Prior covariance of two lists of places, ``[one, other]``."""
    models, same_gpu, along = _same(one.models, other.models), _same(one.gpus, other.gpus), one.rates @ other.rates.T
    whole = np.outer(one.whole, other.whole)
    slopes = along * (_RULE_SPREAD**2 + models * (_MODEL_SPREAD**2 + _WHOLE_MODEL_SPREAD**2 * whole))
    cells = models * (_CELL_SPREAD**2 + _WHOLE_CELL_SPREAD**2 * whole)
    covariance: Array = slopes + same_gpu * (_GPU_SPREAD**2 + cells)
    return covariance


_EXPONENTS = np.array([RULE[0], RULE[1], RULE[2], RULE[2]])


class GpuScale:
    """The scale fitted to a table of speeds; ``facts`` are the GPUs' data sheets by name and by model."""

    def __init__(self, table: Sequence[Speed], facts: Mapping[str, GpuFacts]) -> None:
        self.rows = tuple(table)
        self._seen = _places(
            [GpuCell(row.key, facts[row.variant or row.gpu], row.precision, whole_job(row)) for row in self.rows]
        )

    @cached_property
    def _solved(self) -> tuple[Array, Array]:
        """Inverse of the rows' covariance, and that times what the prior leaves of their logarithms."""
        series = [(row.key, row.precision, row.batch, row.series) for row in self.rows]
        covariance = _shared(self._seen, self._seen) + _FREE**2 * _same(series, series) + np.diag(self._seen.noise)
        left = np.log([row.per_second for row in self.rows]) - self._seen.rates @ _EXPONENTS
        inverse = np.asarray(np.linalg.inv(covariance), np.float64)
        return inverse, np.asarray(inverse @ left, np.float64)

    def places(self, cells: Sequence[GpuCell]) -> tuple[Array, Array]:
        """ln(rate) of each cell but for its model's constant, ``[cells]``, and their covariance, ``[cells, cells]``.

        Only differences between cells of one model and precision mean anything. Raises ValueError for a hole.
        """
        asked = _places(cells)
        inverse, weights = self._solved
        known = _shared(asked, self._seen)
        means = np.asarray(asked.rates @ _EXPONENTS + known @ weights, np.float64)
        covariance: Array = _shared(asked, asked) - known @ inverse @ known.T
        return means, covariance

    def ratio(self, first: GpuCell, second: GpuCell) -> tuple[float, float]:
        """ln(seconds on the second / seconds on the first), and its standard deviation as two runs would show it."""
        means, covariance = self.places([first, second])
        variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1] + _places([first, second]).noise.sum()
        return float(means[0] - means[1]), math.sqrt(variance)

    def drawn(self, cells: Sequence[GpuCell], draws: Draws) -> Array:
        """ln(rate) of each cell as a run would show it, ``[cells, draws]``: what two share is off alike in each."""
        means, covariance = self.places(cells)
        normals = np.array([draws.normals(f"scale of GPUs, {number}") for number in range(len(cells))])
        apart: Array = np.linalg.cholesky(covariance + np.diag(_places(cells).noise)) @ normals
        return means[:, np.newaxis] + apart

    def holds(self, model: str, gpu: str) -> bool:
        """Whether a row is of this model on this GPU model."""
        return any(row.key == model and row.gpu == gpu for row in self.rows)


@lru_cache(maxsize=1)
def sheets() -> dict[str, GpuFacts]:
    """The shipped data sheets by variant and, the first variant, by model."""
    return {gpu.model: gpu for gpu in reversed(gpus())} | {gpu.name: gpu for gpu in gpus()}


@lru_cache(maxsize=1)
def published_scale() -> GpuScale:
    """Fitted to every published speed that comes with Stash."""
    return GpuScale(speeds(), sheets())


def cell(model: str, gpu: GpuFacts, precision: str) -> GpuCell:
    return GpuCell(model_key(model), gpu, precision)


@lru_cache(maxsize=64)
def together(model: str, precision: str, draws: Draws) -> Mapping[str, Array]:
    """By name of every shipped GPU without a hole, ln(rate) of the model on it as draws, ``[draws]``.

    What two of them share is off alike in each draw, so a difference between two is as sure as the scale has it: the
    GPU that was profiled is the same one for all, and variants of a GPU can hardly be distinguished by their model.
    """
    known = [gpu for gpu in gpus() if rates(gpu, precision) is not None]
    drawn = published_scale().drawn([cell(model, gpu, precision) for gpu in known], draws)
    drawn.setflags(write=False)
    return {gpu.name: one for gpu, one in zip(known, drawn, strict=True)}
