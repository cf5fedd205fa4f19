"""What could be added to a fleet in the middle of training, and what it would then still take and cost.

A machine on demand trains as fast as a spot one of its type, costs its own price, and can be had while the type is
left alone on spot; a quota counts both together. Which addition is best ``replanning`` knows.

    left(F) = k · (j(Lobj; F) − j(loss now; F))          updates of fleet F by the curve; k: observed over predicted
    T = min(J, left(S) / X(S)) + (1 − J · X(S) / left(S))⁺ · left(F) / X(F)

S are the survivors, which are kept and train on until what is added joins, after J seconds; X are updates per second.
The model predicts X; what workers were seen to do corrects it. Many fleets at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from stash.predict.draws import Array
from stash.spot.choose.fleet_costs import HOUR, FleetWish
from stash.spot.model.convergence import updates_to
from stash.spot.model.queueing import (
    FleetPace,
    asynchronous,
    exact,
    lattice,
    of_pool,
    schweitzer,
    states,
)
from stash.spot.records.fleets import FleetPlan, FleetPool

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int_]
MAX_CANDIDATES = 20_000
"""Fleets that are weighed at most: a fraction of a second."""
_NEVER = 1e9
"""Seconds until a type that is planned on demand is asked for on spot: longer than any training."""
_MAX_TYPES = 8
"""Types that more machines are taken of, the cheapest for what they do first; a replacement is no new plan."""


@dataclass(frozen=True, eq=False)
class MachineOffers:
    """How one more machine of each type could be had: [type] each."""

    kept: Array
    """Machines that stay, of either kind."""
    spot: Array
    """$/h."""
    cooling: Array
    """Seconds until it is asked for on spot again; 0: at once."""
    on_demand: Array
    """$/h; infinite where unstated, or where it was refused lately."""

    def of(self, types: Integers) -> MachineOffers:
        """The offers of these types alone."""
        return MachineOffers(self.kept[types], self.spot[types], self.cooling[types], self.on_demand[types])


def offers_of(
    pool: FleetPool, kept: Mapping[str, int], cooling: Mapping[str, float], refused: Mapping[str, float]
) -> MachineOffers:
    """``cooling`` on spot and ``refused`` on demand: seconds until a type is asked for again."""
    named = [(kind.name, kind.on_demand_price) for kind in pool.types]
    return MachineOffers(
        kept=np.array([float(kept.get(name, 0)) for name, _ in named]),
        spot=np.array([kind.dollars_per_hour for kind in pool.types]),
        cooling=np.array([_NEVER if kind.fixed else max(cooling.get(kind.name, 0.0), 0.0) for kind in pool.types]),
        on_demand=np.array([price if price and refused.get(name, 0.0) <= 0 else math.inf for name, price in named]),
    )


def candidates(pool: FleetPool, offers: MachineOffers) -> tuple[Integers, Array]:
    """(types that more is taken of, how many more: [fleet, such type]); the first fleet adds nothing."""
    room = np.maximum(np.array([float(kind.quota) for kind in pool.types]) - offers.kept, 0.0)
    hot, fixed = offers.cooling > 0, np.isfinite(offers.on_demand)
    if (
        not fixed.any()
    ):  # then waiting for a type to cool down is no choice: nothing would do instead if it was refused again
        room[hot] = 0
    price = np.where(
        hot & fixed, offers.on_demand, np.where(hot, offers.spot, np.minimum(offers.spot, offers.on_demand))
    )
    worth = price * np.array([kind.single_seconds for kind in pool.types])
    few = np.argsort(np.where(room > 0, worth, math.inf), kind="stable")[:_MAX_TYPES]
    limits = room[few].astype(int)
    while states(limits.tolist()) > MAX_CANDIDATES:
        limits = np.minimum(limits, limits.max() - max(1, limits.max() // 8))
    return few, lattice(limits.tolist())


@dataclass(frozen=True, eq=False)
class Additions:
    """One way to have what each fleet has more than its survivors."""

    extra: Array
    """[fleet, type]."""
    on_demand: Bools
    """How: [type]."""
    prices: Array
    """$/h: [type]."""
    waits: Array
    """Seconds until a machine is asked for: [type]."""
    possible: Bools
    """[fleet]."""
    dearer: Bools
    """Whether any is on demand where a spot machine would cost less: [fleet]."""

    @property
    def delay(self) -> Array:
        """Seconds until the last of them is asked for: [fleet]."""
        found: Array = np.max(np.where(self.extra > 0, self.waits, 0.0), axis=1)
        return found


def on_spot(offers: MachineOffers, extra: Array) -> Additions:
    """All on spot, those of a type that cools down once it has."""
    none = np.zeros(len(extra), dtype=bool)
    return Additions(extra, np.zeros(extra.shape[1], dtype=bool), offers.spot, offers.cooling, ~none, none)


def at_once(offers: MachineOffers, extra: Array) -> Additions:
    """On demand where spot machines cool down, or cost no less."""
    hot = offers.cooling > 0
    fixed = np.isfinite(offers.on_demand) & (hot | (offers.on_demand <= offers.spot))
    return _paid(offers, extra, fixed, hot & ~fixed)


def on_demand_only(offers: MachineOffers, extra: Array) -> Additions:
    """What is left if no spot machine is to be had."""
    fixed = np.isfinite(offers.on_demand)
    return _paid(offers, extra, fixed, ~fixed)


def _paid(offers: MachineOffers, extra: Array, fixed: Bools, never: Bools) -> Additions:
    dearer = fixed & (offers.on_demand > offers.spot)
    return Additions(
        extra=extra,
        on_demand=fixed,
        prices=np.where(fixed, offers.on_demand, offers.spot),
        waits=np.zeros(extra.shape[1]),
        possible=~_has(extra, never),
        dearer=_has(extra, dearer),
    )


def _has(extra: Array, types: Bools) -> Bools:
    """Whether there is any of these types, in each fleet."""
    found: Bools = np.any(extra[:, types] > 0, axis=1)
    return found


_MAX_STATES = 50_000
"""Fleets that exact analysis holds within that time; more are weighed by Schweitzer's approximation."""
_TELLING = 0.05
"""Share of all updates by the curve after which what was observed tells how wrong the curve is."""


