"""What ZeRO's stages exchange beside no work, on two nodes of two emulated ranks: by Stash, and by a stopwatch.

    python -m bench.truth.zero        root; 3 minutes of a quiet machine

By the stopwatch it is the step of four ranks less that of one, which exchanges nothing: the script's own clock, run
without Stash. Layers sleep. Stage 1 is DistributedDataParallel with ZeroRedundancyOptimizer, 2 and 3 are
``fully_shard``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.machine import ROOT, arguments
from bench.table import report, show
from bench.truth.emulated import Cluster, number, run_plain, run_profile
from stash.analysis.attribution import attribute
from stash.core.ladder import EXCHANGE_STALLS
from stash.core.records.profile import Profile
from stash.core.units import format_bytes

SCRIPT = ROOT / "tests/integration/scripts/zero.py"
CLUSTER = Cluster(2, network="40mbit", interconnect="200mbit")
ALONE = replace(CLUSTER, nodes=1, ranks=1)
WIDTH, SECONDS, STEPS = 512, 0.1, 12
"""Of a layer, of its forward pass, and of a run with the stopwatch."""


class Exchange(NamedTuple):
    """Of one stage; seconds of a step."""

    stage: int
    together: float
    alone: float
    """By the stopwatch, of four ranks and of one."""
    profile: Profile

    @property
    def exchange_seconds(self) -> float:
        return self.together - self.alone

    @property
    def found(self) -> float:
        """By Stash, inside nodes and between them."""
        return sum(
            each.seconds for each in attribute(self.profile).stalls if each.name in EXCHANGE_STALLS
        )

    @property
    def points(self) -> float:
        """By which it is off, in hundredths of the step."""
        return 100 * (self.found - self.exchange_seconds) / self.together

    @property
    def sent(self) -> dict[str, float]:
        """Bytes of a step by kind of collective, gradients of DistributedDataParallel as ``buckets``."""
        work = self.profile.workload
        found = {use.kind: use.bytes for use in work.groups}
        return found | ({"buckets": float(sum(work.bucket_bytes))} if work.bucket_bytes else {})


def measure(stage: int, budget: float, folder: Path) -> Exchange:
    """One profile between two runs with the stopwatch; needs root. Raises RuntimeError with what was printed."""
    job = (SCRIPT, "--stage", stage, "--width", WIDTH, "--seconds", SECONDS)
    with CLUSTER.made() as bed:

        def time_cluster(cluster: Cluster) -> float:
            return number(run_plain(bed, cluster, job, STEPS), "a step takes")

        alone, before = time_cluster(ALONE), time_cluster(CLUSTER)
        profile = run_profile(bed, CLUSTER, job, budget, folder / f"{stage}")
        after = time_cluster(CLUSTER)
    return Exchange(stage, (before + after) / 2, alone, profile)


def rows(budget: float) -> Iterator[list[object]]:
    with tempfile.TemporaryDirectory() as name:
        for stage in (1, 2, 3):
            found = measure(stage, budget, Path(name))
            sent = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in found.sent.items())
            times = (found.together, found.alone, found.exchange_seconds, found.found)
            yield [stage, *(f"{each:.3f}" for each in times), f"{found.points:+.1f}", sent]


if __name__ == "__main__":
    budget = arguments(__doc__, budget=(30.0, "seconds of each profile")).budget
    report(str(CLUSTER))
    heads = (
        "stage",
        "step (s)",
        "of one rank",
        "exchange by stopwatch",
        "by Stash",
        "error (points)",
        "sent",
    )
    show(heads, rows(budget))
