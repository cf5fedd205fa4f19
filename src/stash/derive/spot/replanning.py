"""What to rent now: machines of a fleet are gone, the loss is what it is, time and money are what is left of them.

    left(F) = k · (j(Lobj; F) − j(loss now; F))          updates of fleet F by the curve; k: observed over predicted
    T = min(d, left(S) / X(S)) + (1 − d · X(S) / left(S))⁺ · left(F) / X(F)

S are the survivors, which are kept and train on while what is added joins, d seconds; X are updates per second. The
model predicts X; what workers were seen to do corrects it. Pure: knows no cloud; decides within a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from stash.base.spot.fleets import FleetPlan, FleetPool
from stash.base.words.counting import counted
from stash.derive.predict.draws import Array
from stash.derive.spot.fleet.weighing import HOUR, FleetWish
from stash.derive.spot.loss.convergence import updates_to
from stash.derive.spot.speed.progress import FleetPace, asynchronous
from stash.derive.spot.speed.queueing import exact, of_pool, schweitzer, states
from stash.derive.spot.speed.sharing import iteration_seconds

MOST_CANDIDATES = 20_000
"""Fleets that are weighed at most: a fraction of a second."""
_MOST_STATES = 50_000
"""Fleets that exact analysis holds within that time; more are weighed by Schweitzer's approximation."""
_MOST_TYPES = 8
"""Types that more machines are taken of, the cheapest for what they do first; a replacement is no new plan."""
_HARDLY_LATER = 1.05
"""Of what is late anyway, the cheapest of those that are not later than this many times the soonest."""
_TELLING = 0.05
"""Share of all updates by the curve after which what was observed tells how wrong the curve is."""


@dataclass(frozen=True)
class FleetSituation:
    """A fleet in the middle of training, as it was seen."""

    workers: Mapping[str, int]
    """Survivors by type, those that are about to join too."""
    updates: float
    """Done so far."""
    loss: float | None
    """Its running mean now; ``None``: not known yet."""
    seconds_left: float
    dollars_left: float | None
    join_seconds: float
    """From asking for a machine to its first update: measured, else the pool's."""
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Updates per second of one worker of a type, as observed; types that are not known are left out."""
    cooling: Mapping[str, float] = field(default_factory=dict)
    """Seconds until machines of a type are asked for again: it was revoked, or refused."""


@dataclass(frozen=True)
class Replanning:
    """What to do."""

    add: dict[str, int]
    why: str
    in_time: bool
    affordable: bool
    """Whether the money left lasts until the loss is reached; if not, training has to end before."""
    seconds: float | None
    """Until the loss is reached; ``None``: by this fleet never."""
    dollars: float | None
    look_again_seconds: float | None
    """When a type has cooled down that could be of use; ``None``: nothing is cooling."""
    candidates: int
    decided_seconds: float


def replan(plan: FleetPlan, seen: FleetSituation) -> Replanning:
    """The cheapest additions to the survivors that are in time; else the soonest that the money allows."""
    began = time.perf_counter()
    wish = FleetWish(plan.pool, plan.model, plan.loss, max(seen.seconds_left, 0.0), plan.confidence)
    counts = _candidates(plan.pool, seen)
    training, dollars = _taken(wish, seen, counts, _Outlook(wish, plan, seen, counts))
    in_time = training <= seen.seconds_left * _caution(wish)
    affordable = np.isfinite(training)
    if plan.pool.most_vcpus is not None:
        affordable[1:] &= (counts @ wish.vcpus <= plan.pool.most_vcpus)[1:]
    if seen.dollars_left is not None:
        affordable &= dollars <= seen.dollars_left
    soonest = float(np.where(affordable, training, math.inf).min())
    at = _cheapest(counts, dollars, in_time & affordable, affordable & (training <= soonest * _HARDLY_LATER))
    added = {
        kind.name: int(more) for kind, more in zip(plan.pool.types, counts[at] - counts[0], strict=True) if more > 0
    }
    finite = bool(np.isfinite(training[at]))
    return Replanning(
        add=added,
        why=_why(added, bool(in_time[at]), bool(affordable[at]), finite),
        in_time=bool(in_time[at]),
        affordable=bool(affordable[at]),
        seconds=float(training[at]) if finite else None,
        dollars=float(dollars[at]) if finite else None,
        look_again_seconds=min((left for left in seen.cooling.values() if left > 0), default=None),
        candidates=len(counts),
        decided_seconds=time.perf_counter() - began,
    )


def _candidates(pool: FleetPool, seen: FleetSituation) -> Array:
    """Survivors, and survivors with more: [fleet, type]; the first adds nothing."""
    kept = np.array([seen.workers.get(kind.name, 0) for kind in pool.types])
    room = np.array([max(0, kind.quota - n) for kind, n in zip(pool.types, kept, strict=True)])
    room[[seen.cooling.get(kind.name, 0.0) > 0 for kind in pool.types]] = 0
    worth = np.array([kind.dollars_per_hour * kind.lone_seconds for kind in pool.types])
    few = np.argsort(np.where(room > 0, worth, math.inf), kind="stable")[:_MOST_TYPES]
    limits = room[few]
    while states(limits.tolist()) > MOST_CANDIDATES:
        limits = np.minimum(limits, limits.max() - max(1, limits.max() // 8))
    shape = tuple(int(limit) + 1 for limit in limits)
    counts = np.tile(kept, (math.prod(shape), 1)).astype(float)
    counts[:, few] += np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    return counts


class _Outlook:
    """How fast each fleet is, and how many updates are left to each."""

    def __init__(self, wish: FleetWish, plan: FleetPlan, seen: FleetSituation, counts: Array) -> None:
        present = counts.sum(axis=1) > 0
        safe = np.where(present[:, None], counts, 1.0)  # a fleet of nobody has no pace; it is left out below
        pace = asynchronous(safe, _iterations(wish, safe) / _corrections(wish, seen), wish.samples)
        self.rate: Array = np.where(present, pace.updates_per_second, 0.0)
        self.left = _left(plan, seen, pace, safe.sum(axis=1))


def _iterations(wish: FleetWish, counts: Array) -> Array:
    """Tᵢ, [fleet, type], of many fleets at once, whatever the pool's size."""
    if wish.model == "paper":
        return iteration_seconds(wish.pool, counts.sum(axis=1))
    network, most = of_pool(wish.pool), counts.max(axis=0).astype(int)
    here = most > 0
    network = replace(network, think=network.think[here])
    found = np.ones_like(counts)  # of types that no fleet has, anything: they do nothing
    if states(most[here].tolist()) > _MOST_STATES:
        found[:, here] = schweitzer(counts[:, here], network)
    else:
        lattice = exact(most[here].tolist(), network)
        rows = np.ravel_multi_index(tuple(counts[:, here].astype(int).T), tuple(most[here] + 1))
        found[:, here] = lattice.seconds[rows]
    return found


