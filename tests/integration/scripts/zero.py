"""Data parallelism whose optimizer state is divided: PyTorch's ZeroRedundancyOptimizer, or a stage of DeepSpeed."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, help="of DeepSpeed")
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
inputs = torch.randn(4, 256)
if args.stage is None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    for _ in range(100_000):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
else:
    import deepspeed

    settings = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": args.stage, "stage3_param_persistence_threshold": 0},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    for _ in range(100_000):
        loss = engine(inputs).square().mean()
        engine.backward(loss)
        engine.step()
