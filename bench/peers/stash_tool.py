"""Stash itself, as its README shows it: ``stash profile train.py``, the script as it is.

What it says is the verdict of the profile; its numbers are the stalls. Judged by the same rules as the others.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.peers.answers import Answer, Reading, conclude
from bench.peers.jobs import RANKS
from bench.peers.launch import HERE, Place, run
from stash.advice.verdict import Advice, verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.artefact import load
from stash.core.records.profile import Profile

NAME = "Stash"
BUDGET_SECONDS = 20.0


def watch(place: Place) -> Answer:
    """Profile the job with the command a user would type; raises LaunchError."""
    outputs = [place.folder / f"node{node}.stash.json" for node in range(place.bed.nodes)]

    def command(node: int, port: int) -> list[str]:
        words = [
            sys.executable,
            "-m",
            "stash",
            "profile",
            "--nproc-per-node",
            str(RANKS // place.bed.nodes),
        ]
        if place.bed.nodes > 1:
            words += ["--nnodes", str(place.bed.nodes), "--node-rank", str(node)]
            words += ["--rdzv-endpoint", f"{place.bed.address(0)}:{port}"]
        words += ["--budget", str(BUDGET_SECONDS), "--output", str(outputs[node])]
        return [*words, str(HERE / "job.py"), *place.options(endless=True)]

    _, wall = run(place, command)
    return read(load(Path(outputs[0])), wall)


def read(profile: Profile, wall: float) -> Answer:
    """The verdict, and the stalls; contention is a slow rank only if Stash names the rank."""
    breakdown = attribute(profile)
    advice, slow = verdict(breakdown, profile), breakdown.slow_rank
    parts = {stall.name: stall.seconds for stall in breakdown.stalls}
    rank = slow.rank if slow is not None else None
    if rank is not None and "contention" in parts:
        parts["slow rank"] = parts.pop("contention")
    return Answer(
        quote=advice.text,
        says=_reading(advice, breakdown, rank),
        allows=conclude(breakdown.step_seconds, parts, rank),
        wall_seconds=wall,
    )


def _reading(advice: Advice, breakdown: Breakdown, rank: int | None) -> Reading:
    """What the verdict names: a stall, the slow rank, or nothing where it cannot tell."""
    if advice.stall is None:
        return Reading()
    seconds = breakdown.seconds(advice.stall)
    if advice.stall == "contention" and rank is not None and f"rank {rank}" in advice.text:
        return Reading("slow rank", rank, seconds)
    return Reading(advice.stall, None, seconds)
