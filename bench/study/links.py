"""What emulated links carry of a real all-reduce, against what their bytes alone would take.

``python -m bench.study.links`` needs root. From it come the constants of ``study/emulating.py``: how fast a
link may be, how slow a line between nodes, and how long a step. An exchange is one bucket or three, after a pause in
which links fill their bursts; its time is that until the slowest rank has it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from statistics import median

from bench.machine import machine
from bench.table import table
from bench.truth.cases import ring_wire
from stash.core.errors import StashError
from stash.lab.testbed.bed import Testbed

TIMES = 12
PAUSE = 0.03
INSIDE = (50e6, 100e6, 200e6, 400e6, 800e6, 1600e6, 2400e6)
BETWEEN = (9e6, 20e6, 40e6, 80e6)
MESSAGES = ((4,), (16_000_000,))
BUCKETS = ((4,), (1_136_000,), (388_000, 702_000, 46_000))


def rank(local: int, ranks: int, sizes: Sequence[int]) -> None:
    """One rank of the exchange, which prints its milliseconds and the CPU milliseconds that each took it."""
    import torch
    import torch.distributed as dist

    from stash.lab.testbed.accelerator import go_first, sharpen_sleep

    go_first()
    sharpen_sleep()
    own = int(os.environ["STASH_NODE"]) * ranks + local
    world = int(os.environ["STASH_TESTBED_NODES"]) * ranks
    meeting = f"tcp://{os.environ['STASH_TESTBED_HEAD']}:29533"
    dist.init_process_group("gloo", init_method=meeting, rank=own, world_size=world)
    buckets = [torch.ones(size // 4) for size in sizes]
    busy = time.process_time()
    found = []
    for _ in range(TIMES):
        dist.barrier()
        time.sleep(PAUSE)
        began = time.perf_counter()
        for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            work.wait()
        found.append(1000 * (time.perf_counter() - began))
    busy = 1000 * (time.process_time() - busy) / TIMES
    print("ms", *(f"{each:.3f}" for each in found), f"{busy:.3f}", flush=True)


def measured(bed: Testbed, ranks: int, sizes: Sequence[int]) -> tuple[float, float]:
    """Milliseconds of the slowest rank, the median over repetitions; CPU milliseconds of a rank."""
    words = [sys.executable, "-m", "bench.study.links"]
    started = [
        bed.run([*words, str(local), str(ranks), *map(str, sizes)], node)
        for node in range(bed.nodes)
        for local in range(ranks)
    ]
    lines = []
    for process in started:
        if process.wait(120):
            raise StashError(process.output[-500:])
        lines += [line.split()[1:] for line in process.output.splitlines() if line.startswith("ms ")]
    slowest = [max(float(line[number]) for line in lines) for number in range(TIMES)]
    return median(slowest), median(float(line[-1]) for line in lines)


def rows(nodes: int, inside: float, between: float | None, messages: Sequence[Sequence[int]]) -> list[list[str]]:
    """A row a message, two ranks a node."""
    name = f"{inside / 1e6:.0f} MB/s" if between is None else f"{between / 1e6:.0f} MB/s"
    try:
        with Testbed(nodes, 2, interconnect=inside, network=between) as bed:
            limit = "interconnect" if between is None else "network"
            rate = min(link.measured for link in bed.links if link.name == limit)
            found = []
            for sizes in messages:
                wire = 2 * ring_wire(2, sum(sizes)) if between is None else ring_wire(2 * nodes, sum(sizes))
                took, busy = measured(bed, 2, sizes)
                bytes_alone = 1000 * wire / rate
                more = f"{took - bytes_alone:+.2f} ms"
                sizes_text = " + ".join(f"{size:,}" for size in sizes)
                found.append([name, sizes_text, f"{bytes_alone:.2f} ms", f"{took:.2f} ms", more, f"{busy:.1f} ms"])
            return found
    except StashError as error:
        return [[name, "-", "-", "-", "-", str(error).split(";")[0]]]


def main() -> None:
    if len(sys.argv) > 1:
        rank(int(sys.argv[1]), int(sys.argv[2]), [int(size) for size in sys.argv[3:]])
        return
    heads = ["link", "bytes", "they alone take", "took", "more", "CPU of a rank"]
    print(f"{machine()}\n\nOne node of two ranks, by the rate of its loopback:\n")
    print(table(heads, [row for rate in INSIDE for row in rows(1, rate, None, MESSAGES)]))
    print("\nTwo nodes of two ranks, by the rate of the line between them:\n")
    print(table(heads, [row for rate in BETWEEN for row in rows(2, 4e8, rate, BUCKETS)]))


if __name__ == "__main__":
    main()
