"""A sharded model: FullyShardedDataParallel, or its successor fully_shard."""

import argparse

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--api", type=int, choices=[1, 2], default=2)
parser.add_argument("--global-batch", type=int, help="samples of all ranks together")
args = parser.parse_args()

dist.init_process_group("gloo")
dataset = ArrayFolder(args.data)
batch = args.global_batch // dist.get_world_size() if args.global_batch else 16
loader = DataLoader(dataset, batch, sampler=DistributedSampler(dataset))
model = network()
if args.api == 1:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(1000):
    for pictures, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
