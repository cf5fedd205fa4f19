"""The ladder: which rungs exist, what each adds, and in which order a round measures them.

A *rung* is a condition under which the same training step is timed; each adds one thing to the rung
below it, so the difference of two neighbouring rungs is one *stall*. This module knows the rungs,
which of them can differ on a given job, and the order of blocks in a round. It knows nothing
of clocks, processes or PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stash.base.errors import UserError

Scope = Literal["self", "node", "world"]
Feed = Literal["resident", "replay", "warm", "cold"]
Active = Literal["leader", "followers", "all"]


@dataclass(frozen=True)
class Rung:
    """One condition of the ladder, and the name of the stall it adds to the rung below."""

    name: str
    adds: str
    scope: Scope
    feed: Feed
    active: Active


RUNGS: tuple[Rung, ...] = (
    Rung("resident", "compute", "self", "resident", "leader"),
    Rung("solo", "transfer", "self", "replay", "leader"),
    Rung("crowd", "contention", "self", "replay", "all"),
    Rung("node", "interconnect", "node", "replay", "all"),
    Rung("cluster", "network", "world", "replay", "all"),
    Rung("warm", "prep", "world", "warm", "all"),
    Rung("cold", "fetch", "world", "cold", "all"),
)
NAMES: tuple[str, ...] = tuple(rung.name for rung in RUNGS)
STALLS: tuple[str, ...] = tuple(rung.adds for rung in RUNGS)
CATCH_UP = "catch-up"
"""What the followers' visit after a block of the leader's is called."""
_BY_NAME: Mapping[str, Rung] = {rung.name: rung for rung in RUNGS}


def rung(name: str) -> Rung:
    """The rung called ``name``; raises UserError listing the valid names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise UserError(f"unknown rung {name!r}; the rungs are {', '.join(NAMES)}") from None


def parse_rungs(text: str) -> tuple[str, ...]:
    """Rung names out of ``"solo,cluster,warm"``, in ladder order; raises UserError for unknown names."""
    wanted = {rung(part.strip()).name for part in text.split(",") if part.strip()}
    if not wanted:
        raise UserError(f"no rungs in {text!r}; the rungs are {', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in wanted)


@dataclass(frozen=True)
class Situation:
    """What decides which rungs can differ: the job's shape and what discovery found."""

    world_size: int
    nodes: int
    ranks_per_node: int
    accelerator: bool
    loader: bool


def reachable(situation: Situation, wanted: Iterable[str] = NAMES) -> tuple[tuple[str, ...], dict[str, str]]:
    """Split the rungs into those worth measuring and those skipped, each with its reason.

    A rung that cannot differ from the one below it is not measured: its stall is unknown, not zero.
    """
    wanted = set(wanted)
    skipped: dict[str, str] = {}
    for name in NAMES:
        why = _obstacle(name, situation)
        if why is None and name not in wanted:
            why = "not asked for (--rungs)"
        if why is not None:
            skipped[name] = why
    return tuple(name for name in NAMES if name not in skipped), skipped


def _obstacle(name: str, s: Situation) -> str | None:
    one_device = "one device"
    if name == "resident":
        if not s.accelerator:
            return "the job runs on CPUs: there is no host-to-device copy"
        if not s.loader:
            return "no data loader to replay batches from"
    if name in ("crowd", "node", "cluster") and s.world_size == 1:
        return one_device
    if name == "node" and s.ranks_per_node == 1:
        return "one device per node"
    if name == "cluster" and s.nodes == 1:
        return "one node"
    if name in ("warm", "cold") and not s.loader:
        return "no data loader was seen; wrap yours: `for batch in stash.watch(loader):`"
    return None


def without_exchange(phase: str) -> bool:
    """Whether collectives of the job are held back during this block: below scope world, or while ranks catch up."""
    return phase == CATCH_UP or (phase in _BY_NAME and _BY_NAME[phase].scope != "world")


@dataclass(frozen=True)
class Visit:
    """One block to run: a rung, or the followers' catch-up after a block that only the leader ran."""

    rung: str
    scope: Scope
    feed: Feed
    active: Active
    measured: bool = True


def round_of_visits(rungs: Iterable[str], number: int, world_size: int) -> tuple[Visit, ...]:
    """The blocks of round ``number`` (from 0) in the order they are run.

    Even rounds climb, odd rounds descend, so that linear drift of the machine cancels over a pair
    of rounds; ``cold`` always runs just before ``warm``, which re-reads the same samples. After the
    blocks only the leader runs, the other ranks run as many steps alone: replicas stay in step, so
    anything a script does every N steps happens on every rank at once.
    """
    names = set(rungs)
    climb = [r for r in RUNGS if r.name in names and r.name not in ("warm", "cold")]
    data = [_BY_NAME[name] for name in ("cold", "warm") if name in names]
    order = climb + data if number % 2 == 0 else data + climb[::-1]
    visits: list[Visit] = []
    for r in order:
        visits.append(Visit(r.name, r.scope, r.feed, r.active))
        if r.active == "leader" and world_size > 1:
            visits.append(Visit(CATCH_UP, "self", r.feed, "followers", measured=False))
    return tuple(visits)
