"""The ladder: which rungs exist, what each adds, and in which order a round measures them.

A *rung* is a condition under which the same training step is timed; each adds one thing to the rung
below it, so the difference of two neighbouring rungs is one *stall*. This module knows the rungs and what each
does, which of them can differ on a given job (in the sentences that all reports quote), and the order of blocks in
a round. It knows nothing of clocks, processes or PyTorch.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stash.core.errors import UserError

ScopeName = Literal["self", "node", "world"]
FeedMode = Literal["resident", "replay", "warm", "cold"]
Active = Literal["leader", "followers", "all"]
_UNLIKE = 3
"""Lengths that rounds have."""
_READ: tuple[FeedMode, ...] = ("warm", "cold")
"""Feeds that read; the others replay."""


@dataclass(frozen=True)
class Rung:
    """One condition of the ladder, and the name of the stall it adds to the rung below."""

    name: str
    adds: str
    scope: ScopeName
    feed: FeedMode
    active: Active

    @property
    def reads_data(self) -> bool:
        """Batches come from the script's own loader, not from memory."""
        return self.feed in _READ

    @property
    def replays(self) -> bool:
        """Batches were kept in memory, so that nothing waits for data."""
        return not self.reads_data

    @property
    def exchanges(self) -> bool:
        """Ranks exchange gradients, with those of their node at least."""
        return self.scope != "self"


RUNGS: tuple[Rung, ...] = (
    Rung("resident", "compute", "self", "resident", "leader"),
    Rung("solo", "transfer", "self", "replay", "leader"),
    Rung("crowd", "contention", "self", "replay", "all"),
    Rung("node", "interconnect", "node", "replay", "all"),
    Rung("cluster", "network", "world", "replay", "all"),
    Rung("warm", "prep", "world", "warm", "all"),
    Rung("cold", "fetch", "world", "cold", "all"),
)
UNTOUCHED = Rung("untouched", "", "world", "warm", "all")
"""No rung of the ladder: a job's first steps, as it was typed, with nothing changed but that they are timed."""
NAMES: tuple[str, ...] = tuple(rung.name for rung in RUNGS)
BUBBLE = "bubble"
"""What a pipeline's stages stand still: no rung adds it, its steps are seen to (``analysis/seen``)."""
_ADDED: tuple[str, ...] = tuple(rung.adds for rung in RUNGS)
STALLS: tuple[str, ...] = (*_ADDED[:3], BUBBLE, *_ADDED[3:])
DATA_STALLS: tuple[str, ...] = tuple(rung.adds for rung in RUNGS if rung.reads_data)
EXCHANGE_STALLS: tuple[str, ...] = tuple(
    rung.adds for rung in RUNGS if rung.exchanges and rung.replays
)
CATCH_UP = "catch-up"
"""What a visit of the followers is called: no rung, for nothing is measured."""
NOT_ASKED = "not asked for (--rungs)"
NOTHING_READ = (
    "no file was seen being read by the loader (data in memory, an object store, or C code "
    "that opens files itself: then pass --data-root)"
)
"""Why files were not made cold: nothing is known to be read."""

_BY_NAME: Mapping[str, Rung] = {rung.name: rung for rung in RUNGS}
_BY_STALL: Mapping[str, Rung] = {rung.adds: rung for rung in RUNGS}


