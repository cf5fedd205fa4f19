"""A training loop of two gloo ranks that stops its own time: what its trace should say, beside the trace."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

JOBS: dict[str, dict[str, Any]] = {
    "exchange-small": {"floats": 1 << 22, "loop": 0.1},
    "exchange-large": {"floats": 1 << 24},
    "exchange-twice": {"floats": 1 << 23, "times": 2},
    "exchange-gather": {"floats": 1 << 23, "op": "gather"},
    "late-1": {"floats": 1 << 20, "loop": 0.1, "late": (1, 0.1)},
    "late-0": {"floats": 1 << 20, "loop": 0.1, "late": (0, 0.06)},
    "late-little": {"floats": 1 << 20, "loop": 0.2, "late": (1, 0.03)},
    "input": {"floats": 1 << 20, "item": 0.02},
    "input-1": {"floats": 1 << 20, "item": 0.015, "slow_reader": 1, "loop": 0.05},
    "loop": {"floats": 1 << 20, "loop": 0.2},
    "loop-stacks": {"floats": 1 << 20, "loop": 0.2, "stacks": True},
    "compute-1": {"floats": 1 << 20, "heavy": 1, "loop": 0.1},
    "all": {"floats": 1 << 22, "late": (1, 0.06), "item": 0.01, "loop": 0.05},
    "two-groups": {"floats": 1 << 21, "times": 2, "op": "groups", "late": (0, 0.07), "loop": 0.1},
}
STEPS = 4


class Items(torch.utils.data.Dataset[Any]):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if self.seconds:
            time.sleep(self.seconds)
        return torch.ones(256)


def run(how, folder, other):
    """One job, which leaves ``rankN.json`` and ``rankN.truth`` there."""
    folder.mkdir(exist_ok=True)
    rank = dist.get_rank()
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    item = how.get("item", 0.0) if how.get("slow_reader", rank) == rank else 0.0
    loader = iter(torch.utils.data.DataLoader(Items(item), batch_size=8))
    values = torch.ones(how["floats"])
    weights = torch.ones(700, 700)
    kept: list[dict[str, Any]] = []

    def exchange(times, group):
        begin = time.monotonic()
        if how.get("op") == "gather":
            dist.all_gather([torch.empty_like(values), torch.empty_like(values)], values)
        else:
            dist.all_reduce(values, group=group)
        times["met"].append((begin, time.monotonic()))

    def step():
        times: dict[str, Any] = {"met": [], "begin": time.monotonic()}
        batch = next(loader)
        times["input"] = time.monotonic() - times["begin"]
        begin = time.monotonic()
        for _ in range(how.get("heavy", -1) == rank and 12):
            weights.mm(weights)
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        times["compute"] = time.monotonic() - begin
        begin = time.monotonic()
        time.sleep(
            how.get("loop", 0.0) + (how["late"][1] if how.get("late", (-1,))[0] == rank else 0.0)
        )
        times["loop"] = time.monotonic() - begin
        for number in range(how.get("times", 1)):
            exchange(times, other if how.get("op") == "groups" and number else None)
        times["end"] = time.monotonic()
        kept.append(times)

    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=STEPS),
        with_stack=bool(how.get("stacks")),
        on_trace_ready=lambda found: found.export_chrome_trace(str(folder / f"rank{rank}.json")),
    ) as profiler:
        for _ in range(STEPS + 2):
            step()
            profiler.step()
    (folder / f"rank{rank}.truth").write_text(json.dumps(kept[2:]))


def main():
    """Every job, one after the other, each in a folder of its own name."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    other = dist.new_group([0, 1])
    for name, how in JOBS.items():
        dist.barrier()
        run(how, Path(sys.argv[1]) / name, other)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