@dataclass(frozen=True, kw_only=True)
class FleetState:
    """A training in the middle, as it was seen."""

    workers: Mapping[str, int]
    """Who stays, of either kind, by type; those that are about to join too."""
    seconds_left: float
    """Until the deadline: R."""
    join_seconds: float
    """From asking for a machine to its first update, measured or else the pool's: J, or d."""
    cooling: Mapping[str, float] = field(default_factory=dict)
    """Seconds until spot machines of a type are asked for again: one was revoked, or refused."""
    refused: Mapping[str, float] = field(default_factory=dict)
    """The same on demand: one was lost, or refused."""


@dataclass(frozen=True, kw_only=True)
class FleetSituation(FleetState):
    """An asynchronous fleet."""

    updates: float
    """Done so far."""
    loss: float | None
    """Its running mean now; ``None``: not known yet."""
    dollars_left: float | None
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Updates per second of one worker of a type, as observed; types that are not known are left out."""
    on_demand: Mapping[str, int] = field(default_factory=dict)
    """How many of ``workers`` are on demand."""


@dataclass(frozen=True, kw_only=True)
class GangSituation(FleetState):
    """A gang."""

    least: int
    """Nodes that can train."""
    work_seconds: float
    """C: left, of the whole gang."""


@dataclass(frozen=True, kw_only=True)
class RentDecision:
    """What to rent now."""

    add: Mapping[str, int]
    """Machines by type, on spot or as the type is planned."""
    add_on_demand: Mapping[str, int]
    why: str
    look_again_seconds: float | None
    """When to decide again though nothing happens: a type has cooled down that could be of use; ``None``: none is."""
    last_moment_seconds: float | None
    """Until when machines on demand would be in time, if no spot machine were to come; ``None``: they are not now."""


@dataclass(frozen=True, eq=False)
class FleetAnswers:
    """What could be done, an entry each."""

    training: Array
    """Seconds until the loss is reached; infinite: never."""
    dollars: Array
    """From now on."""
    in_time: Bools
    affordable: Bools
    """And possible at all."""
    waits: Bools
    """Whether some of it is asked for later."""
    dearer: Bools
    """Whether some of it is on demand where a spot machine would cost less."""
    size: Array
    """Machines that are added."""


class FleetOutlook:
    """What survivors, the first of ``counts`` [fleet, type], can reach, and what they could with more."""

    def __init__(self, plan: FleetPlan, seen: FleetSituation, counts: Array) -> None:
        wish = FleetWish(plan.pool, plan.loss, max(seen.seconds_left, 0.0), plan.confidence)
        present = counts.sum(axis=1) > 0
        safe = np.where(present[:, None], counts, 1.0)  # an empty fleet has no pace; it is left out below
        pace = asynchronous(safe, _iterations(wish, safe) / _corrections(wish, seen), wish.samples)
        rate = np.where(present, pace.updates_per_second, 0.0)
        left = _left(plan, seen, pace, safe.sum(axis=1))
        whole = np.full_like(left, math.inf)
        np.divide(left, rate, out=whole, where=rate > 0)
        self._whole = np.where(left > 0, whole, 0.0)
        caution = 1.0  # by how much the time left is taken shorter for the confidence of the plan
        if wish.confidence is not None and wish.deviation is not None:
            caution = math.exp(-float(ndtri(wish.confidence)) * wish.deviation)
        self._join, self._limit = seen.join_seconds, seen.seconds_left * caution
        self._money = math.inf if seen.dollars_left is None else seen.dollars_left
        self._hourly = wish.server_price + _hourly(plan, seen)
        self._room = np.ones(len(counts), dtype=bool)
        if plan.pool.most_vcpus is not None:
            self._room[1:] = (counts @ wish.vcpus <= plan.pool.most_vcpus)[1:]

    def last_moment(self, instead: Additions) -> float | None:
        """The last moment to ask for ``instead`` and be in time within the money; ``None``: it is too late now.

        T = t(F) + J · (1 − t(F) / t(S)), where t is what a fleet takes by itself from now on. Dollars grow with J
        too, or fall where what is added costs more than its work saves.
        """
        alone = self._whole[0]
        helps = instead.possible & self._room & (self._whole < min(alone, self._limit))
        if not helps.any():
            return None
        whole, added = self._whole[helps], (instead.extra @ instead.prices)[helps]
        hourly = self._hourly + added
        slope = 1 - whole / alone
        by_time = (self._limit - whole) / slope
        at_once, growth = whole * hourly + added * self._join, slope * hourly - added
        money = self._money * HOUR
        by_money = np.where(at_once + growth * by_time <= money, math.inf, -math.inf)
        np.divide(money - at_once, growth, out=by_money, where=growth > 0)
        latest = float(np.minimum(by_time, by_money).max()) - self._join
        return latest if latest >= 0 else None

    def answers(self, had: Additions, last: float | None) -> FleetAnswers:
        """``last``: the last moment for what would be done were no spot machine to come.

        Waiting for a type to cool down is possible while somebody trains, and as long as the wait and one more
        change-over, after which it is known whether its machines come, do not pass that moment.
        """
        added, delay = had.extra.any(axis=1), had.delay
        waits = delay > 0
        training = self._seconds(np.where(added, self._join + delay, 0.0))
        hourly = self._hourly + had.extra @ had.prices
        dollars = np.full_like(training, math.inf)
        np.multiply(training, hourly / HOUR, out=dollars, where=np.isfinite(training))
        dollars -= had.extra @ (had.prices * had.waits) / HOUR
        affordable = np.isfinite(training) & had.possible & self._room & (dollars <= self._money)
        if last is None or not math.isfinite(self._whole[0]):
            affordable &= ~waits
        else:
            affordable &= ~waits | ((delay + self._join <= last) & (delay < training))
        in_time = training <= self._limit
        return FleetAnswers(training, dollars, in_time, affordable, waits, had.dearer, had.extra.sum(axis=1))

    def _seconds(self, join: Array) -> Array:
        """T, of each fleet that is complete after ``join`` seconds."""
        alone = self._whole[0]  # what the survivors would take
        first = np.minimum(join, alone)
        undone = 1 - first / alone if alone > 0 else np.zeros_like(first)
        rest = np.zeros_like(first)
        np.multiply(undone, self._whole, out=rest, where=undone > 0)
        training: Array = first + rest
        return training


def _hourly(plan: FleetPlan, seen: FleetSituation) -> float:
    """$/h of the survivors, each by its own kind."""
    return sum(
        (seen.workers.get(kind.name, 0) - seen.on_demand.get(kind.name, 0)) * kind.dollars_per_hour
        + seen.on_demand.get(kind.name, 0) * (kind.on_demand_price or kind.dollars_per_hour)
        for kind in plan.pool.types
    )


def _iterations(wish: FleetWish, counts: Array) -> Array:
    """Tᵢ, [fleet, type], of many fleets at once, whatever the pool's size."""
    network, most = of_pool(wish.pool), counts.max(axis=0).astype(int)
    here = most > 0
    network = replace(network, think=network.think[here])
    found = np.ones_like(counts)  # of types that no fleet has, anything: they do nothing
    if states(most[here].tolist()) > _MAX_STATES:
        found[:, here] = schweitzer(counts[:, here], network)
    else:
        found[:, here] = exact(most[here].tolist(), network).of(counts[:, here])
    return found