def _corrections(wish: FleetWish, seen: FleetSituation) -> Array:
    """Observed over predicted speed of each type; of types that nobody saw, what the others have in common."""
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


def _taken(wish: FleetWish, seen: FleetSituation, counts: Array, outlook: _Outlook) -> tuple[Array, Array]:
    """Seconds until the loss is reached, and dollars from now on, of each fleet."""
    join = np.where((counts != counts[0]).any(axis=1), seen.join_seconds, 0.0)
    rate, left = float(outlook.rate[0]), float(outlook.left[0])
    alone = left / rate if rate > 0 else math.inf  # what the survivors would take
    first = np.minimum(join, alone)
    undone = 1 - first / alone if alone > 0 else np.zeros_like(first)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(undone > 0, undone * outlook.left / outlook.rate, 0.0)
    training: Array = np.where(np.isnan(rest), math.inf, first + rest)
    hourly: Array = counts @ wish.prices + wish.server_price
    dollars = np.full_like(training, math.inf)
    np.multiply(training, hourly / HOUR, out=dollars, where=np.isfinite(training))
    return training, dollars


def _caution(wish: FleetWish) -> float:
    """By how much the time left is taken shorter for the confidence of the plan."""
    if wish.confidence is None or wish.deviation is None:
        return 1.0
    return math.exp(-float(ndtri(wish.confidence)) * wish.deviation)


def _cheapest(counts: Array, dollars: Array, *allowed: npt.NDArray[np.bool_]) -> int:
    """Of the first of ``allowed`` that holds any fleet; if none does, to add nothing."""
    for which in allowed:
        if which.any():
            return int(np.lexsort((counts.sum(axis=1), np.where(which, dollars, math.inf)))[0])
    return 0


def _why(added: Mapping[str, int], in_time: bool, affordable: bool, finite: bool) -> str:
    what = " and ".join(counted(n, "machine") + f" of {name}" for name, n in added.items()) or "nothing"
    if not finite:
        return "nobody is left, and nothing can be had now"
    if not affordable:
        return f"rent {what}: the money that is left does not last until the loss is reached"
    if not in_time:
        return f"rent {what}: nothing that can be had now is in time, this is the soonest"
    return f"rent {what}: the cheapest that is in time" if added else "rent nothing: who is left is in time"
