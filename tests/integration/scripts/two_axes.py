"""Tensor and data groups of a 2 x 2 mesh that exchange set bytes by hand, one of a step's three beside work."""

import argparse
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from stash.lab.testbed.accelerator import go_first

parser = argparse.ArgumentParser()
parser.add_argument(
    "--activations",
    type=int,
    default=4000,
    help="bytes of each of the tensor groups' two exchanges",
)
parser.add_argument(
    "--gradients", type=int, default=4000, help="bytes of the data groups' exchange"
)
parser.add_argument(
    "--seconds", type=float, default=0.2, help="of work, once before and once beside an exchange"
)
parser.add_argument(
    "--apart", action="store_true", help="tensor groups are of ranks that are no neighbours"
)
args = parser.parse_args()

go_first()
torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "dp") if args.apart else ("dp", "tp"))
tensor, data = mesh.get_group("tp"), mesh.get_group("dp")
weight = torch.nn.Parameter(distribute_tensor(torch.ones(8), mesh["tp"], [Shard(0)]))
optimizer = torch.optim.SGD([weight], lr=1e-3)
activations, gradients = torch.ones(args.activations // 4), torch.ones(args.gradients // 4)

for _ in range(100_000):
    optimizer.zero_grad()
    time.sleep(args.seconds)
    dist.all_reduce(activations, group=tensor)
    work = dist.all_reduce(activations, group=tensor, async_op=True)
    time.sleep(args.seconds)
    work.wait()
    weight.to_local().square().sum().backward()
    dist.all_reduce(gradients, group=data)
    optimizer.step()
    activations.fill_(1.0)
    gradients.fill_(1.0)
