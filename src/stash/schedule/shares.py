"""Policies that share time by a linear program: max-min (LAS), makespan and cost.

Each is a pure function from the jobs that are there to ``x[j, t]``, the share of time that job j has on GPU type t:
Σ_t x ≤ 1 and Σ_j s_j·x ≤ N_t, with s the GPUs of a gang and N those of a type; thr_j = Σ_t R·x. Formulas after Gavel
(Narayanan et al., OSDI 2020, section 4), each solved exactly where its code bisects or stops at the first level.
Knows nothing of rounds and nodes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, eye_array, hstack, kron, vstack

from stash.core.errors import StashError, UserError
from stash.schedule.records import Floats, JobDemand, ShareAllocation, WholeNumbers

# Linear programs over shares of time, solved by scipy's HiGHS: maximise c·v within Σ_t x ≤ 1 and Σ_j s_j·x ≤ N_t.
#
# One class builds the common constraints once; policies add rows of their own to each solution. Identical jobs are one
# row that counts for several: the feasible set is convex and unchanged when two such jobs are exchanged, so the mean of
# a solution over all exchanges is a solution too, and gives identical jobs equal shares.

_TOLERANCE = 1e-10


@contextmanager
def _silence() -> Iterator[None]:
    """What HiGHS writes to the process's own output, past Python, belongs on no page."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@dataclass(frozen=True)
class Groups:
    """Identical jobs, merged: one row each, and how many jobs it stands for."""

    first: WholeNumbers
    """A member of each group."""
    member: WholeNumbers
    """Of each job, its group."""
    count: Floats

    @property
    def size(self) -> int:
        return len(self.first)


def merge_jobs(demand: JobDemand, *columns: Floats | WholeNumbers) -> Groups:
    """Groups of jobs that have the same rates, GPUs and ``columns``, by their bytes."""
    rows = np.ascontiguousarray(np.column_stack((demand.rates, demand.gpus, *columns)), float)
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, member, count = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    return Groups(first, member, count.astype(float))


@dataclass(frozen=True)
class Solution:
    """A solution: shares by group and type, the further variable, the objective and the prices of rows."""

    x: Floats
    extra: float
    objective: float
    type_prices: Floats


class ShareProgram:
    """max c·v over x[g, t] ≥ 0 and one more variable ≥ 0, the last.

    ``scaled``: that variable multiplies the right sides (Charnes–Cooper): Σ_t x ≤ τ, Σ s·x ≤ N·τ.
    """

    def __init__(self, demand: JobDemand, groups: Groups, scaled: bool = False) -> None:
        self.rates = demand.rates[groups.first]
        self.shape = self.rates.shape
        size, types = self.shape
        gpus = demand.gpus[groups.first] * groups.count
        left = vstack(
            [kron(eye_array(size), np.ones((1, types))), kron(gpus[None, :], eye_array(types))]
        )
        right = np.concatenate([np.ones(size), demand.counts])
        tau = -right[:, None] if scaled else np.zeros((len(right), 1))
        self._left = hstack([left, tau], format="csr")
        self._right = np.zeros(len(right)) if scaled else right
        # Where a job cannot run it gets no time: a share there would be one of nothing.
        self._bounds = [(0.0, None if rate > 0 else 0.0) for rate in self.rates.ravel()]

    def throughputs(self, per_rate: Floats, extra: Floats) -> csr_array:
        """For every group g the row per_rate[g]·Σ_t R·x + extra[g]·v, v the further variable."""
        size, types = self.shape
        rows = np.repeat(np.arange(size), types)
        values = (self.rates * per_rate[:, None]).ravel()
        left = coo_array((values, (rows, np.arange(size * types))), shape=(size, size * types))
        return hstack([left, coo_array(extra[:, None])], format="csr")

    def solve(
        self,
        objective: Floats,
        rows: csr_array | Floats | None = None,
        least: Floats | None = None,
    ) -> Solution:
        """With these ``rows`` at ``least`` so much; raises StashError for what HiGHS cannot solve."""
        left = self._left
        right = self._right
        if rows is not None and least is not None:
            left = vstack([left, -csr_array(rows)], format="csr")
            right = np.concatenate([right, -least])
        with _silence():
            found = linprog(
                -objective,
                A_ub=left,
                b_ub=right,
                bounds=[*self._bounds, (0.0, None)],
                method="highs",
                options={
                    "primal_feasibility_tolerance": _TOLERANCE,
                    "dual_feasibility_tolerance": _TOLERANCE,
                },
            )
        if found.x is None:
            rates = self.rates[self.rates > 0]
            raise StashError(
                f"no shares of time could be computed: rates from {rates.min():g} to {rates.max():g} steps/s lie too "
                "far apart; leave out the slowest jobs, or take --policy srtf"
            )
        size, types = self.shape
        prices = np.abs(found.ineqlin.marginals)
        return Solution(
            x=np.maximum(found.x[:-1].reshape(self.shape), 0.0),
            extra=float(found.x[-1]),
            objective=-float(found.fun),
            type_prices=prices[size : size + types],
        )


# Policies


def equal_rates(demand: JobDemand) -> Floats:
    """thr_j(x_eq): the rate with x = N_t/ΣN, a share of every type in proportion to its size."""
    return np.asarray(demand.rates @ (demand.counts / demand.counts.sum()), dtype=float)


