"""Policies that share time by a linear program: max-min (LAS), makespan, finish-time fairness and cost.

Each is a pure function from the jobs that are there to ``x[j, t]``, the share of time that job j has on GPU type t:
Σ_t x ≤ 1 and Σ_j s_j·x ≤ N_t, with s the GPUs of a gang and N those of a type; thr_j = Σ_t R·x. Formulas after Gavel
(Narayanan et al., OSDI 2020, section 4), each solved exactly where its code bisects or stops at the first level.
Knows nothing of rounds and nodes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from stash.core.errors import UserError
from stash.schedule.linear import Groups, Infeasible, ShareProgram, Solved, merged
from stash.schedule.records import Floats, JobDemand, ShareAllocation, WholeNumbers
from stash.schedule.type_prices import CommonLevel, PricedJobs

PRECISION = 1e-6
"""Of ρ, relative."""
_PRICED = 1e-7
"""A dual value above this is one."""


def equal_rates(demand: JobDemand) -> Floats:
    """thr_j(x_eq): the rate with x = N_t/ΣN, a share of every type in proportion to its size."""
    return np.asarray(demand.rates @ (demand.counts / demand.counts.sum()), dtype=float)


def isolated_shares(demand: JobDemand) -> Floats:
    """1/m of the cluster each, m the jobs: x = N_t/(m·s_j), scaled down to Σ_t x ≤ 1."""
    share = demand.counts[None, :] / (len(demand) * demand.gpus[:, None])
    return np.asarray(share / np.maximum(share.sum(axis=1, keepdims=True), 1.0), dtype=float)


def isolated_rates(demand: JobDemand) -> Floats:
    """The rate alone on these shares."""
    return np.asarray((demand.rates * isolated_shares(demand)).sum(axis=1), dtype=float)


def max_min(demand: JobDemand, fill: bool = True) -> ShareAllocation:
    """Least attained service, weighted: max z with s_j·thr_j(x) ≥ z·w_j·thr_j(x_eq).

    ``fill``: water-filling to the lexicographic optimum (``_Filling``); without it, whichever optimum is found first,
    as in Gavel's code. No job is above its ceiling, its fastest type all the time. So no program is needed where
    those types have the GPUs for all jobs at their ceilings, or without filling at the lowest one's.
    """
    scale = demand.gpus / (demand.weight * equal_rates(demand))
    ceiling = scale * demand.best
    share = np.ones(len(demand)) if fill else ceiling.min() / ceiling
    fastest = demand.rates.argmax(axis=1)
    if (np.bincount(fastest, share * demand.gpus, len(demand.counts)) <= demand.counts).all():
        x = np.zeros(demand.rates.shape)
        x[np.arange(len(demand)), fastest] = share
        return ShareAllocation(x, float(ceiling.min()), np.zeros(len(demand.counts)), ceiling * share)
    groups = merged(demand, demand.weight)
    filling = _Filling(demand, groups, scale[groups.first])
    first = filling.solve()
    solved = filling.filled(first) if fill else first
    x = solved.x[groups.member]
    levels = scale * (demand.rates * x).sum(axis=1)
    return ShareAllocation(np.minimum(x, 1.0), float(first.extra[0]), first.type_prices, levels)


class _Filling:
    """Levels raised together until each group is held: by its ceiling, its fastest type all the time, or by GPUs.

    The groups whose ceilings are lowest reach them first, so how many of them do is found by bisection: with k of
    them held there, the others reach a z that is at least the k-th ceiling or not. What GPUs hold at z has a dual
    value in every optimum, so it is held there and the others go on.
    """

    def __init__(self, demand: JobDemand, groups: Groups, scale: Floats) -> None:
        self.program = ShareProgram(demand, groups, primal=True)
        self.program.add_throughputs(scale, -np.ones(groups.size), np.zeros(groups.size))
        objective = np.zeros(self.program.columns)
        objective[self.program.column(0)] = 1.0
        self.program.set_objective(objective)
        self.ceiling = scale * demand.rates[groups.first].max(axis=1)
        self.held = np.full(groups.size, np.nan)
        """The level of each group in the program as it is; NaN where it rises with z."""

    def solve(self) -> Solved:
        return self.program.solve()

    def hold(self, levels: Floats) -> None:
        """Change rows to these levels, NaN for z."""
        column = self.program.column(0)
        for row in np.flatnonzero(~((levels == self.held) | (np.isnan(levels) & np.isnan(self.held)))):
            rises = bool(np.isnan(levels[row]))
            self.program.set_coefficient(int(row), column, -1.0 if rises else 0.0)
            self.program.set_lower(int(row), 0.0 if rises else float(levels[row]) * (1 - 1e-9))
        self.held = levels.copy()

    def filled(self, solved: Solved) -> Solved:
        """The lexicographic optimum, from the solution for z alone."""
        fixed = self.held.copy()
        self.program.set_upper(self.program.column(0), float(self.ceiling.max()))
        while True:
            rising = np.flatnonzero(np.isnan(fixed))
            rising = rising[np.argsort(self.ceiling[rising], kind="stable")]
            low, high, best = 0, len(rising), solved
            while low < high:
                middle = (low + high + 1) // 2
                one = self.at_ceilings(fixed, rising[:middle])
                if one is not None and float(one.extra[0]) >= self.ceiling[rising[middle - 1]] * (1 - 1e-9):
                    low, best = middle, one
                else:
                    high = middle - 1
            solved = self.at_ceilings(fixed, rising[:low]) or best
            z = float(solved.extra[0])
            fixed[rising[:low]] = self.ceiling[rising[:low]]
            rest = rising[low:]
            stuck = rest[(solved.row_prices[rest] > _PRICED) | (self.ceiling[rest] <= z * (1 + 1e-9))]
            fixed[stuck] = z
            if not len(stuck) or len(stuck) == len(rest):
                return solved

    def at_ceilings(self, fixed: Floats, some: WholeNumbers) -> Solved | None:
        """With these at their ceilings; ``None`` where they cannot all be."""
        levels = fixed.copy()
        levels[some] = self.ceiling[some]
        self.hold(levels)
        try:
            return self.solve()
        except Infeasible:
            return None


def blind(demand: JobDemand, allocation: ShareAllocation) -> ShareAllocation:
    """Shares of whoever takes all GPUs for equal: each job's total over all types in proportion to their sizes.

    It keeps Σ_t x of every job, so it is another optimum of a program that saw no types. What falls on a type where
    a job does not run is lost to it: a blind policy does not know.
    """
    total = allocation.x.sum(axis=1, keepdims=True)
    return replace(allocation, x=total * demand.counts[None, :] / demand.counts.sum(), type_prices=None)


def max_min_blind(demand: JobDemand, fill: bool = True) -> ShareAllocation:
    """Max-min with R = 1 everywhere: equal time, whatever it is worth."""
    return blind(demand, max_min(replace(demand, rates=np.ones_like(demand.rates)), fill))


def makespan(demand: JobDemand) -> ShareAllocation:
    """max z with thr_j ≥ z·left_j: all are finished after T = 1/z, and no schedule of these jobs ends earlier.

    The objective is T in seconds, exactly; Gavel's code bisects it to 5 %.
    """
    seconds = demand.left / demand.best
    unit = max(float((demand.gpus * seconds).sum() / demand.counts.sum()), float(seconds.max()), 1e-9)
    found = _priced(demand).highest(seconds / unit)
    return _at_level(found, found.x, unit / found.level, unit / found.level**2)


def _priced(demand: JobDemand) -> PricedJobs:
    return PricedJobs(demand.rates / demand.best[:, None], demand.gpus, demand.counts, demand.model)


def as_fastest(demand: JobDemand) -> JobDemand:
    """The same jobs with every type as fast as each job's fastest: for makespan and fairness without types."""
    return replace(demand, rates=np.repeat(demand.best[:, None], demand.rates.shape[1], axis=1))


