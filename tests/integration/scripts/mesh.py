"""FSDP2 and tensor parallelism over a mesh of two axes; layers sleep, so that only waits take the rest of a step.

A step has as many samples whatever the mesh, and each rank sleeps as long: its part of the work is the same.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from stash.lab.testbed.accelerator import go_first

parser = argparse.ArgumentParser()
parser.add_argument(
    "--seconds", type=float, default=0.02, help="of each layer's forward pass; backward takes twice that"
)
parser.add_argument("--slow", type=int, help="rank that takes half as long again")
parser.add_argument("--tensor", type=int, default=2, help="ranks that share a layer")
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--hidden", type=int, default=512, help="features between a layer's products")
parser.add_argument("--samples", type=int, default=32, help="of all replicas together")
parser.add_argument("--steps", type=int, help="train so many, print the mean of all but the first two, and end")
args = parser.parse_args()


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        time.sleep(seconds)
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple:
        time.sleep(2 * ctx.seconds)
        return gradient, None


class Layer(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(args.width, args.hidden), torch.nn.Linear(args.hidden, args.width)
        self.seconds = seconds

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(Sleep.apply(inputs, self.seconds)))


go_first()
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world // args.tensor, args.tensor), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = torch.nn.Sequential(*(Layer(args.seconds * (1.5 if rank == args.slow else 1)) for _ in range(2)))
for layer in model:
    parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(layer, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
inputs = torch.randn(args.samples * args.tensor // world, args.width)

took = []
for _ in range(args.steps or 100_000):
    began = time.perf_counter()
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    took.append(time.perf_counter() - began)
if args.steps and rank == 0:
    print("a step takes", sum(took[2:]) / len(took[2:]))
