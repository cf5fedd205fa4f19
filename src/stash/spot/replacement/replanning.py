"""What to rent now that machines are gone: for an asynchronous fleet, and for a synchronous gang. Knows no cloud.

Survivors of a fleet are kept. Spot machines that can be had now and are in time come first; machines on demand are
for where none are, and a type's cooldown is waited for where machines on demand would still do afterwards.

A gang is as fast as its slowest node, so no node comes that is slower than the slowest that was planned. Spot
machines come first there, too; where none can be had, on demand ones do once waiting would be late, by Wu et al.
("Can't Be Late", NSDI 2024): R < C + 2d, with C the work that is left, in seconds of the whole gang by the plan, R
what is left until the deadline, d from asking for a machine to its training.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stash.core.units import counted
from stash.predict.draws import Array
from stash.spot.choose.fleet_costs import HOUR
from stash.spot.records.fleets import FleetPlan, WorkerType
from stash.spot.replacement.outlook import (
    Bools,
    FleetOutlook,
    FleetSituation,
    GangSituation,
    MachineOffers,
    RentDecision,
    additions,
    offers_of,
)

_HARDLY_LATER = 1.05
"""Of what is late anyway, the cheapest of those that are not later than this many times the soonest."""
_MUCH_SOONER = 2.0
"""How many times as soon it has to be, of what is late anyway, to be worth machines on demand."""


@dataclass(frozen=True, kw_only=True)
class Replanning(RentDecision):
    """What to rent for a fleet now."""

    in_time: bool
    affordable: bool
    """Whether the money left lasts until the loss is reached; if not, training has to end before."""
    seconds: float | None
    """Until the loss is reached; ``None``: by this fleet never."""
    dollars: float | None
    candidates: int
    decided_seconds: float
    later: Mapping[str, int]
    """Spot machines to decide about again once their type has cooled down: ``seconds`` and ``dollars`` count them."""


def replan(plan: FleetPlan, seen: FleetSituation) -> Replanning:
    """What to add to the survivors.

    The cheapest spot machines that can be had now and are in time. If none are, the cheapest mix that is, with
    machines on demand; their types are waited for on spot instead, while somebody trains and where that costs less,
    if machines on demand would still be in time were they refused: R ≥ C + 2d then, the safety net of Wu et al.
    ("Can't Be Late", NSDI 2024). If nothing is in time, the soonest that the money allows, which has to be twice as
    soon to have machines on demand.
    """
    began = time.perf_counter()
    offers = offers_of(plan.pool, seen.workers, seen.cooling, seen.refused)
    extra = additions(plan.pool, offers)
    outlook = FleetOutlook(plan, seen, offers.kept + extra)
    training = outlook.training(np.where(extra.any(axis=1), seen.join_seconds, 0.0))
    dollars = outlook.dollars(training, extra @ offers.prices)
    affordable = np.isfinite(training) & outlook.fits & (dollars <= outlook.money)
    in_time = training <= outlook.limit
    dear = np.any(extra[:, offers.dearer] > 0, axis=1)
    last = outlook.last_moment(extra, offers.on_demand)
    at = _best(training, dollars, extra.sum(axis=1), affordable, in_time, dear)
    row, seconds, paid = extra[at], float(training[at]), float(dollars[at])
    hot = offers.dearer & (row > 0)
    waited = _waiting(outlook, offers, row, at, last, seen.join_seconds) if dear[at] and in_time[at] else None
    if waited is not None and waited[1] <= paid:
        seconds, paid = waited
    else:
        hot = np.zeros_like(hot)

    def those(which: Bools) -> dict[str, int]:
        named = zip(plan.pool.types, row, which, strict=True)
        return {kind.name: int(more) for kind, more, wanted in named if more > 0 and wanted}

    spot, on_demand, later = those(~offers.fixed), those(offers.fixed & ~hot), those(hot)
    finite = math.isfinite(seconds)
    cooling = [left for each in (seen.cooling, seen.refused) for left in each.values() if left > 0]
    why = _why(_rented(spot, on_demand), later, bool(in_time[at]), bool(affordable[at]), finite, bool(dear[at]))
    return Replanning(
        add=spot,
        add_on_demand=on_demand,
        later=later,
        why=why,
        in_time=bool(in_time[at]),
        affordable=bool(affordable[at]),
        seconds=seconds if finite else None,
        dollars=paid if finite else None,
        look_again_seconds=min(cooling, default=None),
        last_moment_seconds=last,
        candidates=len(extra),
        decided_seconds=time.perf_counter() - began,
    )


def _best(training: Array, dollars: Array, size: Array, affordable: Bools, in_time: Bools, dear: Bools) -> int:
    """Which fleet ``replan`` takes; the first one, which adds nothing, if there is no money for any."""
    felt = np.where(dear, _MUCH_SOONER, 1.0) * training
    soonest = float(np.min(felt, where=affordable, initial=math.inf))
    kept = affordable & in_time
    for allowed in (kept & ~dear, kept, affordable & (felt <= soonest * _HARDLY_LATER)):
        if allowed.any():
            return int(np.lexsort((size, np.where(allowed, dollars, math.inf)))[0])
    return 0


def _waiting(
    outlook: FleetOutlook, offers: MachineOffers, row: Array, at: int, last: float | None, join: float
) -> tuple[float, float] | None:
    """(seconds, dollars) if what is on demand in fleet ``at`` were asked for on spot once its types have cooled down;
    ``None`` where that is not safe: it is known one change-over after the wait whether they come.
    """
    hot = offers.dearer & (row > 0)
    wait = float(offers.cooling[hot].max())
    if last is None or not outlook.trains or wait + join > last:
        return None
    training = outlook.training(np.full(len(outlook.fits), join + wait))
    added = row @ np.where(hot, offers.spot, offers.prices)
    seconds, paid = float(training[at]), float(outlook.dollars(training, added)[at])
    paid -= wait * float(row[hot] @ offers.spot[hot]) / HOUR  # which is not paid before it is asked for
    return (seconds, paid) if wait < seconds <= outlook.limit and paid <= outlook.money else None


def _why(now: str, later: Mapping[str, int], in_time: bool, affordable: bool, finite: bool, dearer: bool) -> str:
    if not finite:
        return "no worker is left, and no machine can be had now"
    if not affordable:
        return f"rent {now}: the money that is left does not last until the loss is reached"
    if later:
        return f"rent {now} now, and {_machines(later)} after the cooldown: the cheapest that is in time"
    if not in_time:
        return f"rent {now}: nothing that can be had now is in time, this is the soonest"
    if dearer:
        return f"rent {now}: no spot machines are in time, this is the cheapest that is"
    return f"rent {now}: the cheapest that is in time" if now != "nothing" else "rent nothing: who is left is in time"


def _machines(added: Mapping[str, int], how: str = "") -> str:
    return " and ".join(f"{counted(n, 'machine')} of {name}{how}" for name, n in added.items())


def _rented(spot: Mapping[str, int], dear: Mapping[str, int]) -> str:
    parts = [_machines(spot, " on spot" if dear else ""), _machines(dear, " on demand")]
    return " and ".join(part for part in parts if part) or "nothing"


@dataclass(frozen=True, kw_only=True)
class Successors(RentDecision):
    """What to rent for a gang now."""

    missing: int
    """Nodes that have no replacement yet."""


def succeed(plan: FleetPlan, seen: GangSituation) -> Successors:
    """Replace every missing node by one of the planned type, else by the cheapest other that is fast enough."""
    planned = {} if plan.chosen is None else plan.chosen.workers
    lacking = _lacking(planned, seen.workers)
    slack = seen.seconds_left - seen.work_seconds - 2 * seen.join_seconds
    in_time = slack if slack > 0 else None
    if not lacking:
        why = "rent nothing: the gang is whole"
        return Successors(
            add={}, add_on_demand={}, missing=0, why=why, look_again_seconds=None, last_moment_seconds=in_time
        )
    # Types that delay no other, the cheapest first.
    slowest = min((kind.samples_per_second for kind in plan.pool.types if planned.get(kind.name)), default=0.0)
    fast = [kind for kind in plan.pool.types if kind.samples_per_second >= slowest and kind.dollars_per_hour > 0]
    able = sorted(fast, key=lambda kind: (kind.dollars_per_hour, kind.name))
    room = Counter({kind.name: kind.quota - seen.workers.get(kind.name, 0) for kind in able})
    # Seconds until each may be asked for as it is planned to be rented, and until any of those that cool down may.
    until = {kind.name: (seen.refused if kind.fixed else seen.cooling).get(kind.name, 0.0) for kind in able}
    waits = min((seconds for seconds in until.values() if seconds > 0), default=None)
    spot = _placed(lacking, [kind for kind in able if until[kind.name] <= 0], room)
    rest = lacking[sum(spot.values()) :]
    present = sum(seen.workers.values()) + sum(spot.values())
    dear: dict[str, int] = {}
    if rest and _now(present, len(_names(planned)), waits, slack, seen):
        wanted = rest if present >= seen.least or slack >= 0 else rest[: seen.least - present]
        had = [kind for kind in able if not kind.fixed and kind.on_demand_price and not seen.refused.get(kind.name)]
        dear = _placed(wanted, sorted(had, key=lambda kind: (kind.on_demand_price or 0.0, kind.name)), room)
    missing = len(rest) - sum(dear.values())
    rest_of_gang = "no spot machines would be in time" if dear else "the gang is whole again with that"
    if missing:
        how = "cannot be had" if waits is None else "more once a type has cooled down"
        rest_of_gang = f"{counted(missing, 'node')} {how}"
    return Successors(
        add=spot,
        add_on_demand=dear,
        missing=missing,
        why=f"rent {_rented(spot, dear)}: {rest_of_gang}",
        look_again_seconds=waits if missing else None,
        last_moment_seconds=in_time,
    )


def _names(planned: Mapping[str, int]) -> list[str]:
    """A type for each node."""
    return [name for name, count in planned.items() for _ in range(count)]


def _lacking(planned: Mapping[str, int], there: Mapping[str, int]) -> list[str]:
    """The planned types of nodes that are missing: as many as it takes to be as many as planned."""
    left, gone = Counter(there), []
    for name in _names(planned):
        if left[name] > 0:
            left[name] -= 1
        else:
            gone.append(name)
    return gone[: max(0, len(_names(planned)) - sum(there.values()))]


def _placed(lacking: list[str], of: list[WorkerType], room: Counter[str]) -> dict[str, int]:
    """One for each, its own type if that is among ``of`` (by price); takes from ``room``."""
    found: Counter[str] = Counter()
    for name in lacking:
        own = [kind for kind in of if kind.name == name]
        for kind in (*own, *of):
            if room[kind.name] > 0:
                room[kind.name] -= 1
                found[kind.name] += 1
                break
    return dict(found)


def _now(present: int, planned: int, waits: float | None, slack: float, seen: GangSituation) -> bool:
    """Whether machines on demand are needed now."""
    training = present / planned if present >= seen.least else 0.0
    if waits is None:
        return slack >= 0 or present < seen.least
    after = slack - waits * (1.0 - training)
    return after < 0 and (slack >= 0 or present < seen.least)
