"""What a large job costs: the artefact's size, `stash show`'s seconds and memory, the leader's work in a round.

The profile is made up, as one of eight-GPU nodes would be, with every number as
ragged as a measured one; the control plane is simulated: what all ranks would hand in reaches one leader, whose work
is timed without the network. Knows nothing of what a network of that size adds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from bench.machine import cost, machine
from bench.table import table
from stash.core.artefact import save
from stash.core.ladder import RUNGS, UNTOUCHED, rung
from stash.core.pagecache import PAGE
from stash.core.records.host import Gpu, Host
from stash.core.records.profile import Loader, Profile, Rank, Rate, Settings, Workload
from stash.measure.agent.runner.control import Control, Place, read_reports
from stash.measure.agent.runner.discovery import Introduction
from stash.measure.agent.runner.judge import BlockReport, CacheEvidence
from stash.measure.agent.wraps.sharding import FirstBatch
from stash.measure.launcher.gathered import Gathered
from stash.measure.protocol.journal import Tail
from stash.measure.protocol.messages import BlockDone, Message, Payload, RankSeen
from stash.measure.protocol.wire import packed
from tests.support.ranks_in_memory import job, orders, reading

PER_NODE = 8
STEPS = {"warm": 6, "cold": 12}
"""Steps of a block; four of the others."""
SECONDS = {"resident": 0.2, "solo": 0.21, "crowd": 0.214, "node": 0.22, "cluster": 0.26, "warm": 0.27, "cold": 0.3}
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
    gathered = Gathered()
    for each in blocks:
        gathered.take(each)
    gpus = tuple(Gpu(index=i, name="NVIDIA H100 80GB HBM3", memory_bytes=85_520_809_984) for i in range(PER_NODE))
    return Profile(
        stash_version="0.1.0",
        created="2026-11-22T12:00:00+00:00",
        workload=Workload(
            command=("train.py",),
            name="train.py",
            batch=BATCH,
            loaders=(Loader(kind="map", workers=8, samples=10**6),),
        ),
        hosts=tuple(Host(hostname=f"node{n:04}", cores=96, gpus=gpus) for n in range(-(-ranks // PER_NODE))),
        ranks=tuple(
            Rank(rank=r, node=r // PER_NODE, local_rank=r % PER_NODE, device=f"cuda:{r % PER_NODE}")
            for r in range(ranks)
        ),
        software={"torch": "2.13.0", "python": "3.12.3"},
        settings=Settings(
            precision=0.02, budget_seconds=120, rungs=tuple(SECONDS), isolated=False, why="made up by bench/scale.py"
        ),
        blocks=tuple(gathered.blocks),
        rates=tuple(
            Rate(feed="warm", rank=r, round=0, samples=512, seconds=1 + noise.random()) for r in range(ranks)
        ),
        ended="precision",
        elapsed_seconds=130.0,
    )


def block(noise: np.random.Generator, number: int, name: str, rank: int) -> BlockDone:
    """One rank's block, with what a GPU job's blocks hold."""
    steps, reads = STEPS.get(name, 4), name in STEPS
    each = tuple((SECONDS[name] * (1 + 0.02 * noise.standard_normal(steps))).tolist())
    read = {
        "resident": float(noise.random() / 50) if name == "cold" else 1.0,
        "files": steps * BATCH,
        "file_bytes": int(steps * BATCH * 110_000 * (1 + noise.random() / 10)),
        "storage_bytes": int(steps * BATCH * 110_000 * (1 + noise.random() / 10)) if name == "cold" else 0,
        "fetch_seconds": float(steps * (1 + noise.random())),
        "fetch_cpu_seconds": float(f"{steps * noise.random():.3g}"),
    }
    return BlockDone(
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


class Crowd(Control):
    """The leader's place among many ranks that hand in what it does, with numbers of their own.

    Stands where ``Control`` does; keeps the seconds of processor time that the leader spends on what it was handed.
    """

    def __init__(self, ranks: int) -> None:
        self.place = Place(0, ranks, 0, 0, tuple(range(PER_NODE)), ranks // PER_NODE)
        self.spent: dict[int, float] = defaultdict(float)
        """By round."""
        self._noise = np.random.default_rng(0)
        self._round = -1

    def join(self) -> None:
        """There is no process group."""

    def exchange(self, report: Any, decide: Callable[[list[Any]], Any]) -> Any:
        if isinstance(report, BlockReport):
            done: Any = report.block.message()
            self._round = done.round
        rows = [packed(self._handed_in(report, rank)) for rank in range(self.place.world_size)]
        longest = max(map(len, rows))
        received = torch.stack([torch.frombuffer(bytearray(row.ljust(longest)), dtype=torch.uint8) for row in rows])
        began = time.process_time()
        decision = decide(read_reports(received))
        self.spent[self._round] += time.process_time() - began
        return decision

    def _handed_in(self, report: Any, rank: int) -> Any:
        if isinstance(report, Introduction):
            seen = RankSeen(rank, rank // PER_NODE, rank % PER_NODE, "cpu")
            host = {"hostname": f"node{seen.node:04}"} if seen.local_rank == 0 else None
            groups = report.groups if rank == 0 else ()
            return replace(report, rank=seen, host=host, groups=groups, batch=FirstBatch(rank, None))
        if not isinstance(report, BlockReport):
            return Payload.of(report) if isinstance(report, Message) else report
        own: Any = report.block.message()
        if rank > 0 and rung(own.rung).active == "leader":
            return None
        made = block(self._noise, own.round, own.rung, rank)
        return BlockReport(
            Payload.of(made), made.seconds, witnessed(made) if rung(own.rung).reads_data else CacheEvidence()
        )


def witnessed(made: BlockDone) -> CacheEvidence:
    """What the processes that made a data block's batches saw: files out of memory in a cold block, else in it."""
    size, pages = made.file_bytes or 0, (made.file_bytes or 0) // PAGE
    return CacheEvidence(
        batches=made.steps,
        files=made.files or 0,
        pages=pages,
        resident=0 if made.rung == "cold" else pages,
        called=size,
        storage=size if made.rung == "cold" else 0,
    )


