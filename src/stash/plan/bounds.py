"""The least that time and cost of a candidate can be, before its forecast is made: the proof behind pruning.

**Of any node count.** A step lasts, in every draw, no less than its passes (compute, the host's contention, the
copies to the device) and what is waited for the slowest rank. What else a step has cannot take time away:

- an exchange exposes ``max(ready + remaining) − ready[last] >= 0`` seconds (``timeline.exposed``), times a proportion
  and an error factor that are not negative;
- loaders that need s seconds for its batches make a step of t seconds take ``max(t, s)`` or more (``pipeline``), of
  which the proportion ``less`` is counted: t + less · max(0, s − t), which grows with t. Reading from storage takes
  no less than reading from memory.

What fresh batches cost beyond what any queue explains (``loading.Held.more``) is in every forecast, and so in the
bound. Only noise of a measurement may be negative, and it is added: the least draw of a measured exchange below zero,
and the negative part of each measured data stall, which forecasts keep. By how much steps of more ranks are off
(``stragglers.MoreRanks``) has the mean 0: of means nothing is taken off, and below quantiles its negative part is.

**Of more nodes of the same.** Where every device trains as much on any number of nodes, steps do not get shorter from
2 nodes on: hops and 2(p−1)/p of rings and trees grow with p, the expected slowest of more ranks is slower, and a step
that trains longer is never shorter after its loaders, nor shorter by more than it trains less. All draws are the
same, so this holds in each of them but for the negative part of the doubt that more ranks add, and less that for
means and quantiles too. It is not used across what was measured and stays as it was: that follows no model. With the
first epoch's share φ of all steps a training takes (1 − φ) · steady + φ · cold a step, of which the same holds: cold
is no less than steady in any draw, as reading from storage takes no less than reading from memory.

**Of a bill.** Seconds are those of all steps and more, dollars those seconds at the price and more (``bill``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stash.core.ladder import EXCHANGE_STALLS
from stash.plan.bill import HOUR
from stash.plan.hourly_prices import quantile_at
from stash.plan.settings import Shape
from stash.predict.cluster import Target
from stash.predict.draws import Array
from stash.predict.passes import Passes


@dataclass(frozen=True, eq=False)
class Least:
    """Lower bounds, or exact numbers, of one setting on each of its node counts, ``[node counts]`` each."""

    seconds: Array
    """Mean of the whole training."""
    dollars: Array
    sure_seconds: Array
    """Not exceeded with the confidence that is asked for."""
    sure_dollars: Array


@dataclass(frozen=True, eq=False)
class _LeastStep:
    """What a step cannot do without, ``[draws]``."""

    seconds: Array
    """Of its passes."""
    fresh: Array
    """What no queue tells of fresh batches, and measured noise below zero."""
    scale: float
    """Compute, in times of the profiled one."""

    @property
    def least(self) -> Array:
        return self.seconds + self.fresh


class Floors:
    """What no forecast of a shape goes below; asks each question once."""

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence
        self._late: dict[tuple[int, int, int], Array] = {}
        self._passes: dict[tuple[int, str | None, int, int, bool], _LeastStep] = {}
        self._rows: dict[int, tuple[Array, Array]] = {}
        self._shortest: dict[tuple[int, bool], Array] = {}

    def row(self, shape: Shape, price: Array, supply: Array | None = None) -> Least:
        """Bound a node at these dollars an hour, as of ``bill.hourly``; raises UserError for unknown devices.

        ``supply`` is what the node's loaders need for a step's batches, ``[draws]``.
        """
        per_hour = shape.nodes / HOUR * shape.steps
        mean, sure = self._usual(shape)
        if len(price) == 1:
            money, sure_money = mean * price, sure * price
        else:
            money, sure_money = self._per_step(shape, price)
        if supply is not None:
            mean, sure, money, sure_money = self._supplied(shape, price, supply, mean, sure, money, sure_money)
        return Least(mean * shape.steps, money * per_hour, sure * shape.steps, sure_money * per_hour)

    def _usual(self, shape: Shape) -> tuple[Array, Array]:
        """Mean and sure seconds of a step, ``[node counts]`` each."""
        if id(shape) not in self._rows:
            self._rows[id(shape)] = self._per_step(shape, np.ones(1))
        return self._rows[id(shape)]

    def _per_step(self, shape: Shape, price: Array) -> tuple[Array, Array]:
        """Mean and sure seconds of a step times ``price``, ``[node counts]`` each."""
        drawn, off = np.empty((2, len(shape.nodes), shape.base.draws.count))
        for number, ranks in enumerate(shape.ranks.tolist()):
            passes = self._trains(shape, ranks > 1)
            drawn[number] = passes.least + self._slower(shape, number) * passes.scale
            off[number] = np.minimum(0.0, shape.doubts[number]) * passes.scale
        return (drawn * price).mean(axis=1), quantile_at((drawn + off) * price, self._confidence)

    def _supplied(
        self, shape: Shape, price: Array, supply: Array, mean: Array, sure: Array, money: Array, sure_money: Array
    ) -> tuple[Array, ...]:
        """The same four, no less than loaders make steps last, of ranks that wait as little as any of the counts."""
        rows = [each.copy() for each in (mean, sure, money, sure_money)]
        held = shape.base.held
        for several in (False, True):
            which = (shape.ranks > 1) == several
            if held is None or not which.any():
                continue
            passes = self._trains(shape, several)
            trains = passes.seconds + self._least_slower(shape, which, several) * passes.scale
            drawn = trains + held.prep.less * np.maximum(0.0, supply - trains) + passes.fresh
            ends = [drawn.mean(), quantile_at(drawn, self._confidence)]
            if len(price) == 1:
                ends += [each * price[0] for each in ends]
            else:
                paid = drawn * price
                ends += [paid.mean(), quantile_at(paid, self._confidence)]
            for row, least in zip(rows, ends, strict=True):
                row[which] = np.maximum(row[which], least)
        return tuple(rows)

    def compute(self, shape: Shape) -> float:
        """Of a step on several ranks, in times of the profiled one."""
        return self._trains(shape, True).scale

    def _trains(self, shape: Shape, several: bool) -> _LeastStep:
        key = (shape.key.base, shape.key.device, shape.key.batch, shape.key.accumulate, several)
        if key not in self._passes:
            self._passes[key] = _trains(shape, several)
        return self._passes[key]

    def _least_slower(self, shape: Shape, which: NDArray[np.bool_], several: bool) -> Array:
        """Of these node counts the least wait, or none, ``[draws]``."""
        key = id(shape), several
        if key not in self._shortest:
            late = [
                self._slower(shape, each) + np.minimum(0.0, shape.doubts[each])
                for each in np.flatnonzero(which).tolist()
            ]
            self._shortest[key] = np.minimum(0.0, np.min(late, axis=0))
        return self._shortest[key]

    def _slower(self, shape: Shape, number: int) -> Array:
        """Seconds that a node count's ranks wait longer for their slowest than those profiled, ``[draws]``."""
        nodes, ranks = int(shape.nodes[number]), int(shape.ranks[number])
        base, measured = shape.base, shape.base.target
        if ranks == 1:
            return np.zeros(base.draws.count)
        key = (shape.key.base, measured.devices if nodes == 1 else measured.ranks, ranks)
        if key not in self._late:
            self._late[key] = base.exchange.more_ranks.waiting(*key[1:])
        return self._late[key]


