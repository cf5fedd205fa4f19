"""Collectives of the script's own: mean loss and all ranks' accuracies in every step, a log line in every tenth."""

import sys

import torch
import torch.distributed as dist
from ddp import begin, share
from parts import ArrayFolder

model, optimizer = begin()
loader = share(ArrayFolder(sys.argv[1]))
step = 0

for _ in range(1000):
    for pictures, labels in loader:
        optimizer.zero_grad()
        scores = model(pictures)
        loss = torch.nn.functional.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
        hits = (scores.argmax(1) == labels).float().mean()
        everyone = [torch.zeros_like(hits) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, hits)
        step += 1
        if step % 10 == 0:
            total = loss.detach().clone()
            dist.reduce(total, dst=0)
            records = [None] * dist.get_world_size()
            dist.all_gather_object(records, {"step": step, "loss": loss.item()})
            dist.barrier()
            if dist.get_rank() == 0:
                steps = {record["step"] for record in records}
                assert len(steps) == 1, f"ranks are at different steps: {steps}"
                print(f"step {step}: loss {total.item() / dist.get_world_size():.3f}")
