"""What to do if the whole record were known beforehand: the cheapest course of every run, exactly.

A course says for every tick what is held: nothing, spot or on-demand machines. As for the policies, a tick is held
to its end unless the work ends in it, and a change-over d is paid and brings nothing. Who knows the future saves
before every revocation, and is taken to write nothing: a bound on all policies, whatever checkpoints take.

Courses are followed tick by tick as labels (work left, dollars so far) of what is held. A label goes where another
one has no more left for no more dollars, or where its bound is above what the whole may cost: by Lagrange, work w
costs at least λ · w + V(λ) from any tick on, for every price λ of work, and V is one pass backwards through the
ticks. What the whole may cost begins at the bound of the start and grows until a course is found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from stash.predict.draws import Array
from stash.spot.policies.policies import IDLE, ON_DEMAND, SPOT, Bools, Integers, Played, SpotMarket, SyncJob, ticks

_PRICES = 24
"""Of work, that V is known for; three times around the best one."""
_ROUNDS = 3
_FIRST, _MORE = 1e-6, 8.0
"""Above its bound a run may cost this part more at first, and so many times that after each try."""
_MAX_BOUNDS = 20_000_000
"""Numbers of V held at once."""
_SAME = 1e-9
_KINDS = (SPOT, ON_DEMAND)


@dataclass(frozen=True, eq=False)
class _Runs:
    """Runs side by side: [run, tick]."""

    job: SyncJob
    there: Bools
    dollars: Array
    """A second, on spot."""
    spans: Array
    """Seconds of each tick: [tick]."""

    def of(self, which: Bools) -> _Runs:
        return replace(self, there=self.there[which], dollars=self.dollars[which])

    def price(self, kind: int, tick: int) -> Array:
        """Dollars a second: [run]."""
        if kind == SPOT:
            return self.dollars[:, tick]
        return np.full(len(self.dollars), self.job.on_demand_dollars / 3600)


def hindsight(job: SyncJob, market: SpotMarket, starts: Integers) -> Played:
    """The cheapest course from each of ``starts``; late, and of unknown cost, where none is in time."""
    long = ticks(job, market.gap_seconds)
    at = starts[:, None] + np.arange(long)[None, :]
    there, dollars = market.there[at], market.dollars[at] / 3600
    spans = np.minimum(market.gap_seconds, job.deadline_seconds - np.arange(long) * market.gap_seconds)
    _, first, which = np.unique(np.hstack([there, dollars]), axis=0, return_index=True, return_inverse=True)
    runs = _Runs(job, there[first], dollars[first], spans)
    at_once = max(_MAX_BOUNDS // (3 * _PRICES * long), 1)
    parts = [
        _cheapest(replace(runs, there=runs.there[here : here + at_once], dollars=runs.dollars[here : here + at_once]))
        for here in range(0, len(first), at_once)
    ]
    paid, held = (np.concatenate(each)[which.ravel()] for each in zip(*parts, strict=True))
    return Played(paid, held / 3600, np.isnan(paid), np.zeros(len(starts)))


def _cheapest(runs: _Runs) -> tuple[Array, Array]:
    """(dollars, seconds on demand) of each run's cheapest course; NaN where none is in time."""
    work = runs.job.work_seconds
    count = len(runs.there)
    able = -_values(runs, np.full((count, 1), math.inf))[0, IDLE, :, 0] >= work * (1 - _SAME)
    prices = _best_prices(runs)
    values = _values(runs, prices)
    bound = np.maximum((prices * work + values[0, IDLE]).max(axis=1), 0.0)
    paid, held = np.full(count, np.nan), np.full(count, np.nan)
    share = _FIRST
    unsolved = able.copy()
    while unsolved.any():
        most = bound[unsolved] * (1 + share) + 1e-12
        paid[unsolved], held[unsolved] = _followed(runs.of(unsolved), prices[unsolved], values[:, :, unsolved], most)
        unsolved = able & np.isnan(paid)
        share *= _MORE
    return paid, held


def _values(runs: _Runs, prices: Array) -> Array:
    """V: what is left costs at least, less ``prices`` [run, price] for its work: [tick, held before, run, price].

    At an infinite price all that counts is work: less the most that can still be done.
    """
    long = len(runs.spans)
    only_work = np.isinf(prices)
    worth = np.where(only_work, 1.0, prices)
    found = np.zeros((long + 1, 3, *prices.shape))
    change = runs.job.change_seconds * worth
    for tick in range(long - 1, -1, -1):
        found[tick] = found[tick + 1, IDLE]
        for kind in _KINDS:
            price = np.where(only_work, 0.0, runs.price(kind, tick)[:, None])
            goes_on = (price - worth) * runs.spans[tick] + found[tick + 1, kind]
            if kind == SPOT:
                goes_on = np.where(runs.there[:, tick, None], goes_on, 0.0)
            for before in (IDLE, *_KINDS):
                other = goes_on if before == kind else np.where(goes_on < 0, goes_on + change, 0.0)
                np.minimum(found[tick, before], other, out=found[tick, before])
    return found


