"""What to do if the whole record were known beforehand: the cheapest course of every run, exactly.

A course says for every tick what is held: nothing, spot or on-demand machines. As for the policies, a tick is held
to its end unless the work ends in it, and a change-over d is paid and brings nothing. Who knows the future saves
before every revocation, and is taken to write nothing: a bound on all policies, whatever checkpoints take.

Courses are followed tick by tick as labels (work left, dollars so far) of what is held. A label goes where another
one has no more left for no more dollars, where the time left is too short for its work, and where, all its work at
the least price to come, it costs more than a course that is known: at first a policy's. Ticks are equally long, so
labels differ in how many ticks they held and how often they changed: some hundreds of a run, however prices move.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.predict.draws import Array
from stash.spot.policies.policies import (
    IDLE,
    ON_DEMAND,
    SPOT,
    Bools,
    Integers,
    Played,
    PolicyName,
    SpotMarket,
    SyncJob,
    play,
    ticks,
)

_SAME = 1e-9
_KINDS = (SPOT, ON_DEMAND)
_KNOWN: tuple[PolicyName, ...] = ("greedy", "uniform", "on-demand")


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

    def undominated(self) -> _Labels:
        """Without those that have no less left for no less than another of the same run."""
        labels = self.of(np.lexsort((self.dollars, self.left, self.run)))
        # Dollars of each run moved apart, a running least over all is one over each: later runs lie lower.
        step = float(labels.dollars.max(initial=0.0)) + 1.0
        shifted = labels.dollars - labels.run * step
        least = np.minimum.accumulate(np.concatenate([[np.inf], shifted[:-1]]))
        return labels.of(shifted < least - 1e-12)


def hindsight(job: SyncJob, market: SpotMarket, starts: Integers) -> Played:
    """The cheapest course from each of ``starts``; late, and of unknown cost, where none is in time."""
    long, count = ticks(job, market.gap_seconds), len(starts)
    spans = np.minimum(market.gap_seconds, job.deadline_seconds - np.arange(long) * market.gap_seconds)
    after = np.append(np.cumsum(spans[::-1])[::-1], 0.0)  # seconds from each tick to the deadline
    least = np.minimum(market.dollars[starts[:, None] + np.arange(long)], job.on_demand_dollars) / 3600
    least = np.minimum.accumulate(least[:, ::-1], axis=1)[
        :, ::-1
    ]  # dollars a second, of the cheapest from each tick on
    known = [play(policy, job, market, starts) for policy in _KNOWN]
    best = np.min([np.where(each.late, np.inf, each.dollars) for each in known], axis=0)
    held = np.full(count, np.nan)
    none = _Labels(np.zeros(0, dtype=int), *np.zeros((3, 0)))
    labels = [_Labels(np.arange(count), np.full(count, job.work_seconds), *np.zeros((2, count))), none, none]
    for tick, span in enumerate(spans):
        there, spot = market.there[starts + tick], market.dollars[starts + tick] / 3600
        prices = {SPOT: spot, ON_DEMAND: np.full(count, job.on_demand_dollars / 3600)}
        following: list[list[_Labels]] = [list(labels), [], []]
        for kind in _KINDS:
            for before in (IDLE, *_KINDS):
                able = labels[before].of(there[labels[before].run]) if kind == SPOT else labels[before]
                needed = able.left + (0.0 if kind == before else job.change_seconds)
                seconds = np.minimum(needed, span)
                dollars = able.dollars + prices[kind][able.run] * seconds
                on_demand = able.on_demand + (seconds if kind == ON_DEMAND else 0.0)
                more = _Labels(able.run, needed - seconds, dollars, on_demand)
                ended = more.left <= job.work_seconds * _SAME
                following[kind].append(more.of(~ended))
                done = more.of(ended & (more.dollars <= best[more.run] * (1 + _SAME)))
                done = done.of(np.lexsort((-done.dollars, done.run)))  # of two of one run the cheaper is written last
                best[done.run], held[done.run] = done.dollars, done.on_demand
        for kind, each in enumerate(following):
            label = _Labels.joined(each)
            in_time = label.left <= after[tick + 1] + job.work_seconds * _SAME
            whole = label.dollars + label.left * least[label.run, min(tick + 1, long - 1)]
            labels[kind] = label.of(in_time & (whole <= best[label.run] * (1 + _SAME))).undominated()
    late = np.isnan(held)
    return Played(np.where(late, np.nan, best), held / 3600, late, np.zeros(count))
