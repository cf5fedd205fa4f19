"""What seeing a collective costs a step: calls of a group that exchanges nothing, stamped and not, interleaved.

Run ``python -m bench.wait_stamps``. PyTorch's fake group returns at once, so that all there is to see is Stash's own
work; a step of 2,000 collectives costs 2,000 times as much.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from stash.measure.agent import script
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.wraps import scope
from stash.measure.agent.wraps.scope import wrap_functional
from stash.measure.agent.wraps.waits import ledger

CALLS, ROUNDS, A_STEP = 2000, 15, 2000


class Stamping(script.Listener):
    """Stamps stages, and does nothing else."""

    listens = True

    def __init__(self) -> None:
        self.stamps: Stamps = Stamps(time.perf_counter)


def seconds_a_call(call: Callable[[], object]) -> float:
    began = time.thread_time()
    for _ in range(CALLS):
        call()
    return (time.thread_time() - began) / CALLS


def main() -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    tensor, plain = torch.ones(8), c10d.all_reduce

    def through_dispatcher() -> object:
        return functional.wait_tensor(functional.all_reduce(tensor, "sum", dist.group.WORLD))

    unseen = [seconds_a_call(through_dispatcher) for _ in range(ROUNDS)]
    scope.wrap_collectives(c10d)
    wrap_functional(functional)
    script.subscribe(Stamping())
    times: dict[str, list[float]] = {"all_reduce": [], "all_reduce, seen": [], "functional, seen": []}
    for _ in range(ROUNDS):
        times["all_reduce"].append(seconds_a_call(lambda: plain(tensor)))
        for name, call in (
            ("all_reduce, seen", lambda: c10d.all_reduce(tensor)),
            ("functional, seen", through_dispatcher),
        ):
            ledger.begin()
            times[name].append(seconds_a_call(call))
            ledger.end(steps=0)
    times["functional"] = unseen
    found = {name: statistics.median(each) * 1e6 for name, each in times.items()}
    print(f"microseconds of processor time a call, medians of {ROUNDS} x {CALLS} calls, torch {torch.__version__}")
    for name in ("all_reduce", "functional"):
        more = found[f"{name}, seen"] - found[name]
        print(f"{name:12s} {found[name]:6.1f} plain, {found[f'{name}, seen']:6.1f} seen: {more:5.1f} more, "
              f"{more * A_STEP / 1e3:5.1f} ms a step of {A_STEP:,}")  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
