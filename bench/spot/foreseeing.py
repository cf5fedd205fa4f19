"""How far a training should come through revocations that are known beforehand, by the fitted queue.

What the machine shows of itself, how long a newcomer takes to join and until one that vanished is missed, is taken
from earlier runs. The rest is the plan's: one with notice trains until it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from bench.spot.truth import Coefficients, Configuration, by_queue
from stash.base.spot.log import SpotTakeover
from stash.lab.testbed.revoke import Revocation, parse_revocation

RATE = 200e6 / 8
PACE = {"fast": 0.15, "slow": 0.3}
KINDS = ("fast", "fast", "slow", "slow")
"""Of worker1, worker2, …"""


@dataclass(frozen=True)
class Ordeal:
    """One run: who is taken when."""

    name: str
    revocations: tuple[str, ...]
    servers: int = 1
    bound: int | None = None
    checkpoint_seconds: float = 5.0
    seconds: float = 36.0


@dataclass(frozen=True)
class Waits:
    """Seconds, as earlier runs had them."""

    workers: list[float] = field(default_factory=list)
    """From the order for a successor until it had joined."""
    servers: list[float] = field(default_factory=list)
    missed: list[float] = field(default_factory=list)
    """From the last sign of a machine that vanished until it was missed."""

    def add(self, found: Sequence[SpotTakeover]) -> None:
        for each in found:
            if each.joined_seconds is not None:
                (self.servers if each.gone.startswith("server") else self.workers).append(each.joined_seconds)
            if each.noticed_seconds is not None:
                self.missed.append(each.noticed_seconds)


@dataclass(frozen=True)
class _Absence:
    """A machine that is not there; ``None`` is a server, without which nobody trains."""

    kind: str | None
    start: float
    stop: float


def speed(ordeal: Ordeal, workers: Mapping[str, int], known: Coefficients) -> float:
    """Updates per second; bounded fleets are as fast as so many of the slowest."""
    there = Configuration("", 1, RATE, RATE, PACE, "", servers=ordeal.servers)
    fast, slow = workers.get("fast", 0), workers.get("slow", 0)
    return by_queue(there, (0, fast + slow) if ordeal.bound is not None and slow else (fast, slow), known)


def foresee(ordeal: Ordeal, known: Coefficients, waits: Waits) -> float | None:
    """Updates until the time is up; ``None`` where nothing is known yet of how long a successor takes."""
    taken = [parse_revocation(text) for text in ordeal.revocations]
    vanish = any(each.notice is None for each in taken)
    servers = any(each.who.startswith("server") for each in taken)
    if not waits.workers or (vanish and not waits.missed) or (servers and not waits.servers):
        return None
    absences = [absence for each in taken for absence in _absences(each, ordeal, waits)]
    edges = sorted({0.0, ordeal.seconds, *(edge for each in absences for edge in (each.start, each.stop))})
    inside = [edge for edge in edges if edge <= ordeal.seconds]
    total = 0.0
    for start, stop in pairwise(inside):
        gone = [each.kind for each in absences if each.start <= start < each.stop]
        there = {kind: KINDS.count(kind) - gone.count(kind) for kind in PACE}
        if None not in gone and any(there.values()):
            total += (stop - start) * speed(ordeal, there, known)
    return total


def _absences(taken: Revocation, ordeal: Ordeal, waits: Waits) -> Iterator[_Absence]:
    if taken.who.startswith("server"):
        yield _Absence(None, taken.at, taken.at + median(waits.missed) + median(waits.servers))
        return
    joining = median(waits.workers)
    gone = taken.at + (taken.notice or 0.0)
    missed = 0.0 if taken.notice is not None else median(waits.missed)
    back = taken.at + missed + joining
    for kind in KINDS if taken.who in PACE else (KINDS[int(taken.who.removeprefix("worker")) - 1],):
        if taken.who in PACE and kind != taken.who:
            continue
        yield _Absence(kind, gone, max(gone, back))
        if ordeal.bound is not None and taken.notice is None:
            yield _Absence(None, taken.at, taken.at + missed)  # who may not run ahead waits for who is not there
