"""Twenty-one machines taken away from real trainings: is anything lost, doubled, left hanging or left running?

Runs on the testbed, each revocation in the middle of others' work: with and without notice, a whole pool at once, the
server, and the server while it saves. Every run is audited by the servers' own account of what they applied.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.spot.truth_jobs import __file__ as jobs_file
from stash.derive.spot.stretches import takeovers
from stash.elastic.grounds import TestbedGround
from stash.elastic.orders import TrainingOrders, WorkerPlace
from stash.elastic.processes import leftovers
from stash.elastic.rehearsal import Rehearsal
from stash.elastic.scaling import EmulatedFleet
from stash.lab.testbed.revoke import Revocation, moments, parse_revocation

RATE = 200e6 / 8
_STARTING, _ENDING = 180.0, 120.0
"""Seconds that a busy machine may take to start a dozen Rays, and a server's successor to come at the end."""
PACE = {"fast": 0.15, "slow": 0.3}


@dataclass(frozen=True)
class Ordeal:
    """One run: who is taken when."""

    name: str
    revocations: tuple[str, ...]
    servers: int = 1
    bound: int | None = None
    checkpoint_seconds: float = 5.0
    seconds: float = 36.0


ORDEALS = (
    Ordeal("with notice", tuple(f"worker{n}@{5 * n}s,notice={n + 1}s" for n in range(1, 5))),
    Ordeal("without notice", ("worker1@4s", "worker3@8s", "worker2@16s", "worker4@20s"), bound=2),
    Ordeal("a whole pool", ("fast@5s", "slow@20s,notice=4s"), servers=2),
    Ordeal("a server", ("server1@8s", "worker2@10s", "server2@22s"), servers=2),
    Ordeal("while saving", ("server1@7s", "worker1@20s"), checkpoint_seconds=0.3),
    Ordeal("all at once", ("server1@10s", "fast@10s", "worker3@11s,notice=2s"), servers=2, bound=3),
)  # fmt: skip


def main() -> None:
    """Print a row for each ordeal, or for those named; raises AssertionError if one of them hung."""
    print("| ordeal | taken | updates | leases again | decided within, s | joined in time | books | left running |")
    print("| --- " * 8 + "|")
    for ordeal in ORDEALS:
        if len(sys.argv) > 1 and ordeal.name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(_lived(ordeal, Path(folder)), flush=True)


def _lived(ordeal: Ordeal, folder: Path) -> str:
    (folder / "checkpoints").mkdir()
    kinds = ("fast", "fast", "slow", "slow")
    orders = TrainingOrders(
        job=f"{jobs_file}:mb1", checkpoints=str(folder / "checkpoints"),
        servers=tuple(f"server{n + 1}" for n in range(ordeal.servers)),
        workers=tuple(WorkerPlace(f"worker{n}", kind, 8, PACE[kind]) for n, kind in enumerate(kinds, 1)),
        bound=ordeal.bound, seconds=ordeal.seconds, checkpoint_seconds=ordeal.checkpoint_seconds,
    )  # fmt: skip
    taken: list[Revocation] = [parse_revocation(text) for text in ordeal.revocations]
    count = sum(2 if each.who in PACE else 1 for each in taken)
    ground = TestbedGround(orders, folder, EmulatedFleet(1.0, RATE, RATE, 0.0, {}), 2 * count)
    began = time.monotonic()
    account = Rehearsal(orders, ground, folder, moments(taken), lambda event: None).run()
    assert time.monotonic() - began < ordeal.seconds + _STARTING + _ENDING, "it hung"
    assert account.books is not None, account.reason
    found = takeovers(account.events, account.updates)
    decided = [each.decided_seconds for each in found if each.decided_seconds is not None]
    joined = [each.joined_seconds for each in found if each.joined_seconds is not None]
    left = leftovers(folder)
    row = (
        ordeal.name, count, len(account.updates.seconds), account.books.reissued, f"{max(decided, default=0):.2f}",
        f"{len(joined)} of {len(found)}", account.books.wrong or "right", len(left),
    )  # fmt: skip
    return "| " + " | ".join(map(str, row)) + " |"


if __name__ == "__main__":
    main()
