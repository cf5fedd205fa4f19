"""Gradients are averaged by hand after backward, one all_reduce for each of a transformer's 147 parameters.

Seen in: pytorch/pytorch#4406 ("Unfortunately, it's slow"), pytorch/tutorials#2305 (average_gradients of the tutorial),
entity-neural-network/incubator#220 (all parameters in a single allreduce: significantly faster).
Symptom: two ranks are far slower than one, CPUs half idle, network hardly loaded.
Cause: latency of 147 small collectives, one after the other, nothing overlaps with backward.
Truth: INTERCONNECT (exchange of gradients, between backward and optimizer): about 54 ms of 70 a step.
Remedy: one all_reduce of all gradients in one vector (FIXED=1), or DistributedDataParallel.
Run: torchrun --standalone --nproc-per-node 2 45_gradients_averaged_by_hand.py
"""
import os, time
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 3000)), bool(os.environ.get("FIXED"))


class CharModel(nn.Module):
    def __init__(self, vocabulary=96, width=32, depth=12):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.body(self.embed(x)))


def average_gradients(model):
    size = float(dist.get_world_size())
    if FIXED:
        grads = [p.grad for p in model.parameters()]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        for g, part in zip(grads, (flat / size).split([g.numel() for g in grads])):
            g.copy_(part.view_as(g))
        return
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(1234)                       # the same weights on each rank
net = CharModel()
torch.manual_seed(dist.get_rank())
loader = DataLoader(TensorDataset(torch.randint(0, 96, (4096, 17))), batch_size=8, shuffle=True)
optim = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
iterator, done, t0 = iter(loader), 0, time.perf_counter()
while True:
    try:
        (tokens,) = next(iterator)
    except StopIteration:
        iterator = iter(loader)
        continue
    optim.zero_grad()
    loss = nn.functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    average_gradients(net)
    optim.step()
    done += 1
    if done == STEPS:
        break
ms = 1000 * (time.perf_counter() - t0) / done
if dist.get_rank() == 0:
    print(f"{done} steps, {ms:.1f} ms a step", flush=True)
dist.barrier()
dist.destroy_process_group()