def _corrections(wish: FleetWish, seen: FleetSituation) -> Array:
    """Observed over predicted speed of each type; of types that were not seen, what the others have in common."""
    counts = np.array([[float(seen.workers.get(kind.name, 0)) for kind in wish.pool.types]])
    if not counts.any() or not seen.speeds:
        return np.ones(len(wish.pool.types))
    predicted = 1 / _iterations(wish, counts)[0]
    known = {
        number: seen.speeds[kind.name] / predicted[number]
        for number, kind in enumerate(wish.pool.types)
        if seen.speeds.get(kind.name, 0.0) > 0 and counts[0, number] > 0
    }
    if not known:
        return np.ones(len(wish.pool.types))
    usual = math.exp(sum(map(math.log, known.values())) / len(known))
    return np.array([known.get(number, usual) for number in range(len(wish.pool.types))])


def _left(plan: FleetPlan, seen: FleetSituation, pace: FleetPace, size: Array) -> Array:
    """Updates until the loss is reached, of each fleet; 0 if it is reached, infinite where the curve says nothing."""
    curve, loss = plan.pool.loss, seen.loss
    whole = updates_to(curve, plan.loss, pace.mean_batch, pace.imbalance, size)
    if loss is None or loss <= curve.gamma5:  # nothing seen yet, or what the curve holds to be impossible
        return np.maximum(whole - seen.updates, 1.0)
    if loss <= plan.loss:
        return np.zeros_like(whole)
    done = updates_to(curve, loss, pace.mean_batch, pace.imbalance, size)
    return np.where(np.isfinite(whole), (whole - done) * _slowness(plan, seen, loss), np.inf)


def _slowness(plan: FleetPlan, seen: FleetSituation, loss: float) -> float:
    """k: updates that the loss took over those that the curve says; 1 while that tells little."""
    if plan.chosen is None or loss <= plan.loss:
        return 1.0
    fleet = plan.chosen
    size = float(sum(fleet.workers.values()))
    expected = updates_to(plan.pool.loss, loss, np.array(fleet.mean_batch), np.array(fleet.imbalance), np.array(size))
    share = float(expected) / fleet.updates
    return seen.updates / float(expected) if _TELLING < share < 1 and seen.updates > 0 else 1.0
