"""How far a training should come through revocations that are known beforehand, by the fitted queue.

What the machine shows of itself, for how long a worker or a server is missing, is taken from earlier runs. The rest
is the plan's: one with notice trains until it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from bench.spot.truth import Coefficients, Configuration, by_queue
from stash.lab.testbed.revoke import Revocation, parse_revocation
from stash.spot.records.runs import SpotTakeover, SpotUpdates

RATE = 200e6 / 8
PACE = {"fast": 0.15, "slow": 0.3}
KINDS = ("fast", "fast", "slow", "slow")
"""Of worker1, worker2, …"""


@dataclass(frozen=True)
class RevocationRun:
    """One run: who is taken when."""

    name: str
    revocations: tuple[str, ...]
    servers: int = 1
    bound: int | None = None
    checkpoint_seconds: float = 5.0
    seconds: float = 36.0


@dataclass(frozen=True)
class Waits:
    """Seconds without a machine, as earlier runs had them."""

    noticed: list[float] = field(default_factory=list)
    """From the last update of one with notice until its successor's first; below 0 if they trained together."""
    vanished: list[float] = field(default_factory=list)
    """The same of one without."""
    servers: list[float] = field(default_factory=list)
    """From the last update before a server was missed until the first one with its successor."""

    def add(self, found: Sequence[SpotTakeover], updates: SpotUpdates) -> None:
        lives = dict[str, tuple[float, float]]()
        for name, at in zip(updates.worker, updates.seconds, strict=True):
            lives[name] = lives.get(name, (at, at))[0], at
        for each in found:
            if each.gone in lives and each.successor in lives:
                apart = lives[each.successor][0] - lives[each.gone][1]
                (self.vanished if each.notice is None else self.noticed).append(apart)
        if any(each.gone.startswith("server") and each.joined_seconds is not None for each in found):
            self.servers.append(max(later - earlier for earlier, later in pairwise(updates.seconds)))


@dataclass(frozen=True)
class _Absence:
    """A machine that is not there; ``None`` is a server, without which none trains."""

    kind: str | None
    start: float
    stop: float


def speed(run: RevocationRun, workers: Mapping[str, int], known: Coefficients) -> float:
    """Updates per second."""
    there = Configuration("", 1, RATE, RATE, PACE, "", servers=run.servers)
    return by_queue(there, [workers.get(kind, 0) for kind in PACE], known)


def foresee(run: RevocationRun, known: Coefficients, waits: Waits) -> float | None:
    """Updates until the time is up.

    ``None`` where nothing is known yet of how long a successor takes, or where all wait for who is missing, which no
    queue tells.
    """
    taken = [parse_revocation(text) for text in run.revocations]
    if run.bound is not None or not all(getattr(waits, _waiting(each)) for each in taken):
        return None
    absences = [absence for each in taken for absence in _absences(each, waits)]
    edges = sorted({0.0, run.seconds, *(edge for each in absences for edge in (each.start, each.stop))})
    inside = [edge for edge in edges if edge <= run.seconds]
    total = 0.0
    for start, stop in pairwise(inside):
        gone = [each.kind for each in absences if each.start <= start < each.stop]
        there = {kind: KINDS.count(kind) - gone.count(kind) for kind in PACE}
        if None not in gone and any(there.values()):
            total += (stop - start) * speed(run, there, known)
    return total


def _waiting(taken: Revocation) -> str:
    """Which of its ``Waits`` it is followed by."""
    if taken.who.startswith("server"):
        return "servers"
    return "vanished" if taken.notice is None else "noticed"


def _absences(taken: Revocation, waits: Waits) -> Iterator[_Absence]:
    name = _waiting(taken)
    gone = taken.at + (taken.notice or 0.0)
    back = gone + max(0.0, median(getattr(waits, name)))
    if name == "servers":
        yield _Absence(None, gone, back)
        return
    if taken.who in PACE:
        yield from [_Absence(taken.who, gone, back)] * KINDS.count(taken.who)
    else:
        yield _Absence(KINDS[int(taken.who.removeprefix("worker")) - 1], gone, back)
