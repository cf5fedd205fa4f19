"""Linear programs over shares of time, solved by scipy's HiGHS: maximise c·v within Σ_t x ≤ 1 and Σ_j s_j·x ≤ N_t.

One class builds the common constraints once; policies add rows of their own to each solution. Identical jobs are one
row that counts for several: the feasible set is convex and unchanged when two such jobs are exchanged, so the mean of
a solution over all exchanges is a solution too, and gives identical jobs equal shares.
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

from stash.core.errors import StashError
from stash.schedule.records import Floats, JobDemand, WholeNumbers

_TOLERANCE = 1e-10
_INFEASIBLE = 2
"""``linprog``'s status."""


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


class Infeasible(Exception):  # noqa: N818  # what a program is, not what went wrong
    """No shares of time satisfy all rows."""


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
    row_prices: Floats
    """Of the rows that a policy added, in their order."""


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
        most: float | None = None,
    ) -> Solution:
        """With these ``rows`` at ``least`` so much, and the further variable at ``most`` so much.

        Raises Infeasible, and StashError for what HiGHS cannot solve.
        """
        left, right = self._left, self._right
        if rows is not None and least is not None:
            left = vstack([left, -csr_array(rows)], format="csr")
            right = np.concatenate([right, -least])
        with _silence():
            found = linprog(
                -objective,
                A_ub=left,
                b_ub=right,
                bounds=[*self._bounds, (0.0, most)],
                method="highs",
                options={
                    "primal_feasibility_tolerance": _TOLERANCE,
                    "dual_feasibility_tolerance": _TOLERANCE,
                },
            )
        if found.status == _INFEASIBLE:
            raise Infeasible
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
            row_prices=prices[size + types :],
        )
