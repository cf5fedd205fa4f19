"""Rank 0 writes records and histograms of the batch after every step; the others wait for it in the exchange.

Symptom: two ranks are slower than one; the exchange "takes" long on every rank but the first.
Cause: `if rank == 0:` around work of tens of milliseconds, in every step.
Truth: the script's own LOOP on rank 0, which rank 1 waits for: about 6.8 ms a step. Neither network nor compute.
Remedy: every 50 steps (FIXED=1), or in a thread.
Run: torchrun --standalone --nproc-per-node 2 26_one_rank_logs.py
"""
import json, os, tempfile, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS, EVERY = int(os.environ.get("STEPS", 300)), 50 if os.environ.get("FIXED") else 1
dist.init_process_group("gloo")
torch.set_num_threads(1)
rank = dist.get_rank()
torch.manual_seed(rank)
loader = DataLoader(TensorDataset(torch.randn(4096, 512), torch.randint(0, 10, (4096,))), 32, shuffle=True)
model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def write(file, step, loss):
    record = {"step": step, "loss": loss.item()}
    for name, p in model.named_parameters():
        record[name] = torch.histogram(p.detach().flatten(), 64).hist.tolist()
    file.write(json.dumps(record, indent=1) + "\n")
    file.flush()


done, start = 0, time.perf_counter()
with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    while done < STEPS:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            done += 1
            if rank == 0 and done % EVERY == 0:
                write(file, done, loss)
            if done == STEPS:
                break
if rank == 0:
    print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
dist.barrier()
del model, optimizer
dist.destroy_process_group()
