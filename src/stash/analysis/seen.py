"""Stalls that no rung can leave out, as they were seen: of jobs whose ranks hold one model together.

Where the lowest rung is the whole job's, its time is compute and all that ranks wait for each other. What they wait
in collectives was stamped where it happens. Of a group's wait, what its last rank waits too is the exchange (by where
the group lies: interconnect or network); what others wait longer, they wait for a slower rank (contention). Of what a
pipeline's stages wait for each other, only a schedule whose passes were timed tells a bubble from messages that come
late; where there is none, these waits stay in compute. All are means over ranks, so that with compute they add up to
the step. Of ranks that are late in turn within one block, the exchange holds what they wait for each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from stash.analysis.bubble import GroupWait, Seen, bubble
from stash.analysis.step_times import StepTimes, rank_values
from stash.core.ladder import BUBBLE, NOT_ASKED, STALLS, rung
from stash.core.levels import Matrix
from stash.core.records.parallel import MeshAxis
from stash.core.records.profile import Block, Profile

_FEWER = ("solo", "crowd")
"""Rungs without exchange: where neither was asked for, nothing says that they could not have been run."""
HANDED_ON = ("send", "recv")
OF_DATA = ("dp", "ddp", "data", "dp_replicate", "replicate")
BUCKETS = "buckets"
"""The kind of what DistributedDataParallel's reducer exchanges."""


class SeenStalls(NamedTuple):
    """What was seen, and the lowest rung's time in each set of rounds taken apart."""

    names: tuple[str, ...]
    parts: Matrix
    """``[set, name]``, seconds of a step; less than what the lowest rung takes."""
    seen: Seen


def seen_stalls(profile: Profile, kept: StepTimes) -> SeenStalls | None:
    """Of the lowest rung, if it is the whole job's because no other can be run; ``None`` if nothing was seen."""
    lowest = kept.rungs[0]
    why = {item.rung: item.why for item in profile.skipped}
    if (
        profile.world_size < 2
        or not rung(lowest).exchanges
        or all(why.get(name, NOT_ASKED) == NOT_ASKED for name in _FEWER)
    ):
        return None
    keys = sorted({key for block in profile.blocks if block.rung == lowest for key in block.group_waits})
    if profile.workload.bucket_bytes:
        keys.append(f"{axis_of_data(profile)}/{BUCKETS}")
    rows = {key: _per_set(profile, kept, key) for key in keys}
    waits: list[GroupWait] = []
    parts: dict[str, Matrix] = defaultdict(lambda: np.zeros(len(kept.sets)))
    handed = np.zeros(len(kept.sets))
    for key, sets in rows.items():
        name, _, kind = key.rpartition("/")
        mean, least = np.array([m for m, _ in sets]), np.array([x for _, x in sets])
        stall = "network" if _across(profile, name) else "interconnect"
        if kind in HANDED_ON:
            handed += mean
        else:
            parts[stall] += least
            parts["contention"] += mean - least
        waits.append(GroupWait(
            name=name, kind=kind, stall=stall, seconds=float(mean.mean()), least=float(least.mean()),
        ))  # fmt: skip
    found = bubble(profile, lowest, float(handed.mean())) if profile.workload.pipeline is not None else None
    if found is not None:
        place = "network" if any(_across(profile, w.name) for w in waits if w.kind in HANDED_ON) else "interconnect"
        parts[BUBBLE] += found.seconds
        parts[place] += handed - found.seconds
    names = tuple(name for name in STALLS if name in parts)
    if not names:
        return None
    seen = Seen(stalls=names, waits=tuple(waits), bubble=found)
    return SeenStalls(names, np.array([parts[name] for name in names]).T, seen)


def _per_set(profile: Profile, kept: StepTimes, key: str) -> list[tuple[float, float]]:
    """(mean, least) over ranks of each set's waits: the mean over all ranks, the least in each group of them."""
    name, _, kind = key.rpartition("/")

    def measure(block: Block) -> float:
        return block.stage_seconds.get("exchange", 0.0) if kind == BUCKETS else block.group_waits.get(key, 0.0)

    values = rank_values(profile, measure)
    groups = groups_of(profile.workload.mesh, name, [rank.rank for rank in profile.ranks])
    found = []
    for numbers in kept.sets:
        ranks = _mean(values[number, kept.rungs[0]] for number in numbers)
        least = {rank: min(ranks.get(each, 0.0) for each in group) for group in groups for rank in group}
        found.append((sum(ranks.values()) / len(ranks), sum(least.values()) / len(ranks)))
    return found


def _mean(rounds: Iterable[Mapping[int, float]]) -> dict[int, float]:
    every = list(rounds)
    return {rank: sum(each[rank] for each in every) / len(every) for rank in every[0]}


def groups_of(mesh: tuple[MeshAxis, ...], axis: str, ranks: list[int]) -> list[list[int]]:
    """The groups of ranks along an axis of the mesh; of any other name, all ranks are one.

    Meshes number ranks row by row, the last axis fastest (``init_device_mesh``).
    """
    names = [each.name for each in mesh]
    sizes = [each.ranks for each in mesh]
    if axis not in names or int(np.prod(sizes)) != len(ranks):
        return [ranks]
    numbers = np.array(sorted(ranks)).reshape(sizes)
    return [
        list(map(int, row))
        for row in np.moveaxis(numbers, names.index(axis), -1).reshape(-1, sizes[names.index(axis)])
    ]


def _across(profile: Profile, name: str) -> bool:
    """Whether groups of that name reach over several nodes."""
    axis = next((each.across_nodes for each in profile.workload.mesh if each.name == name), None)
    if axis is not None:
        return axis
    used = [each.across_nodes for each in profile.workload.groups if each.name == name]
    return any(used) if used else profile.nodes > 1


def axis_of_data(profile: Profile) -> str:
    """The axis of replicas, over which gradients are exchanged; ``world`` where none is one."""
    return next((each.name for each in profile.workload.mesh if each.name.lower() in OF_DATA), "world")


def taken_apart(kept: Matrix, parts: Matrix) -> Matrix:
    """Step times whose lowest rung is preceded by columns of its own, so that differences are ``parts``."""
    below = kept[:, :1] - np.cumsum(parts[:, ::-1], axis=1)[:, ::-1]
    return np.hstack([below, kept])
