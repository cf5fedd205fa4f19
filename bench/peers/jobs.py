"""The faulty jobs: one training script, six clusters, and for each what is really wrong and what it costs a step.

The truth follows from what is injected (the times of layers, batches and reads) and from the links as the testbed
verified them, with the arithmetic written beside it. Knows no tool, and uses no code of Stash that measures or
attributes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stash.lab.testbed.bed import Testbed
from stash.lab.testbed.emulation import Emulation, LayerSpec
from stash.lab.testbed.verify import ShapedLink

RANKS, BATCH = 2, 8
GRADIENT_BYTES = 1_000_000
PASSES_SECONDS, OPTIMIZER_SECONDS = 0.054, 0.006
COMPUTE_SECONDS = PASSES_SECONDS + OPTIMIZER_SECONDS
HEALTHY_INTERCONNECT = "10gbit"
FILE_BYTES = 4096

# Only the first layer has parameters: its gradient is ready when the backward pass ends, so nothing of the exchange
# is hidden and its cost can be worked out by hand.
_LAYERS = (
    LayerSpec(name="first", bytes=GRADIENT_BYTES, forward_seconds=0.006, backward_seconds=0.012),
    LayerSpec(name="second", bytes=0, forward_seconds=0.006, backward_seconds=0.012),
    LayerSpec(name="third", bytes=0, forward_seconds=0.006, backward_seconds=0.012),
)


@dataclass(frozen=True)
class Truth:
    """What is wrong (as ``answers.Reading`` has it), on which rank if on one, and what it costs every step."""

    cause: str
    rank: int | None
    seconds: float


@dataclass(frozen=True)
class Fault:
    """A job and the cluster it runs on; ``nodes`` share ``RANKS`` ranks, rates are as ``Testbed`` takes them."""

    name: str
    cause: str
    rank: int | None = None
    nodes: int = 1
    interconnect: str | None = HEALTHY_INTERCONNECT
    network: str | None = None
    prep_seconds: float = 0.01
    read_seconds: float = 0.0
    slow_ranks: dict[int, float] = field(default_factory=dict)

    @property
    def emulation(self) -> Emulation:
        """What the job trains, and what is injected around it."""
        return Emulation(
            name=self.name,
            layers=_LAYERS,
            optimizer_seconds=OPTIMIZER_SECONDS,
            prep_seconds=self.prep_seconds,
            read_seconds=self.read_seconds,
            slow_ranks=self.slow_ranks,
        )

    @property
    def cold(self) -> bool:
        """Whether the job reads files, which must not be cached when it starts."""
        return self.read_seconds > 0

    def make_bed(self) -> Testbed:
        """Its cluster, not started yet."""
        each = RANKS // self.nodes
        return Testbed(self.nodes, each, interconnect=self.interconnect, network=self.network)

    def truth(self, links: Sequence[ShapedLink]) -> Truth:
        """What its fault costs a step."""
        exchange = exchange_seconds(links)
        # The optimizer's time is not stretched, the passes' is; all wait for the slowest rank.
        slow = PASSES_SECONDS * (max(self.slow_ranks.values(), default=1.0) - 1)
        busy = COMPUTE_SECONDS + slow + exchange
        # A worker makes a batch while the step before runs; what the batch takes longer is waited for. Preparing
        # alone takes ``prep_seconds``; what it costs beyond a busy step is prep, the rest of the wait is fetch.
        prep = max(0.0, self.prep_seconds - busy)
        fetch = max(busy, self.prep_seconds + self.read_seconds) - busy - prep
        seconds = {
            "compute": COMPUTE_SECONDS,
            "slow rank": slow,
            "network": exchange,
            "interconnect": exchange,
            "prep": prep,
            "fetch": fetch,
        }
        return Truth(self.cause, self.rank, seconds[self.cause])


FAULTS = (
    Fault("none", "compute"),
    Fault("slow prep", "prep", prep_seconds=3 * COMPUTE_SECONDS),
    Fault("slow disk", "fetch", read_seconds=0.13),
    Fault("slow network", "network", nodes=2, interconnect=None, network="100mbit"),
    Fault("slow interconnect", "interconnect", interconnect="200mbit"),
    Fault("slow rank", "slow rank", rank=1, slow_ranks={1: 1.6}),
)


def exchange_seconds(links: Sequence[ShapedLink]) -> float:
    """A ring all-reduce of all gradients over two ranks, worked out from the verified links.

    Each rank sends the gradients once. Between nodes both directions run at the same time, so the slowest direction
    carries them once; a loopback is one medium for both ranks and carries them twice. What a link lets through at
    once after it was idle costs no time.
    """
    name, copies = (
        ("network", 1) if any(link.name == "network" for link in links) else ("interconnect", 2)
    )
    return max(
        max(0.0, copies * GRADIENT_BYTES - link.burst_bytes) / link.measured
        for link in links
        if link.name == name
    )


def make_files(folder: Path, steps: int) -> None:
    """One file for each sample that ``steps`` steps of all ranks read."""
    for number in range(steps * BATCH * RANKS):
        (folder / f"{number:06d}").write_bytes(os.urandom(FILE_BYTES))
