"""What to rent now: machines of a fleet are gone, the loss is what it is, time and money are what is left of them.

Survivors are kept. Spot machines that can be had now and are in time come first; machines on demand are for where
none are, and a type's cooldown is waited for where machines on demand would still do afterwards. Pure: knows no
cloud; decides within a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from stash.base.spot.fleets import FleetPlan
from stash.base.words.counting import counted
from stash.derive.predict.uncertainty.draws import Array
from stash.derive.spot.takeover.additions import (
    Additions,
    Bools,
    Integers,
    at_once,
    candidates,
    offers_of,
    on_demand_only,
    on_spot,
)
from stash.derive.spot.takeover.outlook import FleetAnswers, FleetOutlook, FleetSituation

_HARDLY_LATER = 1.05
"""Of what is late anyway, the cheapest of those that are not later than this many times the soonest."""
_MUCH_SOONER = 2.0
"""How many times as soon it has to be, of what is late anyway, to be worth machines on demand."""


@dataclass(frozen=True)
class Replanning:
    """What to do."""

    add: dict[str, int]
    """On spot."""
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
    add_on_demand: dict[str, int] = field(default_factory=dict)
    later: dict[str, int] = field(default_factory=dict)
    """Spot machines to decide about again once their type has cooled down: ``seconds`` and ``dollars`` count them."""
    last_moment_seconds: float | None = None
    """Until when machines on demand would be in time, if no spot machine were to come; ``None``: they are not now."""


def replan(plan: FleetPlan, seen: FleetSituation) -> Replanning:
    """What to add to the survivors.

    The cheapest spot machines that can be had now and are in time. If none are, the cheapest mix that is: with
    machines on demand, or, while somebody trains, with spot ones that are asked for once their type has cooled down,
    if machines on demand would still be in time were those refused: R ≥ C + 2d then, the safety net of Wu et al.
    ("Can't Be Late", NSDI 2024). If nothing is in time, the soonest that the money allows, which has to be twice as
    soon to have machines on demand.
    """
    began = time.perf_counter()
    offers = offers_of(plan.pool, seen.workers, seen.cooling, seen.refused)
    few, extra = candidates(plan.pool, offers)
    outlook = FleetOutlook(plan, seen, _counts(offers.kept, few, extra))
    last = outlook.last_moment(on_demand_only(offers.of(few), extra))
    ways = (on_spot(offers.of(few), extra), at_once(offers.of(few), extra))
    answers = _together([outlook.answers(way, last) for way in ways])
    at = _best(answers)
    chosen = _named([plan.pool.types[number].name for number in few], ways[at // len(extra)], at % len(extra))
    finite = bool(np.isfinite(answers.training[at]))
    in_time, affordable = bool(answers.in_time[at]), bool(answers.affordable[at])
    cooling = [left for each in (seen.cooling, seen.refused) for left in each.values() if left > 0]
    return Replanning(
        add=chosen.spot,
        why=_why(chosen, in_time, affordable, finite, bool(answers.dearer[at])),
        in_time=in_time,
        affordable=affordable,
        seconds=float(answers.training[at]) if finite else None,
        dollars=float(answers.dollars[at]) if finite else None,
        look_again_seconds=min(cooling, default=None),
        candidates=len(extra),
        decided_seconds=time.perf_counter() - began,
        add_on_demand=chosen.on_demand,
        later=chosen.later,
        last_moment_seconds=last,
    )


def _counts(kept: Array, types: Integers, extra: Array) -> Array:
    """[fleet, type]."""
    counts = np.tile(kept, (len(extra), 1))
    counts[:, types] += extra
    return counts


def _together(parts: Sequence[FleetAnswers]) -> FleetAnswers:
    names = [each.name for each in fields(FleetAnswers)]
    return FleetAnswers(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _best(of: FleetAnswers) -> int:
    """Which answer ``replan`` gives; the first one, which adds nothing, if there is no money for any."""
    kept, late = of.affordable & of.in_time, of.affordable & ~of.waits
    felt = np.where(of.dearer, _MUCH_SOONER, 1.0) * of.training
    soonest = float(np.min(felt, where=late, initial=math.inf))
    for allowed in (kept & ~of.waits & ~of.dearer, kept, late & (felt <= soonest * _HARDLY_LATER)):
        if allowed.any():
            return int(np.lexsort((of.size, np.where(allowed, of.dollars, math.inf)))[0])
    return 0


@dataclass(frozen=True)
class _Chosen:
    """Machines to add, by type."""

    spot: dict[str, int]
    on_demand: dict[str, int]
    later: dict[str, int]
    """On spot, once they have cooled down."""


def _named(types: Sequence[str], had: Additions, at: int) -> _Chosen:
    def those(which: Bools) -> dict[str, int]:
        row = zip(types, had.extra[at], which, strict=True)
        return {name: int(more) for name, more, wanted in row if more > 0 and wanted}

    later = had.waits > 0
    return _Chosen(those(~had.on_demand & ~later), those(had.on_demand), those(later))


def _why(chosen: _Chosen, in_time: bool, affordable: bool, finite: bool, dearer: bool) -> str:
    if not finite:
        return "nobody is left, and nothing can be had now"
    parts = [
        _machines(chosen.spot, " on spot" if chosen.on_demand else ""),
        _machines(chosen.on_demand, " on demand"),
    ]
    now = " and ".join(part for part in parts if part) or "nothing"
    if not affordable:
        return f"rent {now}: the money that is left does not last until the loss is reached"
    if chosen.later:
        return f"rent {now} now, and {_machines(chosen.later)} after the cooldown: the cheapest that is in time"
    if not in_time:
        return f"rent {now}: nothing that can be had now is in time, this is the soonest"
    if dearer:
        return f"rent {now}: no spot machines are in time, this is the cheapest that is"
    return f"rent {now}: the cheapest that is in time" if now != "nothing" else "rent nothing: who is left is in time"


def _machines(added: Mapping[str, int], how: str = "") -> str:
    return " and ".join(f"{counted(n, 'machine')} of {name}{how}" for name, n in added.items())
