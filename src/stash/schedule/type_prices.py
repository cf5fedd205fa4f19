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

import numpy as np

from stash.core.errors import StashError
from stash.schedule.linear import load_highs, quiet_solver
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
    """Jobs by their rates, in parts of each one's fastest, and GPUs; solved for one need after another.

    Jobs of the same ``model``, any whole number, have the same rates and GPUs.
    """

    def __init__(self, rates: Floats, gpus: WholeNumbers, counts: WholeNumbers, model: WholeNumbers) -> None:
        _, first, self._kind = np.unique(model, return_index=True, return_inverse=True)
        self._rates, self._gpus, self._counts = rates[first], gpus[first].astype(float), counts.astype(float)
        self._prices: list[Floats] = [1.0 / self._counts]
        """What the last optimum mixes was taken at."""

    def highest(self, needs: Floats) -> CommonLevel:
        """The level for these needs; those of 0 ask for nothing. Raises StashError where prices do not settle."""
        ordered, bound = _OrderedNeeds(self._kind, needs, self._gpus), np.inf
        master, tried = _Mixture(self._counts), [self._prices[0] * 1e-9, *self._prices]
        taken = [_Purchase(prices, self._rates, ordered) for prices in tried]
        for each in taken:
            master.add(each)
        for _ in range(_MOST):
            level, prices = master.solve()
            found = _Purchase(prices, self._rates, ordered)
            bound = min(bound, found.level + float(prices @ (self._counts - found.gpus)))
            if bound - level <= GAP * bound:
                break
            master.add(found)
            tried.append(prices)
            taken.append(found)
        else:
            raise StashError(
                f"prices of GPU types did not settle: after {_MOST} programs {len(needs)} jobs reach {level:.6g}, "
                f"not proven the most ({bound:.6g}); report it with the jobs, cluster and rates"
            )
        used = [(at, part) for at, part in enumerate(master.parts()) if part > 0]
        self._prices = [tried[at] for at, _ in used]
        x = np.empty((len(needs), len(prices)))
        x[ordered.order] = sum(part * taken[at].shares() for at, part in used)
        return CommonLevel(level, x, prices)

    def cost(self, prices: Floats, needs: Floats) -> float:
        """The least that these needs, at most 1, can be bought for: above prices·N they cannot all be met."""
        _, rate, slope = _hulls(self._rates, prices)
        each = np.where(np.isfinite(slope), slope, 0.0) * self._gpus[:, None]
        parts = (np.maximum(np.minimum(needs, rate[self._kind, step + 1]) - rate[self._kind, step], 0.0)
                 for step in range(len(prices)))  # fmt: skip
        return float(sum(each[self._kind, step] @ part for step, part in enumerate(parts)))


class _OrderedNeeds:
    """Needs by model and size, with running sums: what some jobs of a model need together is two binary searches."""

    def __init__(self, kind: WholeNumbers, needs: Floats, gpus: Floats) -> None:
        keys = kind + 1j * needs  # complex numbers are ordered by their first parts, then by their second
        self.order = np.argsort(keys)
        self._keys = keys[self.order]
        self.needs, self.gpus, self.most = needs[self.order], gpus, float(needs.max())
        self.sums = np.concatenate([[0.0], np.cumsum(self.needs)])
        kinds = np.arange(len(gpus))
        self.start, self.end = np.searchsorted(self._keys, kinds), np.searchsorted(self._keys, kinds + 1)
        self.asking = self.places(kinds, np.full(len(gpus), 5e-324))
        """Of each model the first job that needs anything."""

    def places(self, kind: WholeNumbers, least: Floats) -> WholeNumbers:
        """Where in the order the jobs of these models begin that need at least so much."""
        return np.searchsorted(self._keys, kind + 1j * np.minimum(least, 1e300))


