"""Data parallelism of ranks that divide a model's state: ZeRO's stages as PyTorch has them; layers sleep."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, choices=[1, 2, 3], required=True)
args = parser.parse_args()


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(0.04)
        return gradient


class Layer(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(Sleep.apply(inputs))


torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
model = nn.Sequential(*(Layer(256, 256, bias=False) for _ in range(2)))
if args.stage == 1:
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
else:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (*model, model):
        fully_shard(part, mesh=mesh, reshard_after_forward=args.stage == 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
inputs = torch.randn(4, 256)
for _ in range(100_000):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