def _best_prices(runs: _Runs) -> Array:
    """Prices of work around the one with the highest bound at the start: [run, price]."""
    count = len(runs.there)
    top = max(runs.job.on_demand_dollars / 3600, float(runs.dollars.max()), 1e-12)
    low, high = np.full(count, top * 1e-4), np.full(count, top * 1e3)
    for _ in range(_ROUNDS):
        prices = np.exp(np.linspace(np.log(low), np.log(high), _PRICES, axis=1))
        best = (prices * runs.job.work_seconds + _values(runs, prices)[0, IDLE]).argmax(axis=1)
        rows = np.arange(count)
        low, high = prices[rows, np.maximum(best - 1, 0)], prices[rows, np.minimum(best + 1, _PRICES - 1)]
    return prices


@dataclass(frozen=True, eq=False)
class _Labels:
    """Courses so far: [label] each."""

    run: Integers
    left: Array
    """Work; what a change-over still takes is in it."""
    dollars: Array
    on_demand: Array
    """Seconds held of it."""

    def of(self, which: Bools | Integers) -> _Labels:
        return _Labels(self.run[which], self.left[which], self.dollars[which], self.on_demand[which])

    @staticmethod
    def joined(parts: list[_Labels]) -> _Labels:
        names = ("run", "left", "dollars", "on_demand")
        return _Labels(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _followed(runs: _Runs, prices: Array, values: Array, most: Array) -> tuple[Array, Array]:
    """(dollars, seconds on demand) of the cheapest course that costs no more than ``most``; NaN where none does."""
    count, long = runs.there.shape
    best, held = most.copy(), np.full(count, np.nan)
    none = _Labels(np.zeros(0, dtype=int), *np.zeros((3, 0)))
    labels = [_Labels(np.arange(count), np.full(count, runs.job.work_seconds), *np.zeros((2, count))), none, none]
    for tick in range(long):
        following: list[list[_Labels]] = [list(labels), [], []]
        for kind in _KINDS:
            for before in (IDLE, *_KINDS):
                more = _held(runs, labels[before], kind, before, tick)
                ended = more.left <= runs.job.work_seconds * _SAME
                following[kind].append(more.of(~ended))
                done = more.of(ended & (more.dollars <= best[more.run]))
                done = done.of(np.lexsort((-done.dollars, done.run)))  # of two of one run the cheaper is written last
                best[done.run], held[done.run] = done.dollars, done.on_demand
        for kind, each in enumerate(following):
            label = _Labels.joined(each)
            # Those that cannot cost less than the best that is known go.
            ahead = (label.left[:, None] * prices[label.run] + values[tick + 1, kind][label.run]).max(axis=1)
            labels[kind] = _undominated(label.of(label.dollars + ahead <= best[label.run] * (1 + 1e-12)))
    return np.where(np.isnan(held), np.nan, best), held


def _held(runs: _Runs, labels: _Labels, kind: int, before: int, tick: int) -> _Labels:
    """Labels after this tick with ``kind`` held."""
    if kind == SPOT:
        labels = labels.of(runs.there[labels.run, tick])
    needed = labels.left + (0.0 if kind == before else runs.job.change_seconds)
    seconds = np.minimum(needed, runs.spans[tick])
    dollars = labels.dollars + runs.price(kind, tick)[labels.run] * seconds
    return _Labels(labels.run, needed - seconds, dollars, labels.on_demand + (seconds if kind == ON_DEMAND else 0.0))


def _undominated(labels: _Labels) -> _Labels:
    """Without those that have no less left for no less than another of the same run."""
    labels = labels.of(np.lexsort((labels.dollars, labels.left, labels.run)))
    # Dollars of each run moved apart, a running least over all is one over each: later runs lie lower.
    step = float(labels.dollars.max(initial=0.0)) + 1.0
    shifted = labels.dollars - labels.run * step
    least = np.minimum.accumulate(np.concatenate([[np.inf], shifted[:-1]]))
    return labels.of(shifted < least - 1e-12)
