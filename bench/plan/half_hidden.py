"""A published table of which a part is hidden: the split, and forecasts of what is hidden from what is not.

A cell is forecast by the exchange on links whose data sheet is known, or by cores that make samples, as the product
does. All others are on one scale, as GPUs are (``stash.predict.gpu_scale``): ln(rate) of a job on a set-up is the
model's constant, what data sheets and an even share of work say, and what exponents of data sheets (all models' and
this one's), the batch, the set-up, the model's growth with the number of GPUs, and the model on that GPU or set-up
are off by, at batches like this one. Every unknown is normal; how large each kind is, is read from the visible part
alone (the most likely, Rasmussen and Williams 2006, chapter 5). One job's hidden cells are drawn together, so an
error that they share is no reason to prefer one. Only what is visible is handed to a ``Known``; the hidden numbers
are not in its memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

from bench.plan.tables import Cells, Job, Setup
from bench.predict import published as links
from stash.catalog.reference import model_key
from stash.predict import compute_ratios
from stash.predict.draws import Array, Draws
from stash.predict.gpu_pairs import arm
from stash.predict.gpu_scale import RULE, rates

Table = Mapping[Job, Cells]
Cell: TypeAlias = tuple[Job, Setup]
DRAWS = Draws()
FEW = 3
"""Errors: of fewer no spread is taken."""
PLATEAU = 0.95
"""Of the most that was seen trained, or made: what lies above counts as all of it."""
UNKNOWN = math.log(10)
"""Half of an interval where fewer errors than that are visible: a factor of ten either way."""
SPREAD = 0.1
"""Of each kind of error before anything is seen, as standard deviation of a logarithm, known to a factor of e."""
ALIKE = math.log(4)
"""Batches' logarithms that differ by this much say little of each other."""
_FREE = 10.0
"""Of a model's constant: nothing is known of it."""
_ROUNDING = 1e-6
"""Variance of every number beside all others, for the arithmetic."""
_BATCH = 64
"""Stands for a batch that was not published."""


