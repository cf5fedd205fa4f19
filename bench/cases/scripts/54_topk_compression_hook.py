"""Gradients are compressed by top-k in a DDP communication hook, on a link that needs no compression.

Seen in: discussions of gradient compression under DDP (pytorch/pytorch#43310 and #47202, apache/mxnet#8762: "you may not want to
use gradient compression if you have low latency communication"); home-made top-k hooks with error feedback, as in GRACE and DGC.
Symptom: bytes on the wire went down to a seventh, steps got three times as long; the CPU is busy in the backward pass.
Cause: for each bucket the hook adds a residual, selects 5 % of millions of entries (topk of the whole bucket), gathers values
       and indices, and scatters them into a dense tensor. On one machine the plain all-reduce of 16 MB costs far less.
Planted stall: the selection in the hook, inside backward(), on both ranks alike, some two thirds of the step.
Remedy: no hook: DDP's own all-reduce (FIXED=1).
Run: torchrun --standalone --nproc-per-node 2 54_topk_compression_hook.py
"""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = int(os.environ.get("STEPS", 200))
COMPRESS = not os.environ.get("FIXED")
BATCH, WIDTH, HIDDEN, CLASSES = 32, 1024, 1536, 20


class CompressorState:
    """Error feedback: what was not sent is added to the next gradient."""

    def __init__(self, ratio):
        self.ratio = ratio
        self.world = dist.get_world_size()
        self.residuals = {}

    def memory(self, bucket, flat):
        kept = self.residuals.get(bucket.index())
        if kept is None or kept.numel() != flat.numel():          # DDP rebuilds its buckets after the first step
            kept = torch.zeros_like(flat)
        return kept


def sparsify(flat, ratio):
    k = max(1, int(flat.numel() * ratio))
    _, where = torch.topk(flat.abs(), k)
    return flat[where], where


def desparsify(like, values, indices):
    dense = torch.zeros_like(like)
    for value, index in zip(values, indices):
        dense.index_add_(0, index, value)
    return dense


def compressed_allreduce(state: CompressorState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    flat = bucket.buffer()
    corrected = flat + state.memory(bucket, flat)
    values, where = sparsify(corrected, state.ratio)
    state.residuals[bucket.index()] = corrected.index_fill(0, where, 0.0)
    all_values = [torch.empty_like(values) for _ in range(state.world)]
    all_indices = [torch.empty_like(where) for _ in range(state.world)]
    dist.all_gather(all_values, values)
    dist.all_gather(all_indices, where)
    future = torch.futures.Future()
    future.set_result(desparsify(flat, all_values, all_indices).div_(state.world))
    return future


def batches(seed):
    """An endless stream of readings of 20 machines, drawn from a small archive."""
    generator = torch.Generator().manual_seed(seed)
    archive = torch.randn(4096, WIDTH, generator=generator)
    labels = torch.randint(0, CLASSES, (4096,), generator=generator)
    while True:
        for index in torch.randperm(len(archive), generator=generator).split(BATCH):
            yield archive[index], labels[index]


def build():
    net = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    model = DDP(net)
    if COMPRESS:
        model.register_comm_hook(CompressorState(ratio=0.05), compressed_allreduce)
    return model


def train_step(model, criterion, optimizer, batch):
    x, y = batch
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def run():
    rank = dist.get_rank()
    model = build()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    stream = batches(seed=rank)
    for _ in range(2):                                            # buckets are rebuilt here
        train_step(model, criterion, optimizer, next(stream))
    start = time.perf_counter()
    running = 0.0
    for step in range(1, STEPS + 1):
        running += train_step(model, criterion, optimizer, next(stream)).item()
        if rank == 0 and step % 40 == 0:
            print(f"[{step}/{STEPS}] loss {running / 40:.3f}", flush=True)
            running = 0.0
    seconds = (time.perf_counter() - start) / STEPS
    if rank == 0:
        print(f"steps {STEPS}, seconds a step {seconds:.4f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    run()
    dist.destroy_process_group()