def rung(name: str) -> Rung:
    """The rung called ``name``; raises UserError listing the valid names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise UserError(f"unknown rung {name!r}; the rungs are {', '.join(NAMES)}") from None


def rung_adding(stall: str) -> Rung:
    """The rung that adds ``stall``, one of ``STALLS`` but the bubble."""
    return _BY_STALL[stall]


def stall_names(rungs: Sequence[str]) -> tuple[str, ...]:
    """One stall for each of ``rungs``, those that were run: the first is compute, then what each adds."""
    return (STALLS[0], *(_BY_NAME[name].adds for name in rungs[1:]))


def has_no_exchange(phase: str) -> bool:
    """Whether collectives of the job are held back in this phase: below scope world, or while ranks catch up."""
    return phase == CATCH_UP or (phase in _BY_NAME and _BY_NAME[phase].scope != "world")


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
    immovable: str | None = None
    """Why its batches cannot be kept on the device, if they cannot."""


def split_reachable(
    situation: Situation, wanted: Iterable[str] = NAMES
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Split the rungs into those worth measuring and those skipped, each with its reason.

    A rung that cannot differ from the one below it is not measured: its stall is unknown, not zero.
    """
    wanted = set(wanted)
    skipped: dict[str, str] = {}
    for name in NAMES:
        why = why_not(name, situation) or (None if name in wanted else NOT_ASKED)
        if why is not None:
            skipped[name] = why
    return tuple(name for name in NAMES if name not in skipped), skipped


def why_not(name: str, situation: Situation) -> str | None:
    """Why measuring the rung ``name`` would tell nothing on this job, or cannot be done; ``None`` if it can."""
    if name == "solo":
        return None
    # The lowest rung is there to distinguish the transfer, which the next one adds.
    why = why_no_stall("transfer" if name == "resident" else _BY_NAME[name].adds, situation)
    if why is not None:
        return why
    if name == "resident":
        return situation.immovable if situation.loader else "no data loader to replay batches from"
    if _BY_NAME[name].reads_data and not situation.loader:
        return (
            "no data loader was seen, so what makes batches is part of compute; wrap yours: "
            "`for batch in stash.loader(loader):`"
        )
    return None


def why_no_stall(stall: str, situation: Situation) -> str | None:
    """Why ``stall`` cannot exist on a job of this shape; ``None`` if it can."""
    if stall == "transfer" and not situation.accelerator:
        return "the job runs on CPUs: there is no host-to-device copy"
    if stall in ("contention", *EXCHANGE_STALLS) and situation.world_size <= 1:
        return "one device"
    if stall == "interconnect" and situation.ranks_per_node <= 1:
        return "one device per node"
    if stall == "network" and situation.nodes <= 1:
        return "one node"
    return None


@dataclass(frozen=True)
class Visit:
    """One block to run: a rung, or the followers' catch-up after a block that only the leader ran."""

    rung: str
    scope: ScopeName
    feed: FeedMode
    active: Active
    measured: bool = True
    lead_in: int = 0
    """Steps to run before, so that what a script does every N steps falls on other rungs in other rounds."""

    @property
    def reads_data(self) -> bool:
        """Batches come from the script's own loader, not from memory."""
        return self.feed in _READ


def round_of_visits(rungs: Iterable[str], number: int, world_size: int) -> tuple[Visit, ...]:
    """The blocks of round ``number`` (from 0) in the order they are run.

    Even rounds ascend, odd ones descend, so that linear drift of the machine cancels over a pair of rounds. ``cold``
    runs just before ``warm``, which re-reads the same samples, and before the replays, whose batches have to be read:
    it is first to read what it reads. After the blocks only the leader runs, the other ranks run as many steps alone:
    replicas stay in step, so anything a script does every N steps happens on every rank at once. Rounds differ in
    length by a step or two, drawn by their number: else such a thing could meet the same rung in every round.
    """
    names = set(rungs)
    ascending = [r for r in RUNGS if r.name in names and r.replays]
    data = [r for r in reversed(RUNGS) if r.name in names and r.reads_data]
    descends = number % 2 == 1
    replays = ascending[::-1] if descends else ascending
    order = data + replays if descends or "cold" in names else replays + data
    late = next((r.name for r in order if r.replays and r.active == "all"), None)
    visits: list[Visit] = []
    for r in order:
        lead_in = random.Random(number).randrange(_UNLIKE) if r.name == late else 0
        visits.append(Visit(r.name, r.scope, r.feed, r.active, lead_in=lead_in))
        if r.active == "leader" and world_size > 1:
            visits.append(Visit(CATCH_UP, "self", r.feed, "followers", measured=False))
    return tuple(visits)
