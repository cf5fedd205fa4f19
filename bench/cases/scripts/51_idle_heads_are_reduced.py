"""Multi-task model with one big head per task: find_unused_parameters=True, and DDP reduces the idle heads' zeros as well.

Seen in: pytorch/pytorch#60844 and pytorch/pytorch#41101 (shared encoder, one head a task, find_unused_parameters "needed"),
VMarsocci/pangaea-bench#111 and NVIDIA-BioNeMo/KERMT#23 (the note of DDP's manual: "it would still reduce all buckets").
Symptom: each task more makes every step slower although one head runs at a time; two ranks are slower than one.
Cause: all 12 heads (63 MB of gradients) sit in one DDP; a step uses one, 5 MB, the other buckets travel as zeros.
Truth: COLLECTIVE/NETWORK within backward: about 60 MB a step too many, two thirds or more of the step.
Remedy: a DDP for the trunk and one for each head; only what took part in the step is exchanged (FIXED=1).
Run: torchrun --standalone --nproc-per-node 2 51_idle_heads_are_reduced.py
"""
import os, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, FIXED = int(os.environ.get("STEPS", 250)), bool(os.environ.get("FIXED"))
TASKS, BATCH, FEATURES = 12, 64, 256


def make_trunk():
    return nn.Sequential(nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())


def make_head():
    return nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 128))


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = make_trunk()
        self.heads = nn.ModuleList(make_head() for _ in range(TASKS))

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


class SplitMultiTask(nn.Module):
    """The same, every part a DDP of its own."""

    def __init__(self):
        super().__init__()
        self.trunk = DistributedDataParallel(make_trunk())
        self.heads = nn.ModuleList(DistributedDataParallel(make_head()) for _ in range(TASKS))

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


def task_stream(rank, seed=0):
    """Endless (task, inputs, targets); all ranks work at the same task, each with samples of its own."""
    order = torch.Generator().manual_seed(seed)
    samples = torch.Generator().manual_seed(seed + 1 + rank)
    x = torch.randn(4096, FEATURES, generator=samples)
    y = torch.randint(0, 128, (TASKS, 4096), generator=samples)
    while True:
        for task in torch.randperm(TASKS, generator=order).tolist():
            rows = torch.randint(0, len(x), (BATCH,), generator=samples)
            yield task, x[rows], y[task, rows]


def build_model():
    if FIXED:
        return SplitMultiTask()
    return DistributedDataParallel(MultiTask(), find_unused_parameters=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    running = [0.0] * TASKS
    stream = task_stream(rank)
    start = time.perf_counter()
    for step in range(1, STEPS + 1):
        task, x, y = next(stream)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x, task), y)
        loss.backward()
        optimizer.step()
        running[task] = 0.9 * running[task] + 0.1 * loss.item()
        if step % 50 == 0 and rank == 0:
            print(f"step {step} mean loss {sum(running) / TASKS:.3f}", flush=True)
    if rank == 0:
        print(f"steps {STEPS}, seconds a step {(time.perf_counter() - start) / STEPS:.4f}")
    dist.barrier()
    del model, optimizer
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
