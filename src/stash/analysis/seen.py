"""Stalls that no rung can leave out, as they were seen: of jobs whose ranks hold one model together.

Where the lowest rung is the whole job's, its time is compute and all that ranks wait for each other. What they wait
in collectives was stamped where it happens. Of a group's wait, what its last rank waits too is the exchange (by where
the group lies: interconnect or network). What others wait longer, they wait for a slower rank (contention), or as
exchanges do not end together: groups side by side share a link unevenly, and so do ranks of a ring. Where no rank is
slower in what it does itself, that belongs to the exchange, too; so do messages between two ranks, as of a ring that a
script writes by hand. Of what a pipeline's stages wait for each other, only a schedule whose passes were timed tells a
bubble from messages that come late. All are means over ranks, so that with compute they add up to the step. Of ranks
that are late in turn within one block, the exchange holds what they wait for each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stash.analysis.bubble import Bubble, ExpertLoad, GroupWait, Seen, estimate_bubble
from stash.analysis.step_times import StepTimes, rank_values
from stash.core.ladder import BUBBLE, NAMES, NOT_ASKED, STALLS, rung
from stash.core.levels import Matrix
from stash.core.measured import Block
from stash.core.records.profile import MeshAxis, Profile

_FEWER = ("solo", "crowd")
"""Rungs without exchange: where neither was asked for, nothing says that they could not have been run."""
HANDED_ON = ("send", "recv")
OF_DATA = ("dp", "ddp", "data", "dp_replicate", "replicate")
_WAITING = {"collective", "exchange"}
"""Stages of a step in which ranks wait for each other."""
BUCKETS = "buckets"
"""The kind of what DistributedDataParallel's reducer exchanges."""


def seen_stalls(profile: Profile, kept: StepTimes) -> tuple[Seen, Matrix] | None:
    """Of the lowest rung, if it is the whole job's because no other can be run; ``None`` if nothing was seen.

    And ``kept.matrix`` after columns that differ by these stalls. Steps are means over ranks, which wait for each
    other in every one: in a block of few steps one ends later than it began, and another earlier.
    """
    lowest = kept.rungs[0]
    why = {item.rung: item.why for item in profile.skipped}
    is_asked = any(why.get(name, NOT_ASKED) != NOT_ASKED for name in _FEWER)
    if profile.world_size < 2 or not rung(lowest).exchanges or not is_asked:
        return None
    blocks = [block for block in profile.blocks if block.rung == lowest]
    keys = sorted({key for block in blocks for key in block.group_waits})
    if profile.workload.bucket_bytes:
        keys.append(f"{axis_of_data(profile)}/{BUCKETS}")
    rows = {key: _group_waits(profile, kept, key) for key in keys}
    own = _own_work(profile, kept, sum(row.waited for row in rows.values()))
    in_turn = HANDED_ON if profile.workload.pipeline is not None else ()
    exchanges = split_waits(
        {key: row for key, row in rows.items() if key.rpartition("/")[2] not in in_turn}, own
    )
    parts: dict[str, Matrix] = defaultdict(lambda: np.zeros(len(kept.sets)))
    waits = []
    for key, row in rows.items():
        name, _, kind = key.rpartition("/")
        stall = "network" if _spans_nodes(profile, name) else "interconnect"
        mean, least = row.waited.mean(axis=1), row.least.mean(axis=1)
        apart = slower = np.zeros_like(mean)
        if key in exchanges:
            apart, slower = exchanges[key]
            parts[stall] += least + apart
            parts["contention"] += slower
        means = (float(each.mean()) for each in (mean, least, apart, slower))
        shares = dict(zip(("seconds", "least", "apart", "slower"), means, strict=True))
        hidden = _hidden_share(blocks, key)
        waits.append(GroupWait(name=name, kind=kind, stall=stall, hidden=hidden, **shares))
    bubble = _find_bubble(profile, kept, rows, parts)
    names = tuple(name for name in STALLS if name in parts)
    if not names:
        return None
    mean = _per_set(profile, kept, lambda block: block.seconds).mean(axis=1, keepdims=True)
    return Seen(stalls=names, waits=tuple(waits), bubble=bubble), taken_apart(
        kept.matrix - kept.matrix[:, :1] + mean, np.array([parts[name] for name in names]).T
    )


