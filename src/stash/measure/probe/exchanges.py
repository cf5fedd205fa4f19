"""All-reduce by itself, from small messages to large; and measurements repeated within a share of the time.

A repetition begins with a barrier and takes the time of its slowest rank. Small messages are exchanged several
times in a row and divided, as nccl-tests does, so that leaving the barrier unevenly does not count as latency.
Every choice is made from numbers that all ranks share. Knows groups of ranks, not machines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from stash.core.errors import one_line
from stash.core.records.host import Exchange, Timing, Unmeasured
from stash.measure.linux.interfaces import interface_of
from stash.measure.linux.processes import pin_rank
from stash.measure.probe.team import AbsentError, Team, prefix_store

SIZES = tuple(1024 * 4**k for k in range(10))
"""1 KiB to 256 MiB."""
_REPETITION, _MOST = 0.002, 60
_MAX_CALLS, _MAX, _MIN = 50, 10, 5
_SMALL, _TRIALS = 1 << 20, 3
"""Up to this size one disturbed trial would hide how many calls a repetition needs."""
_PORTION = 0.35
"""Of the time left, what one size may take at first: large sizes come last and need most of it."""
_SWEEP = 0.6
"""Of the time, for all sizes once; the rest takes each again and again, so that a passing disturbance meets all."""
_NODE_SHARE = 1 / 3
_GRACE = 20.0


@dataclass(frozen=True)
class Group:
    """Ranks that exchange: the backend's group, and a gloo group of the same ranks for barriers and times."""

    data: Any
    control: Any
    ranks: int
    device: torch.device
    clock: Callable[[], float] = time.perf_counter

    def slowest(self, values: list[float]) -> list[float]:
        """Each value's maximum over the ranks."""
        shared = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(shared, dist.ReduceOp.MAX, group=self.control)
        return [float(value) for value in shared]

    def barrier(self) -> None:
        self.slowest([0.0])  # gloo's own barrier takes several rounds

    def time_all_reduce(self, tensor: torch.Tensor, calls: int) -> float:
        """Seconds of one of ``calls`` all-reduces in a row, on this rank."""
        self.barrier()
        began = self.clock()
        for _ in range(calls):
            dist.all_reduce(tensor, group=self.data)
        if tensor.is_cuda:
            torch.cuda.synchronize(tensor.device)
        return (self.clock() - began) / calls


def measure(team: Team, seconds: float, devices: int) -> list[Exchange | Unmeasured]:
    """The curve inside this node, and, at rank 0, the one across all; every rank takes part."""
    if team.world == 1:
        return [
            Unmeasured(link="exchanges", why="there is one rank, so there is nothing to exchange")
        ]
    backend = "nccl" if devices else "gloo"
    found: list[Exchange | Unmeasured] = []
    doing = "exchanges"
    try:
        inside, across = _form_groups(team, backend, seconds)
        if team.nodes > 1:
            doing = f"exchanges inside node {team.node}"
            if inside is None:
                found.append(
                    Unmeasured(
                        link=doing, why="there is one rank on it; --nproc-per-node sets more"
                    )
                )
            else:
                timings = time_curve(inside, seconds * _NODE_SHARE)
                found.append(
                    Exchange(backend=backend, nodes=1, ranks=inside.ranks, timings=timings)
                )
            seconds *= 1 - _NODE_SHARE
            doing = "exchanges across nodes"
        timings = time_curve(across, seconds)
        if team.rank == 0:
            found.append(
                Exchange(backend=backend, nodes=team.nodes, ranks=team.world, timings=timings)
            )
    except (
        RuntimeError,
        AbsentError,
    ) as error:  # every error of torch.distributed is a RuntimeError
        found.append(
            Unmeasured(link=doing, why=f"the ranks' {backend} group failed: {one_line(error)}")
        )
    return found


