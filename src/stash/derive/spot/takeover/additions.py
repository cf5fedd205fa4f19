"""What could be added to a fleet: how many more of which type, on spot or on demand, from when on, and for how much.

A machine on demand trains as fast as a spot one of its type, costs its own price, and can be had while the type is
left alone on spot. A quota counts both together. Knows no speed and no deadline: which is best is ``replanning``'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stash.base.spot.fleets import FleetPool
from stash.derive.predict.uncertainty.draws import Array
from stash.derive.spot.speed.queueing import states

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int_]
MOST_CANDIDATES = 20_000
"""Fleets that are weighed at most: a fraction of a second."""
_NEVER = 1e9
"""Seconds until a type that is planned on demand is asked for on spot: longer than any training."""
_MOST_TYPES = 8
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
    """$/h; infinite where nobody says, or where it was refused lately."""

    def of(self, types: Integers) -> MachineOffers:
        """Of these types alone."""
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
    if not fixed.any():  # then nobody waits for a type to cool down: nothing would do instead if it was refused again
        room[hot] = 0
    price = np.where(
        hot & fixed, offers.on_demand, np.where(hot, offers.spot, np.minimum(offers.spot, offers.on_demand))
    )
    worth = price * np.array([kind.lone_seconds for kind in pool.types])
    few = np.argsort(np.where(room > 0, worth, math.inf), kind="stable")[:_MOST_TYPES]
    limits = room[few].astype(int)
    while states(limits.tolist()) > MOST_CANDIDATES:
        limits = np.minimum(limits, limits.max() - max(1, limits.max() // 8))
    shape = tuple(int(limit) + 1 for limit in limits)
    return few, np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1).astype(float)


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