def _trains(shape: Shape, several: bool) -> _LeastStep:
    base, wanted = shape.base, shape.altered
    assert base.passes is not None, "a step's samples are counted"
    after = Passes(shape.key.batch, shape.key.accumulate)
    factor: Array = np.ones(base.draws.count)
    if shape.key.device != base.target.device or wanted.batch is not None:
        target = Target(name="", nodes=1, devices=1, backend=base.target.backend, device=shape.key.device)
        factor = base.compute_scale(target, after).factor
    passes = after.accumulated / base.passes.accumulated
    samples = after.samples / base.passes.samples
    seconds = np.zeros(base.draws.count)
    for name, times in (("compute", factor * passes), ("transfer", samples), ("contention", factor * passes)):
        stall = base.stall(name)
        if stall is not None and (several or name != "contention"):
            seconds = seconds + stall * times
    if several:
        # What measured exchanges have below zero: noise, which forecasts keep.
        exchanges = [drawn for name in EXCHANGE_STALLS if (drawn := base.stall(name)) is not None]
        seconds = seconds + float(sum(min(0.0, drawn.min()) for drawn in exchanges))
    return _LeastStep(seconds, fresh(shape), float(np.mean(factor)))


def fresh(shape: Shape) -> Array:
    """What no queue tells of fresh batches, and measured noise below zero: seconds of a step, ``[draws]``."""
    held = shape.base.held
    if held is None:
        return np.zeros(shape.base.draws.count)
    samples = shape.key.batch * shape.key.accumulate
    seconds: Array = held.prep.noise + samples * held.prep.more
    return seconds if held.fetch is None else seconds + held.fetch.noise


def raised(
    least: Least, number: int, step: Array, shape: Shape, price: Array, confidence: float, onward: float | None
) -> None:
    """Raise the bounds of node count ``number``, and of those beyond it, by a forecast of its step.

    ``step`` is ``[draws]``, ``price`` as of ``bill.hourly``. ``onward`` is compute in times of the profiled one;
    ``None``: nothing follows for others. See the top.
    """
    last = len(shape.nodes) - 1
    rows, which, steps = np.array([number]), np.zeros(1, np.int64), step[None, :]
    if onward is not None and number < last:
        # Nearer node counts are less in doubt: each goes by the next of some that are ever farther apart.
        farther = number + 2 ** np.arange(max(1, last - number).bit_length() + 1)
        ends = np.unique(np.minimum(farther, last))
        ends, rows = np.concatenate([rows, ends]), np.arange(number, last + 1)
        off = np.minimum(0.0, onward * (shape.doubts[ends] - shape.doubts[number]))
        which, steps = np.searchsorted(ends, rows), step + off
    mean, sure = steps.mean(axis=1), quantile_at(steps, confidence)
    if len(price) == 1:
        money, sure_money = mean * price, sure * price
    else:
        money, sure_money = (steps * price).mean(axis=1), quantile_at(steps * price, confidence)
    count, node_hours = shape.steps[rows], shape.steps[rows] * shape.nodes[rows] / HOUR
    for bound, per_step, factor in (
        (least.seconds, mean, count),
        (least.dollars, money, node_hours),
        (least.sure_seconds, sure, count),
        (least.sure_dollars, sure_money, node_hours),
    ):
        bound[rows] = np.maximum(bound[rows], per_step[which] * factor)