def _find_bubble(
    profile: Profile, kept: StepTimes, rows: Mapping[str, Waited], parts: dict[str, Matrix]
) -> Bubble | None:
    """Of what stages wait for each other; added to ``parts`` with what is left of these waits."""
    handed = {key: row for key, row in rows.items() if key.rpartition("/")[2] in HANDED_ON}
    waited = sum((row.waited.mean(axis=1) for row in handed.values()), np.zeros(len(kept.sets)))
    if profile.workload.pipeline is None:
        return None
    longer = _longer_than_played(profile, kept)
    found = estimate_bubble(profile, kept.rungs[0], float(waited.mean()), longer)
    if found is not None:
        is_far = any(_spans_nodes(profile, key.rpartition("/")[0]) for key in handed)
        parts[BUBBLE] += found.seconds
        parts["network" if is_far else "interconnect"] += waited - found.seconds
    return found


def _longer_than_played(profile: Profile, kept: StepTimes) -> float:
    """How many times as long ranks work themselves in kept rounds as in those whose passes are known: the first."""

    def own(block: Block) -> float:
        waits = sum(block.group_waits.values()) + block.stage_seconds.get("exchange", 0.0)
        return block.seconds - waits

    lowest = kept.rungs[0]
    every = rank_values(profile, own)
    known = {row.round for row in profile.passes if row.rung == lowest}
    played = [value for number in known for value in every.get((number, lowest), {}).values()]
    return float(_per_set(profile, kept, own).mean() / np.mean(played)) if played else 1.0


class Waited(NamedTuple):
    """For one kind of collective of the groups along one axis, seconds of a step, ``[set, rank]``."""

    waited: Matrix
    least: Matrix
    """By the rank of the same group that waits least."""


def _group_waits(profile: Profile, kept: StepTimes, key: str) -> Waited:
    """``key``: a group's name and a kind, as blocks have them."""

    of_buckets = _field_of("stage_seconds", "exchange", 0.0)
    read = of_buckets if key.endswith(f"/{BUCKETS}") else _field_of("group_waits", key, 0.0)
    matrix = _per_set(profile, kept, read)
    everyone = sorted(rank.rank for rank in profile.ranks)
    least = matrix.copy()
    for group in groups_of(profile.workload.mesh, key.rpartition("/")[0], everyone):
        columns = [everyone.index(rank) for rank in group]
        least[:, columns] = matrix[:, columns].min(axis=1, keepdims=True)
    return Waited(matrix, least)


def _per_set(profile: Profile, kept: StepTimes, measure: Callable[[Block], float]) -> Matrix:
    """Of a step under the lowest rung, ``[set, rank]``."""
    values = rank_values(profile, measure)
    everyone = sorted(rank.rank for rank in profile.ranks)
    sets = (_mean(values[number, kept.rungs[0]] for number in numbers) for numbers in kept.sets)
    return np.array([[ranks.get(rank, 0.0) for rank in everyone] for ranks in sets], np.float64)


def _own_work(profile: Profile, kept: StepTimes, waited: Matrix | int) -> list[Matrix]:
    """What ranks do beside waiting for each other, ``[set, rank]``: by stages of a step, if these were stamped."""
    blocks = [block for block in profile.blocks if block.rung == kept.rungs[0]]
    if not all(block.stage_seconds for block in blocks):
        return [_per_set(profile, kept, lambda block: block.seconds) - waited]
    stages = {name for block in blocks for name in block.stage_seconds} - _WAITING
    return [_per_set(profile, kept, _field_of("stage_seconds", name, 0.0)) for name in stages]


def split_waits(
    rows: Mapping[str, Waited], own: Sequence[Matrix]
) -> dict[str, tuple[Matrix, Matrix]]:
    """By key of ``rows``: (waited for the exchange beyond ``least``, waited for slower ranks), ``[set]``.

    ``own`` is what ranks do themselves, by parts of the step. By as much as that of the slowest rank of each part
    exceeds the mean, all that ranks wait for late ones is for slower ones. The rest is for exchanges that end apart:
    for those of other axes, up to what their groups do; beyond that the ranks of a group itself. Means over ranks.
    """
    longer = {key: (row.waited - row.least).mean(axis=1) for key, row in rows.items()}
    apart = {
        key: float((row.least.max(axis=1) - row.least.mean(axis=1)).mean())
        for key, row in rows.items()
    }
    late = sum(float(each.mean()) for each in longer.values())
    slow = sum(float(each.mean(axis=0).max() - each.mean()) for each in own)
    share = min(1.0, slow / late) if late > 0 else 1.0
    found = {key: (np.zeros_like(each), share * each) for key, each in longer.items()}
    for key, each in longer.items():
        rest = (1 - share) * each
        others = sum(apart.values()) - apart[key]
        theirs = min(1.0, others / float(rest.mean())) if others > 0 and rest.any() else 0.0
        for other, (exchange, slower) in found.items():
            part = theirs * apart[other] / others if theirs > 0 else 0.0
            found[other] = exchange + (1 - theirs if other == key else part) * rest, slower
    return found


