"""Rank 0 validates alone every 40 steps, and all others wait for it at a barrier.

Seen in: horovod/horovod#600 ("on just rank 0?"), pytorch/pytorch#54059 (one rank validates, the others wait at a barrier).
Symptom: GPUs but the first idle for minutes in each epoch.
Cause: `if rank == 0:` around validation.
Truth: EVALUATION, on rank 0, for which rank 1 waits.
Remedy: a share of it on each rank, or less often (FIXED=1).
Run: torchrun --standalone --nproc-per-node 2 41_one_rank_validates.py
"""
import os, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS, EVERY = int(os.environ.get("STEPS", 240)), 240 if os.environ.get("FIXED") else 40
dist.init_process_group("gloo")
torch.set_num_threads(1)
rank = dist.get_rank()
torch.manual_seed(rank)
loader = DataLoader(TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,))), 32, shuffle=True)
valid = DataLoader(TensorDataset(torch.randn(8192, 256), torch.randint(0, 10, (8192,))), 32)
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def validate():
    net.eval()
    with torch.no_grad():
        right = sum((net(x).argmax(1) == y).sum().item() for x, y in valid)
    net.train()
    return right / 8192


done, start = 0, time.perf_counter()
while done < STEPS:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        done += 1
        if done % EVERY == 0:
            if rank == 0:
                validate()
            dist.barrier()
        if done == STEPS:
            break
if rank == 0:
    print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
dist.barrier()
del model, optimizer
dist.destroy_process_group()
