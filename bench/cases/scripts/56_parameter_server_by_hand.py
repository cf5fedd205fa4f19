"""Rank 0 is a parameter server of plain sends and receives: each step all gradients go there and the whole model comes back.

Seen in: course projects and small research code written after the first tutorials on torch.distributed (forum threads
"send/recv of the model is slower than computing", "my parameter server does not scale").
Symptom: two processes are slower than one; both cores are half idle; the worker's time is all in `dist.recv`.
Cause: 15 million parameters, 60 MB, are sent tensor by tensor and blocking, up as gradients and down as weights, in each step
of a small batch; between them the server alone runs the optimizer and everybody else waits for it.
Planted: sends and receives of about 90 ms in steps of about 150 ms; more on the worker, which also waits for the optimizer.
Remedy: train locally and average the weights every 25 steps (FIXED=1); also: DistributedDataParallel, larger batches.
Run: torchrun --standalone --nproc-per-node 2 56_parameter_server_by_hand.py
"""
import argparse
import itertools
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, inputs=1024, classes=100):
        super().__init__()
        self.fc1 = nn.Linear(inputs, 2048)
        self.fc2 = nn.Linear(2048, 3072)
        self.fc3 = nn.Linear(3072, 2048)
        self.fc4 = nn.Linear(2048, classes)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        x = F.relu(self.fc3(x))
        return self.fc4(x)


class Server:
    """Lives on rank 0, which trains as well."""

    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer
        self.workers = range(1, dist.get_world_size())
        self.inbox = [torch.empty_like(p) for p in net.parameters()]

    def update(self):
        for worker in self.workers:
            for p, buffer in zip(self.net.parameters(), self.inbox):
                dist.recv(buffer, src=worker)
                p.grad.add_(buffer)
        for p in self.net.parameters():
            p.grad.div_(1 + len(self.workers))
        self.optimizer.step()
        for worker in self.workers:
            for p in self.net.parameters():
                dist.send(p.data, dst=worker)


class Worker:
    def __init__(self, net):
        self.net = net

    def update(self):
        for p in self.net.parameters():
            dist.send(p.grad.contiguous(), dst=0)
        for p in self.net.parameters():
            dist.recv(p.data, src=0)


class Local:
    """Everybody has an optimizer; weights are averaged now and then."""

    def __init__(self, net, optimizer, every):
        self.net, self.optimizer, self.every, self.steps = net, optimizer, every, 0

    def update(self):
        self.optimizer.step()
        self.steps += 1
        if self.steps % self.every == 0:
            for p in self.net.parameters():
                dist.all_reduce(p.data)
                p.data.div_(dist.get_world_size())


def start_equal(net):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)


def make_role(net, args):
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    if os.environ.get("FIXED"):
        return Local(net, optimizer, args.average_every)
    return Server(net, optimizer) if dist.get_rank() == 0 else Worker(net)


def train(args):
    rank = dist.get_rank()
    torch.manual_seed(rank)
    data = TensorDataset(torch.randn(3200, 1024), torch.randint(0, 100, (3200,)))
    endless = itertools.chain.from_iterable(itertools.repeat(DataLoader(data, args.batch_size, shuffle=True)))
    net = Net()
    start_equal(net)
    role = make_role(net, args)
    dist.barrier()
    begin = time.perf_counter()
    for step, (x, y) in enumerate(itertools.islice(endless, args.steps), 1):
        net.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        role.update()
        if rank == 0 and step % 100 == 0:
            print(f"{step}: loss {loss.item():.4f}", flush=True)
    took = time.perf_counter() - begin
    if rank == 0:
        print(f"steps {args.steps}, seconds a step {took / args.steps:.4f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="asynchronous some day, synchronous for now")
    parser.add_argument("--steps", type=int, default=int(os.environ.get("STEPS", 260)))
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--average-every", type=int, default=25)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    train(args)
    dist.destroy_process_group()