def _hidden_share(blocks: Iterable[Block], key: str) -> float | None:
    """Of the time that a group's calls were under way, the share in which their rank did not wait."""
    waiting = [block for block in blocks if key in block.group_waits]
    under_way = [block.group_under_way.get(key) for block in waiting]
    known = [seconds for seconds in under_way if seconds is not None]
    if not any(known) or len(known) < len(waiting):
        return None
    return 1 - sum(block.group_waits[key] for block in waiting) / sum(known)


ROWS = "all_to_all_single"


def expert_loads(profile: Profile) -> tuple[ExpertLoad, ...]:
    """Of each group whose ranks send each other rows by split sizes, means over rounds of the lowest rung with them.

    What ranks wait less the more rows they get (least squares, each rank against the mean of its group), they wait
    because rows are uneven: so much of the wait goes if they are even.
    """
    found = []
    having = [block for block in profile.blocks if block.received_rows]
    rungs = {block.rung for block in having}
    lowest = next((name for name in NAMES if name in rungs), "")
    everyone = [rank.rank for rank in profile.ranks]
    for name in sorted(
        {key for block in having if block.rung == lowest for key in block.received_rows}
    ):
        rows = _rank_means(profile, lowest, _field_of("received_rows", name))
        took = _rank_means(profile, lowest, _field_of("group_waits", f"{name}/{ROWS}"))
        groups = [
            ranks
            for ranks in groups_of(profile.workload.mesh, name, everyone)
            if rows.keys() >= set(ranks) and any(rows[rank] for rank in ranks)
        ]
        if groups and took.keys() >= rows.keys():
            got, waits = (
                [np.array([of_rank[rank] for rank in ranks]) for ranks in groups]
                for of_rank in (rows, took)
            )
            found.append(_weigh_load(name, groups, got, waits))
    return tuple(found)


def _weigh_load(
    name: str, groups: Sequence[Sequence[int]], got: Sequence[Matrix], waits: Sequence[Matrix]
) -> ExpertLoad:
    """``got`` rows and ``waits`` in seconds by group, ``[rank]``."""
    more, waited = (np.concatenate([row - row.mean() for row in each]) for each in (got, waits))
    per_row = max(0.0, -float(more @ waited) / float(more @ more)) if more.any() else 0.0
    explained = per_row * float(np.mean([row.max() - row.mean() for row in got]))
    slower = float(np.concatenate([row - row.min() for row in waits]).mean())
    worst = max(range(len(groups)), key=lambda at: got[at].max() / got[at].mean())
    return ExpertLoad(
        name=name,
        rank=groups[worst][int(got[worst].argmax())],
        ratio=float(got[worst].max() / got[worst].mean()),
        rows=float(np.mean([row.mean() for row in got])),
        slower=slower,
        saves=min(explained, slower),
    )


def _rank_means(
    profile: Profile, rung: str, measure: Callable[[Block], float | None]
) -> dict[int, float]:
    """Of a step of each rank, the mean over rounds."""
    rounds = [ranks for (_, name), ranks in rank_values(profile, measure).items() if name == rung]
    return _mean(rounds) if rounds else {}


def phase_seconds(profile: Profile, rung: str) -> dict[str, float]:
    """Seconds of a step in each phase that the script names, under ``rung``, means over ranks and rounds."""
    names = sorted(
        {name for block in profile.blocks if block.rung == rung for name in block.phase_seconds}
    )
    each = {
        name: _rank_means(profile, rung, _field_of("phase_seconds", name, 0.0)) for name in names
    }
    return {name: sum(ranks.values()) / len(ranks) for name, ranks in each.items()}


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


def _spans_nodes(profile: Profile, name: str) -> bool:
    """Whether groups of that name reach over several nodes."""
    axis = next((each.across_nodes for each in profile.workload.mesh if each.name == name), None)
    if axis is not None:
        return axis
    used = [each.across_nodes for each in profile.workload.groups if each.name == name]
    return any(used) if used else profile.nodes > 1


def axis_of_data(profile: Profile) -> str:
    """The axis of replicas, over which gradients are exchanged; ``world`` where none is one."""
    return next(
        (each.name for each in profile.workload.mesh if each.name.lower() in OF_DATA), "world"
    )


def taken_apart(kept: Matrix, parts: Matrix) -> Matrix:
    """Step times whose lowest rung is preceded by columns of its own, so that differences are ``parts``."""
    below = kept[:, :1] - np.cumsum(parts[:, ::-1], axis=1)[:, ::-1]
    return np.hstack([below, kept])


def _field_of(mapping: str, name: str, missing: float | None = None) -> Callable[[Block], Any]:
    """What reads the value of ``name`` in a block's ``mapping``."""
    return lambda block: getattr(block, mapping).get(name, missing)
