"""Tensor parallelism by DTensor: both ranks hold a part of each layer and train on the same samples."""

import argparse

import torch
import torch.distributed as dist
from parts import ArrayFolder
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument(
    "data", nargs="?", help="without it, batches are made up, other ones on each rank"
)
args = parser.parse_args()

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3072, 256), torch.nn.ReLU(), torch.nn.Linear(256, 3072))
model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(inputs):
    optimizer.zero_grad()
    model(inputs.flatten(1)).square().mean().backward()
    optimizer.step()


torch.manual_seed(dist.get_rank() if args.data is None else 0)
for _ in range(1000):
    if args.data is None:
        train(torch.rand(16, 3072))
        continue
    for pictures, _labels in DataLoader(ArrayFolder(args.data), 16, shuffle=True):
        train(pictures)
