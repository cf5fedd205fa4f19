"""The highest level that all jobs reach together, by prices of GPU types (Dantzig and Wolfe, 1960).

max z with Σ_t r·x ≥ z·n for every job, Σ_t x ≤ 1 and Σ_j s·x ≤ N. Only the GPUs of types tie jobs together. Where a
GPU of type t has the price λ_t, each job by itself buys z·n cheapest on the lower hull of the points (r_t, λ_t), the
same for all jobs of a model; so whoever finds the prices, a handful of numbers, has solved a program of thousands of
rows. A small program mixes what jobs would take at the prices so far, and its dual values are the next prices. It
ends when what jobs would take reaches no more than the mixture: the optimum, up to ``GAP``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from stash.core.errors import StashError
from stash.schedule.linear import alike, quiet_solver
from stash.schedule.records import Floats, WholeNumbers

GAP = 1e-10
"""Between the level and what no shares can exceed, relative."""
_MOST = 500


@dataclass(frozen=True)
class CommonLevel:
    """An optimum: the level, shares by job and type, and what one more GPU of each type would add to the level."""

    level: float
    x: Floats
    prices: Floats


class PricedJobs:
    """Jobs by their rates, in parts of each one's fastest, and GPUs; solved for one need after another."""

    def __init__(self, rates: Floats, gpus: WholeNumbers, counts: WholeNumbers) -> None:
        groups = alike(rates, gpus)
        self._rates, self._kind = rates[groups.first], groups.member
        self._gpus, self._counts = gpus.astype(float), counts.astype(float)
        self._jobs = np.arange(len(gpus))
        self._prices: list[Floats] = [1.0 / self._counts]
        """What the last optimum mixes was taken at."""

    def highest(self, needs: Floats) -> CommonLevel:
        """The level for these needs; those of 0 ask for nothing. Raises StashError where prices do not settle."""
        cap = 1.0 / float(needs.max())
        master, bound, tried = _Mixture(self._counts), np.inf, [self._prices[0] * 1e-9, *self._prices]
        for prices in tried:
            master.add(*self._bought(prices, needs, cap))
        for _ in range(_MOST):
            level, prices = master.solve()
            found = self._bought(prices, needs, cap)
            bound = min(bound, found[0] + float(prices @ (self._counts - found[1])))
            if bound - level <= GAP * bound:
                break
            master.add(*found)
            tried.append(prices)
        else:
            raise StashError(
                f"prices of GPU types did not settle: after {_MOST} programs {len(needs)} jobs reach {level:.6g}, "
                f"not proven the most ({bound:.6g}); report it with the jobs, cluster and rates"
            )
        parts = master.parts()
        self._prices = [prices for prices, part in zip(tried, parts, strict=False) if part > 0]
        x = sum(part * x for part, x in zip(parts, master.x, strict=False) if part > 0)
        return CommonLevel(level, np.asarray(x, dtype=float), prices)

    def cost(self, prices: Floats, needs: Floats) -> float:
        """The least that these needs, at most 1, can be bought for: above prices·N they cannot all be met."""
        _, taken, _ = self._bought(prices, needs, 1.0, level=1.0)
        return float(prices @ taken)

    def _bought(
        self, prices: Floats, needs: Floats, cap: float, level: float | None = None
    ) -> tuple[float, Floats, Floats]:
        """The level at which one more costs more than it is worth, GPUs of each type taken for it, and shares."""
        types, rate, slope = _hulls(self._rates, prices)
        kind = self._kind
        if level is None:
            level = self._worthwhile(rate, slope, needs, cap)
        want, last = level * needs, np.isfinite(slope).sum(axis=1) - 1
        part = np.zeros(len(needs), dtype=np.int64)
        for step in range(1, int(last.max(initial=0)) + 1):  # beyond the last there is nothing to turn to
            part += want > np.where(step <= last, rate[:, step], np.inf)[kind]
        low, high = rate[kind, part], rate[kind, part + 1]
        share = np.clip((want - low) / (high - low), 0.0, 1.0)
        x = np.zeros((len(needs), len(prices)))
        x[self._jobs, types[kind, part + 1]] = share
        mixed = np.flatnonzero(part)
        x[mixed, types[kind[mixed], part[mixed]]] += 1.0 - share[mixed]
        return level, self._gpus @ x, x

    def _worthwhile(self, rate: Floats, slope: Floats, needs: Floats, cap: float) -> float:
        """Where the cost of one more unit of the level reaches 1: it rises as jobs turn to dearer mixtures."""
        asked, kind = needs * self._gpus, self._kind
        spent = float(asked @ slope[kind, 0])
        if spent >= 1.0:
            return 0.0
        turns = np.where(np.isfinite(slope[:, 1:]), rate[:, 1:-1], np.inf)
        jobs, step = np.nonzero(turns[kind] < cap * needs[:, None])
        moments, kind = turns[kind[jobs], step] / needs[jobs], kind[jobs]
        order = np.argsort(moments)
        over = spent + np.cumsum((asked[jobs] * (slope[kind, step + 1] - slope[kind, step]))[order]) >= 1.0
        return float(moments[order[over.argmax()]]) if over.any() else cap