def max_min(demand: JobDemand) -> ShareAllocation:
    """Least attained service, weighted: max z with s_j·thr_j(x) ≥ z·w_j·thr_j(x_eq).

    Of all shares with that z those with the most work, Σ thr_j/R_best,j, in a second program: Gavel's code takes
    whichever it finds first.
    """
    scale = demand.gpus / (demand.weight * equal_rates(demand))
    groups = merge_jobs(demand, demand.weight)
    program = ShareProgram(demand, groups)
    level = scale[groups.first]
    rows = program.throughputs(level, np.full(groups.size, -1.0))
    first = program.solve(_last_variable(program), rows, np.zeros(groups.size))
    kept = program.throughputs(level, np.zeros(groups.size))
    least = np.full(groups.size, first.extra * (1 - 1e-9))
    x = program.solve(_worth(demand, groups)[0], kept, least).x[groups.member]
    return ShareAllocation(np.minimum(x, 1.0), first.extra, first.type_prices)


def _last_variable(program: ShareProgram) -> Floats:
    """The further variable as the objective."""
    objective = np.zeros(program.rates.size + 1)
    objective[-1] = 1.0
    return objective


def makespan(demand: JobDemand) -> ShareAllocation:
    """max z with thr_j ≥ z·left_j: all are finished after T = 1/z, and no schedule of these jobs ends earlier.

    The objective is T in seconds, exactly; Gavel's code bisects it to 5 %.
    """
    seconds = demand.left / demand.best
    unit = max(
        float((demand.gpus * seconds).sum() / demand.counts.sum()), float(seconds.max()), 1e-9
    )
    groups = merge_jobs(demand, seconds)
    solved = _highest_level(demand, groups, seconds / unit)
    x = np.minimum(solved.x[groups.member], 1.0)
    return ShareAllocation(x, unit / solved.extra, solved.type_prices * unit / solved.extra**2)


def _highest_level(demand: JobDemand, groups: Groups, needs: Floats) -> Solution:
    """max z with thr_j/R_best,j ≥ z·n_j, the level that all jobs reach together of their ``needs``."""
    program = ShareProgram(demand, groups)
    rows = program.throughputs(1.0 / demand.best[groups.first], -needs[groups.first])
    return program.solve(_last_variable(program), rows, np.zeros(groups.size))


def cheapest(demand: JobDemand) -> ShareAllocation:
    """max (Σ thr_j/R_best,j) / (Σ c_t·s_j·x) with thr_j ≥ left_j/(D_j − now) for jobs with a deadline D.

    A ratio of linear functions, so one linear program in y = x·τ (Charnes and Cooper, 1962); of all shares with the
    best ratio, a second one takes those with the most work. The objective is seconds of work, each on its job's
    fastest type, per GPU dollar and hour. Deadlines that cannot be kept are relaxed by the least common factor.
    """
    if np.isnan(demand.costs).any():
        raise UserError(
            "policies by cost need a price for each GPU type; the cluster's file has those of some only"
        )
    # Rates that deadlines ask for, in parts of each job's fastest; 0 without one, or with one
    # that is over.
    late = relaxation(demand)
    with np.errstate(divide="ignore", invalid="ignore"):
        needs = demand.left / demand.best / (demand.deadline * late * (1 + 1e-9))
    needs = np.where(np.isfinite(demand.deadline) & (demand.deadline > 0), needs, 0.0)
    groups = merge_jobs(demand, needs)
    due = needs[groups.first] > 0
    value, cost = _worth(demand, groups)
    scaled = ShareProgram(demand, groups, scaled=True)
    kept = scaled.throughputs(1.0 / scaled.rates.max(axis=1), -needs[groups.first])[due]
    rows = vstack([csr_array(np.stack([cost, -cost])), kept])
    ratio = scaled.solve(value, rows, np.concatenate([[1.0, -1.0], np.zeros(due.sum())])).objective
    fullest = ShareProgram(demand, groups)
    kept = fullest.throughputs(1.0 / fullest.rates.max(axis=1), np.zeros(groups.size))[due]
    rows = vstack([csr_array((value - ratio * (1 - 1e-9) * cost)[None, :]), kept])
    solved = fullest.solve(value, rows, np.concatenate([[0.0], needs[groups.first][due]]))
    return ShareAllocation(np.minimum(solved.x[groups.member], 1.0), ratio, solved.type_prices)


def relaxation(demand: JobDemand) -> float:
    """The least factor by which the time to all deadlines has to be stretched so that shares keep them; 1 if none."""
    with np.errstate(divide="ignore"):
        needs = np.where(
            np.isfinite(demand.deadline) & (demand.deadline > 0),
            demand.left / demand.best / demand.deadline,
            0.0,
        )
    if not (needs > 0).any():
        return 1.0
    return max(1.0, 1.0 / _highest_level(demand, merge_jobs(demand, needs), needs).extra)


def _worth(demand: JobDemand, groups: Groups) -> tuple[Floats, Floats]:
    """Of each variable, Σ R/R_best and Σ c·s, groups counted."""
    at = groups.first
    count = groups.count[:, None]
    value = demand.rates[at] / demand.best[at][:, None] * count
    cost = demand.costs[None, :] * demand.gpus[at][:, None] * count
    return np.append(value.ravel(), 0.0), np.append(cost.ravel(), 0.0)