def finish_time_fairness(demand: JobDemand) -> ShareAllocation:
    """min ρ with elapsed_j + left_j/thr_j ≤ ρ·T_iso,j (Themis, NSDI 2020); the objective is ρ.

    T_iso is the time that the whole job takes alone on 1/m of the cluster. For a fixed ρ jobs need thr_j at least
    left_j/(ρ·T_iso − elapsed), and all can have it if and only if the highest level for these needs is 1. The prices
    of types at that level bound ρ: what cannot be paid for at any prices cannot be reached, and the ρ at which these
    ask for all that N is worth is the next one: Newton's method, from below. The x of each ρ has a worst ratio of
    its own, and ends the search from above.
    """
    alone, work = demand.left / isolated_rates(demand), demand.left / demand.best
    elapsed, isolated, jobs = demand.elapsed, demand.isolated + alone, _priced(demand)

    def needs(rho: float) -> Floats:
        return np.minimum(work / (rho * isolated - elapsed), 1.0)

    high, best = float(((elapsed + alone) / isolated).max()), isolated_shares(demand) * (demand.rates > 0)
    low = rho = float(((elapsed + work) / isolated).max())  # nobody is faster than on its fastest type
    while True:
        found, before = jobs.highest(needs(rho)), (low, high)
        rates = (demand.rates * found.x).sum(axis=1) / demand.best
        own = float(((elapsed + work / np.maximum(rates, 1e-300)) / isolated).max())
        if own < high:
            high, best = own, found.x
        worth = float(found.prices @ demand.counts)

        def over(rho: float, prices: Floats = found.prices, worth: float = worth) -> float:
            return jobs.cost(prices, needs(rho)) - worth

        if over(low) > 0:
            low = high if over(high) >= 0 else float(brentq(over, low, high, rtol=1e-12))
        if high - low <= PRECISION * high or (low, high) == before:
            step = 1e-4 * high  # what all needs cost falls where ρ may be more, by what GPUs are worth
            falls = (jobs.cost(found.prices, needs(high - step)) - jobs.cost(found.prices, needs(high + step))) / step
            return _at_level(found, best, high, 2 / falls if falls > 0 else 0.0)
        rho = low