def half_of_cells(table: Table, seed: int) -> Table:
    """What stays visible: each job's cells are shuffled, and the first half of them kept, one at least."""
    random = np.random.default_rng(seed)
    found = {}
    for job, cells in table.items():
        order = random.permutation(len(cells))[: max(1, len(cells) // 2)]
        setups = list(cells)
        found[job] = {setups[number]: cells[setups[number]] for number in sorted(order)}
    return found


def half_of_models(table: Table, seed: int) -> Table:
    """What stays visible: all of one half of the models, and of the others one cell a job, on the fewest GPUs."""
    random = np.random.default_rng(seed)
    models = sorted({model_key(job.model) for job in table})
    hidden = {models[number] for number in random.permutation(len(models))[: (len(models) + 1) // 2]}
    return {job: _first(cells) if model_key(job.model) in hidden else dict(cells) for job, cells in table.items()}


def _first(cells: Cells) -> Cells:
    setup = min(cells, key=lambda each: (each.count, each.dollars_per_hour, each.name))
    return {setup: cells[setup]}


@dataclass(frozen=True, eq=False)
class Known:
    """The visible part of a table, and what it says of the rest."""

    visible: Table

    def seconds_per_sample(self, job: Job, setups: Sequence[Setup]) -> dict[Setup, Array]:
        """Of hidden cells of one job, ``[draws]`` each: errors that they share are the same in each draw."""
        found = dict(zip(setups, self._on_the_scale(job, setups), strict=True))
        for setup in setups:
            for known in (self._by_links(job, setup), self._by_cores(job, setup)):
                if known is not None:
                    found[setup] = known
        return found

    def _by_cores(self, job: Job, setup: Setup) -> Array | None:
        """Cores make samples at the rate that they were seen to, up to what the GPU trains.

        No faster than with more cores, nor slower than with fewer: of what is drawn, only that between is possible.
        """
        seen = self.visible[job]
        rate = _supplied(seen, setup)
        if rate is None or setup.cores is None:
            return None
        least = max((each for of, each in seen.items() if (of.cores or 0) <= setup.cores), default=0.0)
        most = min((each for of, each in seen.items() if (of.cores or 0) >= setup.cores), default=math.inf)
        spread = self._spread_of_cores / 1.96
        low, high = (ndtr(np.log(max(each, 1e-300) / rate) / spread) for each in (least, max(least, most)))
        places = low + (high - low) * DRAWS.uniforms(f"{job.name} on {setup.name}")
        return np.asarray(np.exp(-spread * ndtri(places)) / rate, np.float64)

    def _by_links(self, job: Job, setup: Setup) -> Array | None:
        """One GPU of the same machine, and the exchange over its links, as forecasts without a profile do."""
        machine = links.MACHINES.get(setup.machine)
        alone = next((s for s in self.visible[job] if s.machine == setup.machine and s.count == 1), None)
        if machine is None or alone is None or setup.count == 1:
            return None
        samples = float(job.batch or 128)
        step = samples / self.visible[job][alone]
        # Each set-up by itself: what one loses to crowding says little of what another does.
        lost = compute_ratios.crowded(DRAWS.uniforms(f"{job.name} on {setup.name}"))
        fabric = links.fabric(machine, setup.nodes, setup.count // setup.nodes)
        whole = step * (1 + lost) + links.exposed(links.model(job.model), step, fabric)
        return np.asarray(whole / samples / setup.count, np.float64)

    # One scale of everything visible

    def _on_the_scale(self, job: Job, setups: Sequence[Setup]) -> Array:
        """Seconds for a sample, ``[setups, draws]``."""
        asked = [(job, setup) for setup in setups]
        variances, inverse, weights = self._fitted
        known = _Alike.of(asked, self._cells).covariance(variances)
        middles = _expected(asked) + known @ weights
        left = _Alike.of(asked, asked).covariance(variances) - known @ inverse @ known.T
        normals = np.array([DRAWS.normals(f"{job.name} on {setup.name}") for setup in setups])
        drawn: Array = np.exp(
            -middles[:, np.newaxis] - np.linalg.cholesky(left + _ROUNDING * np.eye(len(left))) @ normals
        )
        return drawn

    @cached_property
    def _cells(self) -> list[Cell]:
        return [(job, setup) for job, cells in self.visible.items() for setup in cells]

    @cached_property
    def _fitted(self) -> tuple[Array, Array, Array]:
        """Variances of the kinds of errors, most likely given the visible rates; the inverse of the rates' covariance
        then, and that times what is left of their logarithms."""
        alike = _Alike.of(self._cells, self._cells)
        left = np.array([math.log(self.visible[job][setup]) for job, setup in self._cells]) - _expected(self._cells)

        def solved(logs: Array) -> tuple[Array, Array, Array]:
            variances = np.exp(2 * logs)
            covariance = alike.covariance(variances) + _ROUNDING * np.eye(len(left))
            inverse = np.asarray(np.linalg.inv(covariance), np.float64)
            return variances, inverse, np.asarray(inverse @ left, np.float64)

        def unlikely(logs: Array) -> tuple[float, Array]:
            """Minus the logarithm of the likelihood, and its slopes."""
            variances, inverse, weights = solved(logs)
            away = logs - math.log(SPREAD)
            value = (left @ weights - np.linalg.slogdet(inverse)[1] + away @ away) / 2
            fits = np.einsum("i,kij,j->k", weights, alike.kinds, weights)
            return float(value), variances * (np.einsum("ij,kij->k", inverse, alike.kinds) - fits) + away

        start = np.full(len(alike.kinds), math.log(SPREAD))
        return solved(minimize(unlikely, start, jac=True, method="L-BFGS-B", options={"maxiter": 40}).x)

    @cached_property
    def _spread_of_cores(self) -> float:
        errors = []
        for cells in self.visible.values():
            for setup, rate in cells.items():
                supplied = _supplied({each: seen for each, seen in cells.items() if each != setup}, setup)
                errors += [math.log(rate / supplied)] if supplied else []
        return arm(errors) if len(errors) >= FEW else UNKNOWN


def _expected(cells: Sequence[Cell]) -> Array:
    """ln(rate) by data sheets, each GPU adding its whole, but for the job's constant, ``[cells]``."""
    found = []
    for job, setup in cells:
        sheet = rates(setup.facts, job.precision)
        assert sheet is not None
        found.append(float(np.dot(RULE, sheet)) + math.log(setup.count))
    return np.array(found)


def _same(one: Sequence[object], other: Sequence[object]) -> Array:
    return np.array([[float(first == second) for second in other] for first in one])


@dataclass(frozen=True, eq=False)
class _Alike:
    """How alike two lists of cells are in each way in which both may be off."""

    kinds: Array
    """``[kinds, one, other]``."""
    constant: Array
    """``[one, other]``."""

    @classmethod
    def of(cls, one: Sequence[Cell], other: Sequence[Cell]) -> _Alike:
        def size(cells: Sequence[Cell]) -> Array:
            return np.array([[math.log(setup.count), math.log(setup.cores or 1)] for _, setup in cells])

        def batch(cells: Sequence[Cell]) -> Array:
            return np.array([math.log((job.batch or _BATCH) / _BATCH) for job, _ in cells])

        def sheet(cells: Sequence[Cell]) -> Array:
            return np.array([rates(setup.facts, job.precision) for job, setup in cells], np.float64)

        def series(cells: Sequence[Cell]) -> list[tuple[str, str, str]]:
            return [(job.source, model_key(job.model), job.precision) for job, _ in cells]

        setups = _same([setup for _, setup in one], [setup for _, setup in other])
        gpus = _same([setup.gpu for _, setup in one], [setup.gpu for _, setup in other])
        models = _same([model_key(job.model) for job, _ in one], [model_key(job.model) for job, _ in other])
        jobs, same = _same([job for job, _ in one], [job for job, _ in other]), _same(series(one), series(other))
        alike = models * np.exp(-((np.subtract.outer(batch(one), batch(other)) / ALIKE) ** 2) / 2)
        grown, along = size(one) @ size(other).T, sheet(one) @ sheet(other).T
        batches = same * np.outer(batch(one), batch(other))
        of_setups = (setups, grown, alike * grown, alike * gpus, alike * setups, jobs * setups)
        return cls(np.array([*of_setups, batches, jobs, models * along, along]), _FREE**2 * same)

    def covariance(self, variances: Array) -> Array:
        found: Array = self.constant + np.tensordot(variances, self.kinds, 1)
        return found


def _supplied(seen: Mapping[Setup, float], setup: Setup) -> float | None:
    """Samples per second with this many cores: DS-Analyzer's min(P, G), as the queue of workers is for equal batches.

    P is known from fewer cores than the GPU could use, G from more; ``None`` where the one that is asked for is not.
    """
    known = {each.cores: rate for each, rate in seen.items() if each.cores is not None}
    if setup.cores is None or not known:
        return None
    trained = max(known.values())
    waiting = {cores: rate for cores, rate in known.items() if rate < PLATEAU * trained}
    enough = [cores for cores in known if cores not in waiting]
    made = max((rate / cores for cores, rate in waiting.items()), default=None) or trained / min(enough)
    reached = len(enough) > 1 or trained < PLATEAU * made * min(enough)
    if setup.cores >= min(enough):
        return trained if reached else None
    return min(made * setup.cores, trained) if waiting or not reached else None
