"""Who comes for a node of a gang that is gone: machines of a synchronous job, which all wait for the slowest.

A gang is as fast as its slowest node, so nobody comes who is slower than the slowest that was planned. Spot machines
come first; where none can be had, on demand ones do once waiting would be late, by Wu et al. ("Can't Be Late", NSDI
2024): R < C + 2d, with C the work that is left, in seconds of the whole gang by the plan, R what is left until the
deadline, d from asking for a machine to its training. Pure: knows no cloud. How far a script is, it is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from stash.base.spot.fleets import FleetPlan, FleetPool, WorkerType
from stash.base.words.counting import counted


@dataclass(frozen=True)
class GangSituation:
    """A gang in the middle of training, as it was seen."""

    workers: Mapping[str, int]
    """Who stays, of either kind, by type; those that are about to join too."""
    least: int
    """Nodes that can train."""
    work_seconds: float
    """C: left, of the whole gang."""
    seconds_left: float
    """R: until the deadline."""
    join_seconds: float
    """d."""
    cooling: Mapping[str, float] = field(default_factory=dict)
    """Seconds until spot machines of a type are asked for again."""
    refused: Mapping[str, float] = field(default_factory=dict)
    """The same on demand."""


@dataclass(frozen=True)
class Successors:
    """What to rent now."""

    add: dict[str, int]
    """On spot, or as the type is planned."""
    add_on_demand: dict[str, int]
    missing: int
    """Nodes that nobody comes for yet."""
    why: str
    look_again_seconds: float | None
    """When to decide anew; ``None``: nothing changes by itself."""
    last_moment_seconds: float
    """Until when machines on demand would still be in time; negative: no more."""


def succeed(plan: FleetPlan, seen: GangSituation) -> Successors:
    """For every node that is missing the planned type, else the cheapest other that is fast enough."""
    planned = {} if plan.chosen is None else plan.chosen.workers
    lacking = _lacking(planned, seen.workers)
    slack = seen.seconds_left - seen.work_seconds - 2 * seen.join_seconds
    if not lacking:
        return Successors({}, {}, 0, "rent nothing: the gang is whole", None, slack)
    able = _able(plan.pool, planned)
    room = Counter({kind.name: kind.quota - seen.workers.get(kind.name, 0) for kind in able})
    spot = _placed(lacking, [kind for kind in able if _free(kind, seen)], room)
    rest = lacking[sum(spot.values()) :]
    waits = _wait(able, seen)
    present = sum(seen.workers.values()) + sum(spot.values())
    dear: dict[str, int] = {}
    if rest and _now(present, len(_names(planned)), waits, slack, seen):
        wanted = rest if present >= seen.least or slack >= 0 else rest[: seen.least - present]
        dear = _placed(wanted, _by_on_demand(able, seen), room)
    missing = len(rest) - sum(dear.values())
    return Successors(spot, dear, missing, _why(spot, dear, missing, waits), waits if missing else None, slack)


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


def _able(pool: FleetPool, planned: Mapping[str, int]) -> list[WorkerType]:
    """Types that hold nobody up, the cheapest first."""
    slowest = min((kind.samples_per_second for kind in pool.types if planned.get(kind.name)), default=0.0)
    able = [kind for kind in pool.types if kind.samples_per_second >= slowest and kind.dollars_per_hour > 0]
    return sorted(able, key=lambda kind: (kind.dollars_per_hour, kind.name))


def _free(kind: WorkerType, seen: GangSituation) -> bool:
    """Whether it may be asked for now, as it is planned to be rented."""
    return (seen.refused if kind.fixed else seen.cooling).get(kind.name, 0.0) <= 0


def _by_on_demand(able: list[WorkerType], seen: GangSituation) -> list[WorkerType]:
    priced = [(kind.on_demand_price, kind) for kind in able if not kind.fixed and not seen.refused.get(kind.name)]
    known = [(price, kind) for price, kind in priced if price]
    return [kind for _, kind in sorted(known, key=lambda each: (each[0], each[1].name))]


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


def _wait(able: list[WorkerType], seen: GangSituation) -> float | None:
    """Seconds until some type may be asked for again; ``None``: none is cooling."""
    until = [(seen.refused if kind.fixed else seen.cooling).get(kind.name, 0.0) for kind in able]
    return min((seconds for seconds in until if seconds > 0), default=None)


def _now(present: int, planned: int, waits: float | None, slack: float, seen: GangSituation) -> bool:
    """Whether machines on demand are needed now."""
    training = present / planned if present >= seen.least else 0.0
    if waits is None:
        return slack >= 0 or present < seen.least
    after = slack - waits * (1.0 - training)
    return after < 0 and (slack >= 0 or present < seen.least)


def _why(spot: Mapping[str, int], dear: Mapping[str, int], missing: int, waits: float | None) -> str:
    parts = [_machines(spot, " on spot" if dear else ""), _machines(dear, " on demand")]
    now = " and ".join(part for part in parts if part) or "nothing"
    if missing and waits is not None:
        rest = f"{counted(missing, 'node')} more once a type has cooled down"
    elif missing:
        rest = f"{counted(missing, 'node')} cannot be had"
    else:
        rest = "no spot machines would be in time" if dear else "the gang is whole again with that"
    return f"rent {now}: {rest}"


def _machines(added: Mapping[str, int], how: str) -> str:
    return " and ".join(f"{counted(n, 'machine')} of {name}{how}" for name, n in added.items())
