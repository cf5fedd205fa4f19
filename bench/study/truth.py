"""What an emulated cell must come out as: from the layers' times, the links' rates and the buckets that were set.

Worked out on the scales of the testbed, with the calculators of ``bench/truth``. Nothing here calls what measures,
attributes or predicts. It knows no latency of collectives and no bursts of links: what those do is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.truth.cases import Layer, exposed_seconds, ring_wire
from stash.lab.testbed.emulation import Emulation
from stash.study.cells import Cell
from stash.study.emulating import BUCKET_BYTES, EmulatedCell


def truth(cell: Cell, model: Emulation) -> dict[str, float]:
    """Seconds of each stall on the testbed; ``model`` is unscaled."""
    bed = cell.emulated
    assert bed is not None, "only emulated cells have a truth"
    scaled = model.scale(bed.scale, bed.time_scale)
    found = {"compute": scaled.compute_seconds}
    ready = buckets(scaled, BUCKET_BYTES * bed.scale)
    alone = 0.0
    if bed.ranks * cell.nodes > 1:
        found["contention"] = 0.0  # all ranks are alike
    if bed.interconnect is not None:
        alone = found["interconnect"] = exposed_seconds(ready, lambda size: inside(bed, size))
    if bed.network is not None:
        found["network"] = (
            exposed_seconds(ready, lambda size: everywhere(bed, cell.nodes, size)) - alone
        )
    return found


def inside(bed: EmulatedCell, size: float) -> float:
    """Seconds of a bucket on the loopback that a node's ranks share: together they send p times what each does."""
    return bed.ranks * ring_wire(bed.ranks, size) / (bed.interconnect or float("inf"))


def everywhere(bed: EmulatedCell, nodes: int, size: float) -> float:
    """Of one ring through all nodes, whose slowest link is the uplink."""
    return ring_wire(bed.ranks * nodes, size) / (bed.network or float("inf"))


def buckets(model: Emulation, cap: float) -> Sequence[Layer]:
    """Layers put together as DDP does: from the last on, closed by the one with which it holds ``cap`` bytes."""
    found: list[Layer] = []
    size = 0
    forward = 0.0
    backward = 0.0
    for layer in reversed(model.layers):
        size += layer.bytes // 4 * 4
        forward = forward + layer.forward_seconds
        backward = backward + layer.backward_seconds
        if size >= cap:
            found.append(Layer(size, forward, backward))
            size = 0
            forward = 0.0
            backward = 0.0
    if backward or size:
        found.append(Layer(size, forward, backward))
    return tuple(reversed(found))
