"""A profile that holds what was published of a job and no more: a step, a batch, gradients ready evenly.

Under a name that nobody published; of several ranks every rung takes the whole step, as what of it is exchanged is
not known.
"""

from __future__ import annotations

import numpy as np

from stash.catalog.facts import GpuFacts
from stash.core.measured import Block, Memory, Rank
from stash.core.records.host import Gpu, Host
from stash.core.records.profile import Gradient, Profile, Settings, Workload

CREATED = "2026-11-29"
_GRADIENTS, _READY = 50, (0.35, 0.97)
"""Their number, and when the first and the last are ready, of a step."""
_WIGGLE = (-0.002, 0.002, -0.001, 0.001, 0.0, 0.0)
"""Of rounds' steps."""


def _workload(name: str, step: float, batch: int, parameters: float, precision: str) -> Workload:
    gradients = tuple(
        Gradient(
            name=f"layer{number}",
            bytes=int(parameters * 4 / _GRADIENTS),
            ready_seconds=float(share * step),
        )
        for number, share in enumerate(np.linspace(*_READY, _GRADIENTS))
    )
    return Workload(
        command=("train.py",),
        name=f"unpublished {name}",
        batch=batch,
        gradients=gradients,
        parameters=int(parameters),
        parameter_bytes=int(4 * parameters),
        precision=precision,
    )


def _blocks(step: float, batch: int, rungs: tuple[str, ...], ranks: int) -> tuple[Block, ...]:
    return tuple(
        Block(
            round=number,
            rung=rung,
            rank=rank,
            steps=10,
            seconds=10 * step * (1 + wiggle),
            samples=10 * batch,
        )
        for number, wiggle in enumerate(_WIGGLE)
        for rung in rungs
        for rank in range(1 if rung == "solo" else ranks)
    )


def published_profile(
    name: str,
    gpu: GpuFacts,
    step: float,
    batch: int,
    parameters: float,
    precision: str,
    nodes: int = 1,
    devices: int = 1,
) -> Profile:
    """``step`` in seconds, ``batch`` in samples of a rank."""
    ranks = nodes * devices
    rungs = ("solo", "crowd", "node", "cluster")[: 1 if ranks == 1 else 3 if nodes == 1 else 4]
    cards = tuple(
        Gpu(index=number, name=gpu.name, memory_bytes=int(gpu.memory_bytes or 0))
        for number in range(devices)
    )
    return Profile(
        stash_version="0",
        created=f"{CREATED}T00:00:00+00:00",
        workload=_workload(name, step, batch, parameters, precision),
        hosts=tuple(Host(hostname=f"node{node}", gpus=cards) for node in range(nodes)),
        ranks=tuple(
            Rank(
                rank=rank,
                node=rank // devices,
                local_rank=rank % devices,
                device=f"cuda:{rank % devices}",
            )
            for rank in range(ranks)
        ),
        software={},
        settings=Settings(
            precision=0.02, budget_seconds=60.0, rungs=rungs, isolated=False, why="published"
        ),
        blocks=_blocks(step, batch, rungs, ranks),
        memory=(
            Memory(rank=0, allocated_bytes=int(10**9 + 8 * parameters)),
        ),  # gradients, too: any batch fits
        ended="precision",
        elapsed_seconds=60.0,
    )