def _hulls(rates: Floats, prices: Floats) -> tuple[WholeNumbers, Floats, Floats]:
    """Lower hulls of (rate, price) from (0, 0) to the fastest: types and rates of vertices, slopes between them.

    Shapes (models, types + 1) and (models, types); behind the last vertex rates and slopes are infinite.
    """
    models, count = rates.shape
    types = np.zeros((models, count + 1), dtype=np.int64)
    rate, slope = np.full((models, count + 1), np.inf), np.full((models, count), np.inf)
    rate[:, 0] = at = cost = np.zeros(models)
    for step in range(count):
        ahead = rates > at[:, None]
        rise = np.where(ahead, (prices - cost[:, None]) / np.where(ahead, rates - at[:, None], 1.0), np.inf)
        least = rise.min(axis=1)
        some = ahead.any(axis=1)
        if not some.any():
            break
        chosen = np.where(rise <= least[:, None], rates, -1.0).argmax(axis=1)  # of equal slopes the farthest
        types[:, step + 1] = np.where(some, chosen, types[:, step])
        at = np.where(some, rates[np.arange(models), chosen], at)
        cost = np.where(some, prices[chosen], cost)
        rate[some, step + 1], slope[some, step] = at[some], least[some]
    return types, rate, slope


class _Mixture:
    """max Σ μ·z with Σ μ ≤ 1 and Σ μ·D ≤ N over what jobs took at the prices so far: z, D and their shares."""

    def __init__(self, counts: Floats) -> None:
        self._counts = counts
        self._solver: Any = quiet_solver(dual_feasibility_tolerance=1e-10, primal_feasibility_tolerance=1e-10)
        self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for _ in range(len(counts) + 1):
            self._solver.addRow(-highspy.kHighsInf, 1.0, 0, np.zeros(0, dtype=np.int32), np.zeros(0))
        self._rows = np.arange(len(counts) + 1, dtype=np.int32)
        self.x: list[Floats] = []

    def add(self, level: float, taken: Floats, x: Floats) -> None:
        values = np.concatenate([[1.0], taken / self._counts])
        self._solver.addCol(level, 0.0, highspy.kHighsInf, len(values), self._rows, values)
        self.x.append(x)

    def solve(self) -> tuple[float, Floats]:
        """The level and the price of a GPU of each type."""
        self._solver.run()
        prices = np.abs(np.array(self._solver.getSolution().row_dual)[1:]) / self._counts
        return float(self._solver.getInfo().objective_function_value), prices

    def parts(self) -> list[float]:
        return list(self._solver.getSolution().col_value)