def _form_groups(team: Team, backend: str, seconds: float) -> tuple[Group | None, Group]:
    """(ranks of this node if there are several, all ranks); every rank makes every group, in the same order."""
    limit = timedelta(seconds=seconds + _GRACE)
    if backend == "gloo":
        # as ``stash profile`` does on CPUs: both curves are then alike
        pin_rank(team.local_rank, team.node_of.count(team.node))
    if team.nodes > 1 and "GLOO_SOCKET_IFNAME" not in os.environ:
        name = interface_of(team.addresses[team.node])
        os.environ.update({"GLOO_SOCKET_IFNAME": name} if name else {})
    dist.init_process_group(
        "gloo",
        store=prefix_store(team.store, "gloo"),
        rank=team.rank,
        world_size=team.world,
        timeout=limit,
    )
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", team.local_rank)
        torch.cuda.set_device(device)

    def group(ranks: list[int]) -> Group:
        control = dist.new_group(ranks, timeout=limit, backend="gloo")
        data = (
            control if backend == "gloo" else dist.new_group(ranks, timeout=limit, backend=backend)
        )
        return Group(data, control, len(ranks), device)

    across = group(list(range(team.world)))
    own = None
    for node in range(team.nodes if team.nodes > 1 else 0):
        ranks = [rank for rank, at in enumerate(team.node_of) if at == node]
        made = group(ranks) if len(ranks) > 1 else None
        own = made if node == team.node else own
    return own, across


@dataclass
class _Size:
    """One message size: how it is timed, and the repetitions so far."""

    tensor: torch.Tensor
    calls: int
    taken: list[float]

    def take(self, group: Group, count: int) -> None:
        self.taken += group.slowest(
            [group.time_all_reduce(self.tensor, self.calls) for _ in range(count)]
        )


def time_curve(group: Group, seconds: float) -> tuple[Timing, ...]:
    """Timings of one size after the other, as far as they fit into ``seconds``; then of all again, in rounds."""
    began = group.clock()
    sizes: list[_Size] = []

    def spent() -> float:
        return group.slowest([group.clock() - began])[0]

    for size in SIZES:
        left = _SWEEP * seconds - spent()
        if sizes and 4 * min(sizes[-1].taken) * (_MIN + 2) > left:
            break
        tensor = torch.zeros(size // 4, device=group.device)
        # connections and buffers are made, cores wake up
        group.time_all_reduce(tensor, 1 if sizes else _MAX_CALLS)
        trials = [group.time_all_reduce(tensor, 1) for _ in range(_TRIALS if size <= _SMALL else 1)]
        once = min(group.slowest(trials))
        calls = min(_MAX_CALLS, max(1, round(_REPETITION / max(once, 1e-9))))
        count = int(_PORTION * left / (once * calls))
        sizes.append(_Size(tensor, calls, []))
        sizes[-1].take(group, min(_MAX, max(_MIN, count)))
    round_took, before = sum(2 * each.calls * min(each.taken) for each in sizes), spent()
    while before + round_took < seconds and len(sizes[0].taken) < _MOST:
        for each in sizes:
            each.take(group, 2)
        round_took = (now := spent()) - before
        before = now
    return tuple(Timing(bytes=each.tensor.nbytes, seconds=tuple(each.taken)) for each in sizes)


Mark = tuple[float, int]
"""A moment of a transfer: seconds on some clock, and bytes moved until then."""


def repeat(
    act: Callable[[], float],
    seconds: float,
    *,
    least: int = 6,
    most: int = 50,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, ...]:
    """What ``act`` returned, again and again until ``seconds`` are spent; the first one warms up and is dropped.

    At least ``least`` times, even when that takes longer, and at most ``most`` times.
    """
    end = clock() + seconds
    act()
    taken: list[float] = []
    while len(taken) < most and (len(taken) < least or clock() < end):
        taken.append(act())
    return tuple(taken)


def equal_parts(marks: Sequence[Mark], parts: int) -> Timing | None:
    """A transfer as ``parts`` repetitions of equally many bytes, each with the seconds it took, in order.

    Between two marks bytes are taken to flow evenly. ``None`` if fewer than two marks differ in bytes.
    """
    if len(marks) < 2 or marks[-1][1] <= marks[0][1]:
        return None
    size = (marks[-1][1] - marks[0][1]) // parts
    if size == 0:
        return None
    moments, counts = zip(*marks, strict=True)
    edges = np.interp(counts[0] + size * np.arange(parts + 1), counts, moments)
    return Timing(bytes=size, seconds=tuple(float(taken) for taken in np.diff(edges)))
