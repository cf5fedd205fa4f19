"""One scale of training speed over GPUs: a step's products and its other kernels, each by its own rate of the sheet.

Seconds of a step are s / products + (1 − s) · memory⁻ᵃ · instructions⁻⁽¹⁻ᵃ⁾, all rates relative to an A100's. The share
s of dense products is that of a roofline (Williams and others 2009) from the job's own operators, else from what was
counted of a model of that name, else a typical one. What published speeds are off by is a Gaussian process (Rasmussen
and Williams 2006, chapter 2): of the exponents of a model whose operators nobody counted, and of a model on a GPU. So
the fit is one linear solve, and a model that nobody published falls back on the data sheets. Ratios are differences on
the scale: they are transitive, whatever they rest on. Its constants are those under which the published speeds are
most probable; ``python -m bench.predict.gpus`` fits them without each source in turn, and leaves out GPUs and models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from stash.catalog.facts import GpuFacts
from stash.catalog.reference import Speed, flops_per_byte, speeds
from stash.catalog.shipped import gpus
from stash.core.records.profile import Workload
from stash.predict.draws import Array

_MEMORY, _FLOAT32, _INSTRUCTIONS = 2.0e12, 19.5e12, 19.5e12 / 64
_PRODUCTS = {"amp": 312e12, "fp32": 156e12}
"""Rates of an A100-SXM4-80GB, of products by precision: those in 32 bits are TF32's."""
MEMORY_POWER = 0.7
"""a: of what a step's other kernels gain by a faster memory; the rest they gain by instructions."""
_VENDOR_SPREAD = 0.35
"""Standard deviation, of the logarithm, of what another vendor's software makes of a data sheet: an assumption."""
WHOLE_JOBS = ("Gavel", "ml-energy/zeus", "siasosp23")
"""Sources of whole jobs, with whatever else limits them."""
_LONGER_IN_32_BITS, PRECISION_SPREAD = 1.6, 0.45
"""Times that a step on an A100 takes with TF32 as with amp, and how far the logarithm of published ones is off by the
sheet of their GPU: what moves is not all in 16 bits."""
_FREE = 10.0
"""Of a series' constant: nothing is known of it."""
_LANES = {"Kepler": 192, "Volta": 64, "Turing": 64, "CDNA2": 128, "CDNA3": 256, "CDNA4": 256}
"""Float32 lanes of a multiprocessor (CUDA C++ Programming Guide, arithmetic throughput; AMD's white papers); 128 in
all others but the large chips of Pascal and Ampere."""


class ScaleConstants(NamedTuple):
    """A typical share, and standard deviations of logarithms."""

    share: float = 0.090
    """s of a model of which no operator was counted."""
    model: float = 0.089
    """Of the exponents of such a model."""
    cell: float = 0.121
    """Of a model on a GPU."""
    run: float = 0.076
    """Of a published number: its run, host and versions."""
    whole_cell: float = 0.311
    """Of a model on a GPU in a source of whole jobs."""
    whole_run: float = 0.164
    """Of a number of such a source."""


FITTED = ScaleConstants()


class StepMix(NamedTuple):
    """What a step does, as its operators say."""

    products: float | None = None
    """Share of dense products in its time on an A100; ``None`` if no operators were counted."""
    strict: float = 0.0
    """Of those products, the part that may not use TF32 where the GPU has it."""


UNCOUNTED = StepMix()


class GpuCell(NamedTuple):
    """What has a place on the scale."""

    model: str
    """Its key (``catalog.reference.model_key``)."""
    gpu: GpuFacts
    precision: str
    mix: StepMix = UNCOUNTED
    whole_job: bool = False
    """Whether input and host limit it, too."""


class SheetRates(NamedTuple):
    """A GPU's data sheet as logarithms, relative to an A100's."""

    memory: float
    """Of bytes per second."""
    instructions: float
    """Of multiprocessors times clock: lanes count alike however many of them a multiprocessor has."""
    products: float
    """Of FLOP/s of dense products in this precision, TF32 if it is fp32 and the GPU has it."""
    float32: float
    """Of FLOP/s in true float32, over an A100's with TF32."""


def peak_flops(gpu: GpuFacts, precision: str) -> float | None:
    """FLOP/s that matrix products can have: tensor cores where the GPU and the precision have them."""
    if precision == "amp":
        return (
            gpu.tensor_fp16_flops_per_second
            or gpu.fp16_flops_per_second
            or gpu.fp32_flops_per_second
        )
    return gpu.tensor_tf32_flops_per_second or gpu.fp32_flops_per_second


