"""Linear programs over shares of time, solved by HiGHS: maximise c·v within Σ_t x ≤ 1 and Σ_j s_j·x ≤ N_t.

One class builds the common constraints once; policies add rows and solve again from where the last solution was.
Identical jobs are one row that counts for several: the feasible set is convex and unchanged when two such jobs are
exchanged, so the mean of a solution over all exchanges is a solution too, and gives identical jobs equal shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from stash.core.errors import StashError
from stash.core.imports import require_package
from stash.schedule.records import Floats, JobDemand, WholeNumbers

_INFINITY = np.inf


def load_highs() -> Any:
    """The package highspy; raises UserError without it."""
    return require_package("highspy", "a policy that solves linear programs")


def quiet_solver(**options: Any) -> Any:
    """HiGHS on one thread and without presolve, which costs more than such programs, and with no program in it.

    There is one for the same options, as making one takes as long as solving: whoever asks next ends its program.
    """
    solver = _solver(**options)
    solver.clearModel()
    return solver


@cache
def _solver(**options: Any) -> Any:
    highspy = load_highs()

    class Quiet(highspy.Highs):  # type: ignore[misc, name-defined]
        """HiGHS without its callbacks: they take time, and the first prints a banner before an option can stop it."""

        def __init__(self) -> None:
            super(highspy.Highs, self).__init__()

    solver: Any = Quiet()
    for name, value in {"output_flag": False, "threads": 1, "presolve": "off", "random_seed": 0, **options}.items():
        solver.setOptionValue(name, value)
    return solver


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


def merged(demand: JobDemand, *columns: Floats | WholeNumbers) -> Groups:
    """Groups of jobs that have the same rates, GPUs and ``columns``, by their bytes."""
    rows = np.ascontiguousarray(np.column_stack((demand.rates, demand.gpus, *columns)), float)
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, member, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    return Groups(first, member, count.astype(float))


@dataclass(frozen=True)
class Solved:
    """A solution: shares by group and type, further variables, the objective and the prices of rows."""

    x: Floats
    extra: Floats
    objective: float
    type_prices: Floats
    row_prices: Floats
    """Of the rows that a policy added, in their order."""


class ShareProgram:
    """max c·v over x[g, t] ≥ 0 and ``extra`` more variables ≥ 0.

    ``scaled``: the last extra variable τ multiplies the right sides (Charnes–Cooper): Σ_t x ≤ τ, Σ s·x ≤ N·τ.
    ``primal``: by the primal simplex method from x = 0, faster where that is feasible and rows are few or alike.
    """

    def __init__(
        self, demand: JobDemand, groups: Groups, extra: int = 1, scaled: bool = False, primal: bool = False
    ) -> None:
        self.rates = demand.rates[groups.first]
        self.gpus = demand.gpus[groups.first].astype(float)
        self.count = groups.count
        self.shape = self.rates.shape
        self._extra, self._rows, self._added = extra, 0, 0
        self._solver = quiet_solver(simplex_strategy=4 if primal else 1)
        self._build(demand.counts.astype(float), scaled)

    @property
    def columns(self) -> int:
        return self.rates.size + self._extra

    def _build(self, counts: Floats, scaled: bool) -> None:
        groups, types = self.shape
        size, rows = groups * types, groups + types
        place = np.arange(size, dtype=np.int32).reshape(groups, types)
        index, values = [place, place.T], [np.ones(self.shape), np.tile(self.gpus * self.count, (types, 1))]
        right = [np.ones(groups), counts]
        if scaled:
            tau = [np.full((len(each), 1), self.columns - 1, dtype=np.int32) for each in right]
            index = [np.hstack(pair) for pair in zip(index, tau, strict=True)]
            values = [np.hstack((each, -by[:, None])) for each, by in zip(values, right, strict=True)]
            right = [np.zeros(rows)]
        start = np.cumsum([0] + [types + scaled] * groups + [groups + scaled] * types, dtype=np.int32)
        # Where a job cannot run it gets no time: a share there would be one of nothing.
        upper = np.full(self.columns, _INFINITY)
        upper[:size][self.rates.ravel() <= 0] = 0.0
        zeros = np.zeros(self.columns)
        highspy = load_highs()
        self._solver.passModel(
            self.columns, rows, int(start[-1]), int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMaximize),
            0.0, zeros, zeros, upper, np.full(rows, -_INFINITY), np.concatenate(right), start[:-1],
            np.concatenate([each.ravel() for each in index]), np.concatenate([each.ravel() for each in values]),
            np.zeros(self.columns, dtype=np.int32),
        )  # fmt: skip
        self._rows = rows

    def column(self, number: int) -> int:
        """The place of an extra variable."""
        return int(self.rates.size) + number

    def add_throughputs(self, per_rate: Floats, of_extra: Floats, lower: Floats) -> None:
        """For every group g the row per_rate[g]·Σ_t R·x + of_extra[g]·v ≥ lower[g], v the first extra variable."""
        groups, types = self.shape
        index = np.concatenate([np.arange(groups * types).reshape(groups, types),
                                np.full((groups, 1), self.column(0))], axis=1)  # fmt: skip
        values = np.concatenate([self.rates * per_rate[:, None], of_extra[:, None]], axis=1)
        start = np.arange(groups) * (types + 1)
        self._solver.addRows(
            groups, lower, np.full(groups, _INFINITY), index.size, start.astype(np.int32),
            index.ravel().astype(np.int32), values.ravel(),
        )  # fmt: skip
        self._added += groups

    def add_row(self, values: Floats, lower: float = -_INFINITY, upper: float = _INFINITY) -> None:
        """One row over all variables."""
        used = np.flatnonzero(values)
        self._solver.addRow(lower, upper, len(used), used.astype(np.int32), values[used])
        self._added += 1

    def set_objective(self, values: Floats) -> None:
        self._solver.changeColsCost(self.columns, np.arange(self.columns, dtype=np.int32), values)

    def set_coefficient(self, row: int, column: int, value: float) -> None:
        """Of an added row."""
        self._solver.changeCoeff(self._rows + row, column, value)

    def set_upper(self, column: int, value: float) -> None:
        """Of a variable."""
        self._solver.changeColBounds(column, 0.0, value)

    def set_lower(self, row: int, value: float) -> None:
        """Of an added row."""
        self._solver.changeRowBounds(self._rows + row, value, _INFINITY)

    def solve(self) -> Solved:
        """Raises Infeasible, and StashError for what HiGHS cannot solve."""
        status_names = load_highs().HighsModelStatus
        self._solver.run()
        status = self._solver.getModelStatus()
        if status == status_names.kUnknown:  # now and then the last solution is no beginning for this one
            self._solver.clearSolver()
            self._solver.run()
            status = self._solver.getModelStatus()
        if status == status_names.kInfeasible:
            raise Infeasible
        if status != status_names.kOptimal:
            raise StashError(f"HiGHS cannot solve the program: {self._solver.modelStatusToString(status)}")
        found = self._solver.getSolution()
        values, prices = np.array(found.col_value), np.array(found.row_dual)
        groups, types = self.shape
        return Solved(
            x=np.maximum(values[: groups * types].reshape(self.shape), 0.0),
            extra=values[groups * types :],
            objective=float(self._solver.getInfo().objective_function_value),
            type_prices=np.abs(prices[groups : groups + types]),
            row_prices=np.abs(prices[self._rows :]),
        )
