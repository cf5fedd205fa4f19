"""What a large job costs: the artefact's size, `stash show`'s seconds and memory.

The profile is made up, as one of eight-GPU nodes would be, with every number as ragged as a measured one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.machine import STASH, arguments, cost
from bench.table import report, table
from stash.core.artefact import save
from stash.core.ladder import RUNGS
from stash.core.measured import Block, Rank, Rate
from stash.core.records.host import Gpu, Host
from stash.core.records.profile import Loader, Profile, Settings, Workload
from stash.measure.launcher.gathered import GatheredRun

RANKS, ROUNDS, PER_NODE = 1024, 30, 8
STEPS = {"warm": 6, "cold": 12}
"""Steps of a block; four of the others."""
SECONDS = {
    "resident": 0.2,
    "solo": 0.21,
    "crowd": 0.214,
    "node": 0.22,
    "cluster": 0.26,
    "warm": 0.27,
    "cold": 0.3,
}
BATCH = 32


def made_up(ranks: int, rounds: int) -> Profile:
    """A profile of ``ranks`` GPUs under every rung, with numbers of its own in each block."""
    noise = np.random.default_rng(0)
    blocks = [
        block(noise, number, each.name, rank)
        for number in range(rounds)
        for each in RUNGS
        for rank in ([0] if each.active == "leader" else range(ranks))
    ]
    gathered = GatheredRun()
    for each in blocks:
        gathered.add_message(each)
    gpus = tuple(
        Gpu(index=i, name="NVIDIA H100 80GB HBM3", memory_bytes=85_520_809_984)
        for i in range(PER_NODE)
    )
    return Profile(
        stash_version="0.1.0",
        created="2026-11-22T12:00:00+00:00",
        workload=Workload(
            command=("train.py",),
            name="train.py",
            batch=BATCH,
            loaders=(Loader(kind="map", workers=8, samples=10**6),),
        ),
        hosts=tuple(
            Host(hostname=f"node{n:04}", cores=96, gpus=gpus) for n in range(-(-ranks // PER_NODE))
        ),
        ranks=tuple(
            Rank(rank=r, node=r // PER_NODE, local_rank=r % PER_NODE, device=f"cuda:{r % PER_NODE}")
            for r in range(ranks)
        ),
        software={"torch": "2.13.0", "python": "3.12.3"},
        settings=Settings(
            precision=0.02,
            budget_seconds=120,
            rungs=tuple(SECONDS),
            isolated=False,
            why="made up by bench/scale.py",
        ),
        blocks=tuple(gathered.blocks),
        rates=tuple(
            Rate(feed="warm", rank=r, round=0, samples=512, seconds=1 + noise.random())
            for r in range(ranks)
        ),
        ended="precision",
        elapsed_seconds=130.0,
    )


def block(noise: np.random.Generator, number: int, name: str, rank: int) -> Block:
    """One rank's block, with what a GPU job's blocks hold."""
    steps, reads = STEPS.get(name, 4), name in STEPS
    each = tuple((SECONDS[name] * (1 + 0.02 * noise.standard_normal(steps))).tolist())
    read = {
        "resident": float(noise.random() / 50) if name == "cold" else 1.0,
        "files": steps * BATCH,
        "file_bytes": int(steps * BATCH * 110_000 * (1 + noise.random() / 10)),
        "storage_bytes": int(steps * BATCH * 110_000 * (1 + noise.random() / 10))
        if name == "cold"
        else 0,
        "fetch_seconds": float(steps * (1 + noise.random())),
        "fetch_cpu_seconds": float(f"{steps * noise.random():.3g}"),
    }
    return Block(
        round=number,
        rung=name,
        rank=rank,
        steps=steps,
        seconds=sum(each),
        step_seconds=each,
        samples=steps * BATCH,
        step_samples=(BATCH,) * steps,
        wait_seconds=float(noise.random() / 100),
        cpu=round(float(noise.random()), 4),
        steal=0.0,
        gpu=round(float(noise.random()), 2),
        network_bytes=int(noise.integers(10**9, 10**10)),
        disk_bytes=int(noise.integers(10**7, 10**8)) if reads else 0,
        cpu_seconds=None if reads else float(f"{sum(each) * (0.2 + noise.random() / 10):.3g}"),
        started=10.0 * number + list(SECONDS).index(name) + float(noise.random() / 1000),
        **(read if reads else {}),
    )


def main() -> None:
    make = arguments(__doc__, make=("", "only make the profile, as this file")).make
    if make:
        save(made_up(RANKS, ROUNDS), Path(make))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.stash.json"
        cost([sys.executable, "-m", "bench.scale", "--make", str(path)])
        shown = cost([*STASH, "show", str(path), "--json"])
        size = path.stat().st_size
    rows = [
        ["artefact, MB", f"{size / 1e6:.1f}", "20"],
        ["`stash show`: s on the wall", f"{shown[0]:.1f}", "3"],
        ["`stash show`: s of processor time", f"{shown[1]:.1f}", ""],
        ["`stash show`: peak MB", f"{shown[2]:.0f}", "500"],
    ]
    report(f"{RANKS} ranks x {ROUNDS} rounds", table(("what", "measured", "at most"), rows))


if __name__ == "__main__":
    main()
