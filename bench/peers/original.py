"""The protocol of the original Stash (ICDCS 2023), re-implemented from its published formulas.

RUN0: one device, synthetic data. RUN1: all devices, synthetic data; for the network stall also on one large node of
as many devices. RUN2: real data, page cache dropped. RUN3: real data, cached. Separate launches, one after the other;
the original runs half an epoch each, here a set number of steps, and the half epochs are computed.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.peers.answers import NOTICEABLE, Answer, Reading, conclude
from bench.peers.jobs import BATCH, HEALTHY_INTERCONNECT, RANKS
from bench.peers.launch import HERE, WARM_UP_STEPS, Place, run, steps, torchrun
from stash.lab.testbed.bed import Testbed

NAME = "original protocol"
SCRIPT = "job.py"
IMAGENET_SAMPLES = 1_281_166


@dataclass(frozen=True)
class Times:
    """Mean step seconds of the runs; ``large`` is RUN1 on one large node, None where there is but one node."""

    one: float
    synthetic: float
    cold: float
    cached: float
    large: float | None

    @property
    def runs(self) -> Sequence[float]:
        known = (self.one, self.synthetic, self.cold, self.cached, self.large)
        return [seconds for seconds in known if seconds is not None]


def lines() -> int:
    """The protocol asks for a job that can train on synthetic data: the lines of the script that say how."""
    return sum("synthetic" in line for line in (HERE / SCRIPT).read_text().splitlines())


def watch(place: Place) -> Answer:
    """All runs, one after the other; raises LaunchError."""
    large = (None, 0.0)
    one = _launch(place.inside("run0"), synthetic=True, alone=True)
    synthetic = _launch(place.inside("run1"), synthetic=True)
    if place.bed.nodes > 1:
        with Testbed(1, RANKS, interconnect=HEALTHY_INTERCONNECT) as bed:
            large = _launch(replace(place.inside("run1-large"), bed=bed), synthetic=True)
    cold = _launch(place.inside("run2"))
    cached = _launch(place.inside("run3"), cold=False)
    means, walls = zip(one, synthetic, cold, cached, large, strict=True)
    return read(Times(*means), sum(walls), place.fault.cold)


def _launch(place: Place, synthetic: bool = False, alone: bool = False, cold: bool = True) -> tuple[float, float]:
    """(mean step seconds, wall seconds) of one launch; ``alone`` is one device on node 0."""
    words, script = place.options(synthetic), HERE / SCRIPT

    def command(node: int, port: int) -> list[str]:
        if not alone:
            return torchrun(place, node, sys.executable, script, words, port)
        if node > 0:
            return ["true"]
        return [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-addr",
            place.bed.address(0), "--master-port", str(port), str(script), *words,
        ]  # fmt: skip

    _, wall = run(place, command, cold)
    return statistics.mean(steps(place.times)[WARM_UP_STEPS:]), wall


def read(times: Times, wall: float, cold: bool) -> Answer:
    """The paper's percentages; the largest is what it says, compute if none reaches a tenth."""
    node = times.large or times.synthetic
    differences = {
        "interconnect": (node - times.one, node),
        "prep": (times.cached - times.synthetic, times.cached),
        "fetch": (times.cold - times.cached, times.cold),
    }
    if times.large is not None:
        differences["network"] = (times.synthetic - times.large, times.large)
    percent = {cause: seconds / whole for cause, (seconds, whole) in differences.items()}
    largest = max(percent, key=lambda cause: percent[cause])
    parts = {"compute": times.one, **{cause: seconds for cause, (seconds, _) in differences.items()}}
    says = Reading(largest, None, parts[largest]) if percent[largest] >= NOTICEABLE else Reading("compute")
    step = times.cold if cold else times.cached
    hours = IMAGENET_SAMPLES / BATCH / RANKS / 2 * sum(times.runs) / 3600
    return Answer(
        quote=", ".join(f"{cause} {share:.0%}" for cause, share in percent.items()),
        says=says,
        allows=conclude(step, parts),
        why="the differences behind the percentages",
        wall_seconds=wall,
        step_seconds=step,
        note=f"half an epoch of ImageNet in each of its {len(times.runs)} runs would take {hours:.1f} h",
    )
