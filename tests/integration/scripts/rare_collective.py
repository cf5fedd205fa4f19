"""A collective only in every tenth step, for a log line."""

import sys

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
dataset = ArrayFolder(sys.argv[1])
loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0

for _ in range(1000):
    for pictures, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
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
