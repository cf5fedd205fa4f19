"""What a store of very many artefacts costs: `stash list`, `query` and `store verify`, seconds and memory.

The artefacts are made up: 20 different jobs of two ranks, five rounds and five rungs, each artefact with a date and
an elapsed time of its own. The digests of the first 200 are derived as `stash profile --store` does, whose time is
shown; all others' are copied with their own ids, since deriving them would say nothing more. Files are in the page
cache: how fast a disk or a network is, is not measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median

import numpy as np

from bench.machine import STASH, cost, timed
from bench.table import progress, report, table
from stash.core.artefact import to_bytes
from stash.core.records.profile import Profile
from stash.store.storage import id_of, name_of, stored
from stash.store.store import Store, path_of
from stash.store.storing import opened
from tests.support.profile_builder import STEPS, build

KINDS, ROUNDS, TIMED = 20, 5, 200
SECONDS = {"solo": 0.1, "crowd": 0.104, "node": 0.14, "warm": 0.17, "cold": 0.176}
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
QUERIES = {
    "the manual's query": "select workload, instance, network_pct from profiles order by step_seconds",
    "stalls, grouped": "select workload, name, median(share) from stalls join profiles using (id) group by all",
    "every block, grouped": "select rung, avg(seconds / steps), avg(cpu) from blocks group by rung",
}


def jobs() -> list[Profile]:
    """So many different jobs, with every number as ragged as a measured one."""
    noise = np.random.default_rng(0)

    def ragged(seconds: float) -> list[float]:
        return (seconds * (1 + 0.01 * noise.standard_normal(ROUNDS))).tolist()

    def extra() -> dict[str, object]:
        steps = (0.1 * (1 + 0.02 * noise.standard_normal(STEPS))).tolist()
        return {"step_seconds": tuple(steps), "cpu": float(noise.random()), "samples": STEPS * 8}

    return [
        build(
            {name: ragged(seconds * (1 + number / KINDS)) for name, seconds in SECONDS.items()},
            block_extra={name: extra() for name in SECONDS},
            workload={"name": f"job{number}"},
        )
        for number in range(KINDS)
    ]


def artefacts(count: int) -> Iterator[bytes]:
    """So many artefacts, one a minute, each like no other."""
    kinds = jobs()
    for number in range(count):
        created = (BEGIN + timedelta(minutes=number)).isoformat(timespec="seconds")
        differs = {"created": created, "elapsed_seconds": 40 + number / 1000}
        yield to_bytes(kinds[number % KINDS].model_copy(update=differs))


def filled(store: Store, folder: Path, count: int) -> float:
    """Fill the store; median seconds of processor time to put one as commands do."""
    spent, digests = [], {}
    for number, content in enumerate(artefacts(count)):
        if number < TIMED:
            name, seconds = timed(store.put, content, "made-up.stash.json")
            spent.append(seconds)
            digests[number % KINDS] = (name, (folder / path_of(name)).read_text())
            continue
        name = name_of(content, (BEGIN + timedelta(minutes=number)).isoformat(), ".stash.json")
        (folder / name).write_bytes(content)
        like, digest = digests[number % KINDS]
        (folder / path_of(name)).write_text(digest.replace(like, name).replace(id_of(like), id_of(name)))
    return median(spent)


def measured(folder: Path, count: int, brief: bool) -> list[list[str]]:
    """Rows of the table: what, seconds on the wall, of processor time, peak MB."""
    asked = {
        "`stash list`": ["list", str(folder)],
        "`stash list --all --json`": ["list", str(folder), "--all", "--json"],
    }
    asked |= {f"query: {what}": ["query", sql, "--store", str(folder)] for what, sql in QUERIES.items()}
    rows = []

    def measure(what: str, command: list[str]) -> None:
        wall, cpu, memory = cost([*STASH, *command])
        rows.append([what, f"{wall:.2f}", f"{cpu:.2f}", f"{memory:.0f}"])
        progress(f"{count:,}", *rows[-1])

    for what, command in asked.items():
        if not (brief and "block" in what):
            measure(what, command)
    if not brief:
        measure("`stash store verify`", ["store", "verify", str(folder)])
    return rows


def sizes(folder: Path) -> str:
    """Of what the store holds."""
    kinds = {"artefacts": "*.json", "digests": "index/digests/*"}
    megabytes = {kind: sum(path.stat().st_size for path in folder.glob(glob)) / 1e6 for kind, glob in kinds.items()}
    return ", ".join(f"{kind} {size:.0f} MB" for kind, size in megabytes.items())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__)
    parser.add_argument("--artefacts", type=int, nargs="+", default=[10_000])
    parser.add_argument("--brief", action="store_true", help="leave out a query and a check that read every artefact")
    wanted = parser.parse_args()
    shown = []
    for count in wanted.artefacts:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "runs"
            put = filled(opened(str(folder)), folder, count)
            assert sum(stored(path.name) is not None for path in folder.iterdir()) == count
            rows = measured(folder, count, wanted.brief)
            shown.append(f"{count:,} artefacts: {sizes(folder)}; one put: {1e3 * put:.0f} ms of processor time")
            shown.append(table(("what", "s on the wall", "s of processor", "peak MB"), rows))
    report(*shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