def sheet_rates(gpu: GpuFacts, precision: str) -> SheetRates | None:
    """``None`` where the data sheet has a hole."""
    memory, float32, products = (
        gpu.memory_bytes_per_second,
        gpu.fp32_flops_per_second,
        peak_flops(gpu, precision),
    )
    if not memory or not float32 or not products:
        return None
    return SheetRates(
        math.log(memory / _MEMORY),
        math.log(float32 / _lanes(gpu) / _INSTRUCTIONS),
        math.log(products / _PRODUCTS[precision]),
        math.log(float32 / _PRODUCTS["fp32"]),
    )


def _lanes(gpu: GpuFacts) -> int:
    float32 = gpu.fp32_flops_per_second or math.inf
    if gpu.architecture == "Ampere" and (gpu.tensor_fp16_flops_per_second or 0.0) >= 8 * float32:
        return 64  # A100 and A30: half of the lanes of all others, and large tensor cores
    if gpu.architecture == "Pascal" and (gpu.fp16_flops_per_second or 0.0) > float32:
        return 64  # P100, the only one that is fast in 16 bits
    return _LANES.get(gpu.architecture or "", 128)


def mix_of(work: Workload, precision: str) -> StepMix:
    """What a profiled job's operators say of its step: FLOPs of products over the bytes that all of them move.

    In true float32 convolutions still use TF32 where products may not (``torch.backends.cudnn.allow_tf32``).
    """
    flops = sum(each.flops or 0.0 for each in work.operators)
    moved = sum(each.bytes or 0 for each in work.operators)
    strict = 0.0
    if precision == "fp32" and work.float32_products == "highest":
        convolved = sum(each.flops or 0.0 for each in work.operators if "conv" in each.operator)
        strict = 1.0 - convolved / flops if flops else 1.0
    return StepMix(share_of_products(flops / moved, precision) if flops and moved else None, strict)


def share_of_products(intensity: float, precision: str = "amp") -> float:
    """Of a step on an A100, from FLOPs of its products for each byte that its operators move."""
    over = intensity * _MEMORY / _PRODUCTS[precision]
    return over / (1 + over)


class _Places(NamedTuple):
    """Cells as arrays, a row each."""

    prior: Array
    """ln(rate) by the sheet."""
    slopes: Array
    """Rates that a model's own exponents are of, times the exponents' spread, ``[places, rates]``."""
    models: list[str]
    gpus: list[str]
    foreign: Array
    """1 of GPUs that are not NVIDIA's, else 0."""
    cells: Array
    """Standard deviation of a model on that GPU."""
    runs: Array
    """Variance between runs."""


def _equal_pairs(one: Sequence[object], other: Sequence[object]) -> Array:
    codes = {each: number for number, each in enumerate(dict.fromkeys([*one, *other]))}
    equal: Array = np.equal.outer(
        [codes[each] for each in one], [codes[each] for each in other]
    ).astype(np.float64)
    return equal


def _covariance(one: _Places, other: _Places) -> Array:
    """Prior covariance of two lists of places, ``[one, other]``."""
    own = one.slopes @ other.slopes.T
    own += _equal_pairs(one.gpus, other.gpus) * np.outer(one.cells, other.cells)
    covariance: Array = _equal_pairs(one.models, other.models) * own
    covariance += np.outer(one.foreign, other.foreign) * _VENDOR_SPREAD**2
    return covariance


