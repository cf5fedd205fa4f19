"""Twenty-one machines taken away from real trainings: is anything lost, doubled, slow, left hanging, left running?

Runs on the testbed, each revocation in the middle of others' work: with and without notice, a whole pool at once, the
server, and the server while it saves. Every run is audited by the servers' own account of what they applied. What
survivors do is held against the queue as ``bench.spot.truth`` fits it to other fleets.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from bench.spot.foreseeing import KINDS, PACE, RATE, RevocationRun, Waits, foresee, speed
from bench.spot.truth import Coefficients, coefficients, speed_of
from bench.spot.truth_jobs import __file__ as jobs_file
from bench.table import show
from stash.lab.testbed.revoke import Revocation, moments, parse_revocation
from stash.spot.emulate.backends import TrainingBackend
from stash.spot.emulate.build_rehearsal import EmulatedFleet
from stash.spot.emulate.hosts import leftovers
from stash.spot.emulate.run_rehearsal import Account, Rehearsal
from stash.spot.model.stretches import outages, stretches, takeovers
from stash.spot.train.run_orders import TrainingOrders, WorkerPlace

_SLOW, _LASTED = 0.95, 2.5
"""Of what is predicted, that survivors should keep; and seconds of a fleet whose speed is known."""
_STARTING, _ENDING = 180.0, 120.0
"""Seconds that a busy machine may take to start a dozen Rays, and a server's successor to come at the end."""
RUNS = (
    RevocationRun("with notice", tuple(f"worker{n}@{5 * n}s,notice={n + 1}s" for n in range(1, 5))),
    RevocationRun("without notice", ("worker1@4s", "worker3@8s", "worker2@16s", "worker4@20s"), bound=2),
    RevocationRun("a whole pool", ("fast@5s", "slow@20s,notice=4s"), servers=2),
    RevocationRun("a server", ("server1@8s", "worker2@10s", "server2@22s"), servers=2),
    RevocationRun("while saving", ("server1@7s", "worker1@20s"), checkpoint_seconds=0.3),
    RevocationRun("all at once", ("server1@10s", "fast@10s", "worker3@11s,notice=2s"), servers=2, bound=3),
)  # fmt: skip


def main() -> None:
    """Print a row for each run, or for those named; raises AssertionError if one of them hung."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of runs; all unless given")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    known, kept, waits = coefficients(), [], Waits()
    heads = ("run", "taken", "updates", "over foreseen", "leases again", "decided within, s", "joined in time")
    more = ("survivors over predicted: median, least", "books", "left running")

    def line(run: RevocationRun) -> list[object]:
        with tempfile.TemporaryDirectory() as folder:
            cells, ratios = _play(run, Path(folder), known, waits)
        kept.extend(ratios)
        return cells

    wanted = [each for each in RUNS if not options.names or each.name in options.names]
    show((*heads, *more), (line(run) for run in wanted * options.rounds))
    low = sum(each < _SLOW for each in kept)
    print(f"\n{len(kept)} fleets between changes, {low} below {_SLOW:.0%} of what was predicted.")


def _play(run: RevocationRun, folder: Path, known: Coefficients, waits: Waits) -> tuple[list[object], list[float]]:
    (folder / "checkpoints").mkdir()
    orders = TrainingOrders(
        job=f"{jobs_file}:mb1", checkpoints=str(folder / "checkpoints"),
        servers=tuple(f"server{n + 1}" for n in range(run.servers)),
        workers=tuple(WorkerPlace(f"worker{n}", kind, 8, PACE[kind]) for n, kind in enumerate(KINDS, 1)),
        bound=run.bound, seconds=run.seconds, checkpoint_seconds=run.checkpoint_seconds,
    )  # fmt: skip
    taken: list[Revocation] = [parse_revocation(text) for text in run.revocations]
    count = sum(2 if each.who in PACE else 1 for each in taken)
    backend = TrainingBackend(orders, folder, EmulatedFleet(1.0, RATE, RATE, 0.0, {}), 2 * count)
    began = time.monotonic()
    played = Rehearsal(orders, backend, folder, moments(taken), lambda event: None)
    account = played.run()
    assert time.monotonic() - began < run.seconds + _STARTING + _ENDING, "it hung"
    assert account.books is not None, account.reason
    found = takeovers(account.events, account.updates)
    decided = [each.decided_seconds for each in found if each.decided_seconds is not None]
    joined = [each.joined_seconds for each in found if each.joined_seconds is not None]
    left = leftovers(folder)
    ratios = list(_survivors(run, account, played.types, known))
    speeds = f"{median(ratios):.2f}, {min(ratios):.2f}" if ratios else "wait for who is missing"
    foreseen, updates = foresee(run, known, waits), len(account.updates.seconds)
    waits.add(found, account.updates)
    row = [
        run.name, count, updates, "not foreseen" if foreseen is None else f"{updates / foreseen:.2f}",
        account.books.reissued, f"{max(decided, default=0):.2f}",
        f"{len(joined)} of {len(found)}", speeds, account.books.wrong or "right", len(left),
    ]  # fmt: skip
    return row, ratios


def _survivors(
    run: RevocationRun, account: Account, types: Mapping[str, str], known: Coefficients
) -> Iterator[float]:
    """Observed over predicted speed of fleets that lasted, if none has to wait for who is missing."""
    if run.bound is not None:
        return
    for each in stretches(account.updates, types, outages(account.events, 1e9), lambda workers: None):
        if each.stop - each.start >= _LASTED:
            yield speed_of(account.updates, each) / speed(run, each.workers, known)


if __name__ == "__main__":
    main()
