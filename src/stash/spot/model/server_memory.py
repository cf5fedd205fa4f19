"""What memory a parameter server needs: its share of the model, the optimizer's state, buffers, and checkpoints.

Bytes of one machine, at the worst moment. It counts what ``elastic/training/server`` holds; the constant part was
measured (``docs/spot.md``). Knows no page cache, and not what else runs there.
"""

from __future__ import annotations

from stash.core.units import counted, format_bytes
from stash.spot.records.fleets import ParameterServers
from stash.spot.records.runs import LearnedCurve

BASE_BYTES = 0.4e9
"""Of a server's process with Python, PyTorch and Ray, before it has a model."""
HEAD_BYTES = 1.2e9
"""Of what else the first server's machine carries: the head, the coordinator and Ray's own programs."""
_TRAYS = 3
"""Buffers of one exchange each: ``trays_of(1)`` of ``elastic/training/server``."""
_ASSEMBLED = 4
"""Times the whole model that the head holds at the end: what servers sent, the model, and the file's content."""


def server_bytes(curve: LearnedCurve, servers: int) -> float | None:
    """Of the machine that needs most, the first, with the head; ``None`` where the curve does not say enough.

    Shares are whole tensors, so none is smaller than the largest of them.
    """
    if curve.optimizer_bytes is None or curve.largest_bytes is None or curve.buffer_bytes is None:
        return None
    whole, buffers = curve.parameter_bytes, curve.buffer_bytes
    share = max(whole / servers, curve.largest_bytes)
    state = curve.optimizer_bytes * share / whole
    kept = share + buffers + state
    exchange = _TRAYS * (share + buffers)
    training = kept + exchange + kept + curve.largest_bytes  # and a copy for the checkpoint, and what a step makes
    starting = whole + buffers + kept
    ending = kept + exchange + share + buffers + _ASSEMBLED * (whole + buffers)
    return BASE_BYTES + HEAD_BYTES + max(training, starting, ending)


def too_small(server: ParameterServers) -> str | None:
    """Why a server of a pool cannot hold what it has to; ``None`` if it can, or nobody knows."""
    if server.memory_bytes is None or server.needs_bytes is None or server.needs_bytes <= server.memory_bytes:
        return None
    return (
        f"a server has {format_bytes(server.memory_bytes)}, and each of {counted(server.count, 'server')} needs "
        f"{format_bytes(server.needs_bytes)} for parameters, optimizer, exchange and checkpoint"
    )