def _know_costs(demand: JobDemand) -> None:
    if np.isnan(demand.costs).any():
        raise UserError("policies by cost need a price for each GPU type; the cluster's file has those of some only")


def cheapest(demand: JobDemand) -> ShareAllocation:
    """max (Σ thr_j/R_best,j) / (Σ c_t·s_j·x) with thr_j ≥ left_j/(D_j − now) for jobs with a deadline D.

    A ratio of linear functions, so one linear program in y = x·τ (Charnes and Cooper, 1962); of all shares with the
    best ratio, a second one takes those with the most work. The objective is seconds of work, each on its job's
    fastest type, per GPU dollar and hour. Deadlines that cannot be kept are relaxed by the least common factor.
    """
    _know_costs(demand)
    needs = _needs(demand)
    groups = merged(demand, needs)
    value, cost = _worth(demand, groups)
    scaled = ShareProgram(demand, groups, extra=1, scaled=True)
    tau = np.zeros(scaled.columns)
    tau[-1] = 1.0
    scaled.add_row(np.concatenate([cost, [0.0]]), 1.0, 1.0)
    _keep_deadlines(scaled, groups, needs, tau)
    scaled.set_objective(np.concatenate([value, [0.0]]))
    ratio = scaled.solve().objective
    fullest = ShareProgram(demand, groups, extra=0)
    fullest.add_row(value - ratio * (1 - 1e-9) * cost, 0.0)
    _keep_deadlines(fullest, groups, needs, None)
    fullest.set_objective(value)
    solved = fullest.solve()
    return ShareAllocation(np.minimum(solved.x[groups.member], 1.0), ratio, solved.type_prices)


def cheapest_sum(demand: JobDemand) -> ShareAllocation:
    """max Σ (R/c)·x, with deadlines likewise: what Gavel's code maximises under the name of cost.

    It adds up steps of different models, so the model of the shortest step wins, and it always fills the cluster.
    """
    _know_costs(demand)
    needs = _needs(demand)
    groups = merged(demand, needs)
    program = ShareProgram(demand, groups, extra=0)
    _keep_deadlines(program, groups, needs, None)
    of_rate = demand.rates[groups.first] / demand.costs * groups.count[:, None]
    program.set_objective(of_rate.ravel())
    solved = program.solve()
    return ShareAllocation(np.minimum(solved.x[groups.member], 1.0), solved.objective, solved.type_prices)


def relaxation(demand: JobDemand) -> float:
    """The least factor by which the time to all deadlines has to be stretched so that shares keep them; 1 if none."""
    with np.errstate(divide="ignore"):
        needs = np.where(
            np.isfinite(demand.deadline) & (demand.deadline > 0), demand.left / demand.best / demand.deadline, 0.0
        )
    if not (needs > 0).any():
        return 1.0
    return max(1.0, 1.0 / _priced(demand).highest(needs).level)


def _needs(demand: JobDemand) -> Floats:
    """Rates that deadlines ask for, in parts of each job's fastest; 0 without one, or with one that is over."""
    late = relaxation(demand)
    with np.errstate(divide="ignore", invalid="ignore"):
        needs = demand.left / demand.best / (demand.deadline * late * (1 + 1e-9))
    return np.where(np.isfinite(demand.deadline) & (demand.deadline > 0), needs, 0.0)


def _worth(demand: JobDemand, groups: Groups) -> tuple[Floats, Floats]:
    """Of each variable, Σ R/R_best and Σ c·s, groups counted."""
    at, count = groups.first, groups.count[:, None]
    value = demand.rates[at] / demand.best[at][:, None] * count
    cost = demand.costs[None, :] * demand.gpus[at][:, None] * count
    return value.ravel(), np.ascontiguousarray(cost).ravel()


def _keep_deadlines(program: ShareProgram, groups: Groups, needs: Floats, tau: Floats | None) -> None:
    types = program.shape[1]
    for group in np.flatnonzero(needs[groups.first] > 0):
        row = np.zeros(program.columns)
        rates = program.rates[group]
        row[group * types : (group + 1) * types] = rates / rates.max()
        need = float(needs[groups.first[group]])
        if tau is None:
            program.add_row(row, need)
        else:
            program.add_row(row - need * tau, 0.0)


def _at_level(found: CommonLevel, x: Floats, objective: float, of_level: float) -> ShareAllocation:
    """``of_level``: by how much the objective falls where the level rises by one."""
    return ShareAllocation(np.minimum(x, 1.0), objective, found.prices * of_level)
