"""Traces written by hand: events in microseconds, as torch.profiler writes them."""

import json
from typing import Any

Event = dict[str, Any]
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>(cutlass::Params)"


def kernel(name, start, stop, link=0, stream=7, **args):
    """Work of the device."""
    kind = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    found = {"correlation": link, "stream": stream, **args}
    return {**note(name, start, stop, stream, kind), "pid": 0, "args": found}


def launch(at, link, long=1):
    """The call that launches it."""
    call = note("cudaLaunchKernel", at, at + long, kind="cuda_runtime")
    return {**call, "args": {"correlation": link}}


def note(name, start, stop, thread=1, kind="user_annotation"):
    """An annotation, or anything else of the host."""
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start,
        "dur": stop - start,
    }


def document(events, rank=0, world=None, **head):
    """A whole trace."""
    info = (
        {}
        if rank is None
        else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world or rank + 1}}
    )
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": 0,
        **info,
        **head,
        "traceEvents": list(events),
    }


def write(path, events, **about):
    """As torch.profiler lays it out."""
    path.write_text(json.dumps(document(events, **about), indent=2))
    return path


def two_steps():
    """Two steps of one device, worked by hand.

    The first reaches from 0 to 80: compute 10-40, an all-reduce 30-60 of which 20 are exposed, a copy 70-80, and 20
    idle, of which the loader has 5. The second reaches from 80 to 150, with compute 110-150.
    """
    return [
        note("ProfilerStep#1", 0, 100),
        note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 5),
        launch(5, 1),
        launch(6, 2),
        launch(50, 3),
        kernel(GEMM, 10, 40, 1),
        kernel(ALL_REDUCE, 30, 60, 2, stream=8),
        kernel("Memcpy HtoD (Pinned -> Device)", 70, 80, 3, stream=9),
        note("ProfilerStep#2", 100, 200),
        launch(105, 4),
        kernel(GEMM, 110, 150, 4),
    ]


TWO_STEPS = [
    {"compute": 30.0, "host": 15.0, "transfer": 10.0, "exchange": 20.0, "input": 5.0},
    {"compute": 40.0, "host": 30.0},
]
"""What ``two_steps`` are made of, in microseconds."""


def per_step(trace):
    """Microseconds of what each step is made of."""
    return [
        {name: round(value * 1e6, 3) for name, value in step.parts.items() if value}
        for step in trace.steps
    ]


def meeting(rank, start, stop, op="allreduce", **facts):
    """One step of a rank that computes until a collective starts, on a clock of its own."""
    args = {
        "Collective name": op,
        "Group size": 2,
        "Process Group Name": "0",
        "Process Group Ranks": [0, 1],
        "In msg nelems": 1000,
        "dtype": "Float",
        "Rank": rank,
        **facts,
    }
    base = 5_000_000 * rank
    return [
        note("ProfilerStep#7", base, base + stop + 10),
        launch(base + 1, 1),
        launch(base + 2, 2),
        kernel(GEMM, base, base + start, 1),
        kernel(ALL_REDUCE, base + start, base + stop, 2, stream=8, **args),
    ]