def led(ranks: int, rounds: int) -> tuple[list[float], float]:
    """The leader's seconds of processor time in each round, and the launcher's in a round to read what it wrote."""
    # The job's own group, for discovery to cut at the nodes' edges; of this kind nothing is ever sent.
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    with tempfile.TemporaryDirectory() as folder:
        given = orders(Path(folder), rounds=rounds, budget=1e6)
        crowd = Crowd(ranks)
        leader = job(given, crowd)
        for _ in reading(leader, iter(lambda: torch.zeros(BATCH, 4), None)):
            leader.step(0.2)
        dist.destroy_process_group()
        began, gathered = time.process_time(), Gathered()
        for message in Tail(given.files.journal).messages():
            gathered.take(message)
        followed = (time.process_time() - began) / rounds
    blocks = [block for block in gathered.blocks if block.rung != UNTOUCHED.name]
    if len(blocks) != rounds * sum(1 if each.active == "leader" else ranks for each in RUNGS[1:]):
        raise RuntimeError(f"only {len(blocks)} blocks were written down")
    return [crowd.spent[number] for number in range(rounds)], followed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--make", type=Path, metavar="FILE", help="only make the profile")
    wanted = parser.parse_args()
    if wanted.make:
        save(made_up(wanted.ranks, wanted.rounds), wanted.make)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.stash.json"
        sizes = ["--ranks", str(wanted.ranks), "--rounds", str(wanted.rounds)]
        cost([sys.executable, "-m", "bench.scale", *sizes, "--make", str(path)])
        shown = cost([sys.executable, "-m", "stash", "show", str(path), "--json"])
        size = path.stat().st_size
    each, followed = led(wanted.ranks, min(wanted.rounds, 6))
    print(machine(), f"{wanted.ranks} ranks x {wanted.rounds} rounds", sep="\n\n", end="\n\n")
    rows = [
        ["artefact, MB", f"{size / 1e6:.1f}", "20"],
        ["`stash show`: s on the wall", f"{shown[0]:.1f}", "3"],
        ["`stash show`: s of processor time", f"{shown[1]:.1f}", ""],
        ["`stash show`: peak MB", f"{shown[2]:.0f}", "500"],
        ["the leader's work in a round, ms of processor time", f"{1e3 * median(each):.0f}", "50"],
        ["the same, in the slowest round", f"{1e3 * max(each):.0f}", ""],
        ["the launcher's work to read a round, ms", f"{1e3 * followed:.0f}", ""],
    ]
    print(table(("what", "measured", "at most"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