class GpuScale:
    """The scale fitted to a table of speeds; ``facts`` are the GPUs' data sheets by name and by model."""

    def __init__(
        self,
        table: Sequence[Speed],
        facts: Mapping[str, GpuFacts],
        constants: ScaleConstants = FITTED,
    ) -> None:
        self.rows, self.constants = tuple(table), constants
        self._models = frozenset(row.key for row in self.rows)
        self._seen = self._places([cell_of(row, facts) for row in self.rows])

    def _places(self, cells: Sequence[GpuCell]) -> _Places:
        found, each = [], self.constants
        for cell in cells:
            known = sheet_rates(cell.gpu, cell.precision)
            if known is None:
                raise ValueError(f"{cell.gpu.name}'s data sheet has a hole")
            counted, strict = self._product_share(cell), cell.mix.strict
            share = each.share if counted is None else counted
            spread = each.model if counted is None else 0.0
            fast, slow = math.exp(-known.products), math.exp(-known.float32)
            products = share * ((1 - strict) * fast + strict * slow)
            rest = (1 - share) * math.exp(
                -MEMORY_POWER * known.memory - (1 - MEMORY_POWER) * known.instructions
            )
            # What TF32 brings a model says little of what fp16 does.
            rate = (1 - strict) * known.products + strict * known.float32
            slopes = (
                known.memory,
                known.instructions,
                *((rate, 0.0) if cell.precision == "amp" else (0.0, rate)),
            )
            scaled = (spread * slope for slope in slopes)
            found.append((-math.log(products + rest), *scaled))
        columns = np.array(found).reshape(len(found), 5)
        names = [cell.model for cell in cells], [cell.gpu.model for cell in cells]
        foreign = np.array(
            [float((cell.gpu.architecture or "").startswith("CDNA")) for cell in cells]
        )
        known_spreads = (
            (each.whole_cell, each.whole_run) if cell.whole_job else (each.cell, each.run)
            for cell in cells
        )
        of_cells, of_runs = np.array(list(known_spreads)).reshape(len(cells), 2).T
        return _Places(columns[:, 0], columns[:, 1:], *names, foreign, of_cells, of_runs**2)

    def _product_share(self, cell: GpuCell) -> float | None:
        """Share of products, of a model of that name, else of the job itself unless its exponents are fitted."""
        counted = flops_per_byte().get(cell.model)
        if counted is not None:
            return share_of_products(counted)
        return None if cell.model in self._models else cell.mix.products

    @cached_property
    def _solution(self) -> tuple[Array, Array]:
        """Inverse of the rows' covariance, and that times what the sheets leave of their logarithms."""
        series = [(row.key, row.precision, row.batch, row.series) for row in self.rows]
        covariance = _covariance(self._seen, self._seen)
        covariance += _FREE**2 * _equal_pairs(series, series) + np.diag(self._seen.runs)
        inverse = np.asarray(np.linalg.inv(covariance), np.float64)
        return inverse, np.asarray(inverse @ self._left, np.float64)

    @cached_property
    def _left(self) -> Array:
        """Logarithms of the rows less what the sheets say."""
        return np.log([row.per_second for row in self.rows]) - self._seen.prior

    def log_density(self) -> float:
        """Of the rows, but for a constant: the greater, the better these constants fit them."""
        inverse, weights = self._solution
        return 0.5 * float(np.linalg.slogdet(inverse)[1] - self._left @ weights)

    def places(self, cells: Sequence[GpuCell]) -> tuple[Array, Array]:
        """ln(rate) of each cell but for its model's constant, ``[cells]``, and their covariance as runs show it.

        Only differences between cells of one model and precision mean anything. Raises ValueError for a hole.
        """
        places = self._places(cells)
        inverse, weights = self._solution
        known = _covariance(places, self._seen)
        covariance: Array = _covariance(places, places) - known @ inverse @ known.T
        covariance += np.diag(places.runs)
        return np.asarray(places.prior + known @ weights, np.float64), covariance

    def ratio(self, first: GpuCell, second: GpuCell) -> tuple[float, float]:
        """ln(seconds on the second / seconds on the first), and its standard deviation as two runs would show it."""
        means, covariance = self.places([first, second])
        variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
        return float(means[0] - means[1]), math.sqrt(variance)

    def amp_ratio(self, cell: GpuCell) -> float:
        """ln(seconds with amp / seconds in fp32) of one model on one GPU, by its sheet."""
        both = self._places([cell._replace(precision=precision) for precision in ("amp", "fp32")])
        return float(both.prior[1] - both.prior[0]) - math.log(_LONGER_IN_32_BITS)

    def has_row(self, model: str, gpu: str) -> bool:
        """Whether a row is of this model on this GPU model."""
        return any(row.key == model and row.gpu == gpu for row in self.rows)


def cell_of(row: Speed, facts: Mapping[str, GpuFacts]) -> GpuCell:
    """Where a published number stands."""
    return GpuCell(
        row.key,
        facts[row.variant or row.gpu],
        row.precision,
        StepMix(strict=float(row.strict)),
        row.source.startswith(WHOLE_JOBS),
    )


@lru_cache(maxsize=1)
def shipped_sheets() -> dict[str, GpuFacts]:
    """The shipped data sheets by variant and, the first variant, by model."""
    return {gpu.model: gpu for gpu in reversed(gpus())} | {gpu.name: gpu for gpu in gpus()}


@lru_cache(maxsize=1)
def published_scale() -> GpuScale:
    """Fitted to every published speed that comes with Stash."""
    return GpuScale(speeds(), shipped_sheets())