class _Purchase:
    """What jobs buy at some prices: the level at which one more costs more than it is worth, and GPUs for it."""

    def __init__(self, prices: Floats, rates: Floats, ordered: _OrderedNeeds) -> None:
        self._types, rate, slope = _hulls(rates, prices)
        self._ordered = ordered
        self.level = _worthwhile(rate, slope, ordered)
        kinds, types = slope.shape
        places = np.empty((kinds, types + 1), dtype=np.int64)
        places[:, 0], places[:, -1] = ordered.start, ordered.end
        with np.errstate(divide="ignore"):
            places[:, 1:-1] = ordered.places(np.arange(kinds)[:, None], rate[:, 1:-1] / self.level)
        self._jobs = np.diff(places)
        """By model and part of its hull, those that have turned to it; then where a part begins, and how long."""
        self._low = np.where(np.isfinite(rate[:, :-1]), rate[:, :-1], 0.0)
        self._long = rate[:, 1:] - self._low
        upper = (self.level * np.diff(ordered.sums[places]) - self._jobs * self._low) / self._long
        weight = ordered.gpus[:, None] * np.concatenate([upper, (self._jobs - upper)[:, 1:]], axis=1)
        kind = np.concatenate([self._types[:, 1:], self._types[:, 1:-1]], axis=1)
        self.gpus = np.bincount(kind.ravel(), weight.ravel(), types)
        """Of each type, those taken."""

    def shares(self) -> Floats:
        """x in the order of the needs."""
        needs, (_, types) = self._ordered.needs, self._jobs.shape
        part = np.repeat(np.arange(self._jobs.size), self._jobs.ravel())
        upper = np.clip((self.level * needs - self._low.ravel()[part]) / self._long.ravel()[part], 0.0, 1.0)
        x, jobs = np.zeros((len(needs), types)), np.arange(len(needs))
        x[jobs, self._types[:, 1:].ravel()[part]] = upper
        mixed = np.flatnonzero(part % types)
        x[mixed, self._types[:, :-1].ravel()[part[mixed]]] += 1.0 - upper[mixed]
        return x


def _worthwhile(rate: Floats, slope: Floats, ordered: _OrderedNeeds) -> float:
    """Where the cost of one more unit of the level reaches 1: it rises as jobs turn to dearer mixtures.

    A job turns at rate ÷ need. Bisected between such moments, so that it ends at one of them exactly.
    """
    sums, needs, cap = ordered.sums, ordered.needs, 1.0 / ordered.most
    spent = float((ordered.gpus * slope[:, 0]) @ (sums[ordered.end] - sums[ordered.start]))
    if spent >= 1.0:
        return 0.0
    kind, step = np.nonzero(np.isfinite(slope[:, 1:]))
    turn, rise = rate[kind, step + 1], ordered.gpus[kind] * (slope[kind, step + 1] - slope[kind, step])
    first, end = ordered.asking[kind], ordered.end[kind]

    def after(level: float) -> tuple[WholeNumbers, bool]:
        """Where the jobs begin that have turned by then, and whether these make it worth no more."""
        places = ordered.places(kind, turn / level)
        return places, spent + float(rise @ (sums[end] - sums[places])) >= 1.0

    low, high = 0.0, cap
    if not after(cap)[1]:
        return cap
    while low < (middle := (low + high) / 2) < high:
        places, over = after(middle)
        if over:
            some = places < end
            high = min(middle, float((turn[some] / needs[places[some]]).max()))
        else:
            some = places > first
            low = max(middle, float((turn[some] / needs[places[some] - 1]).min()))
    return high


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
        self._solver.changeObjectiveSense(load_highs().ObjSense.kMaximize)
        for _ in range(len(counts) + 1):
            self._solver.addRow(-np.inf, 1.0, 0, np.zeros(0, dtype=np.int32), np.zeros(0))
        self._rows = np.arange(len(counts) + 1, dtype=np.int32)

    def add(self, found: _Purchase) -> None:
        values = np.concatenate([[1.0], found.gpus / self._counts])
        self._solver.addCol(found.level, 0.0, np.inf, len(values), self._rows, values)

    def solve(self) -> tuple[float, Floats]:
        """The level and the price of a GPU of each type."""
        self._solver.run()
        prices = np.abs(np.array(self._solver.getSolution().row_dual)[1:]) / self._counts
        return float(self._solver.getInfo().objective_function_value), prices

    def parts(self) -> list[float]:
        return list(self._solver.getSolution().col_value)
