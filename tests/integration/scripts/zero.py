"""Data parallelism of ranks that divide a model's state: ZeRO's stages, of PyTorch or of DeepSpeed; layers sleep."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from stash.lab.testbed.accelerator import go_first

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, choices=[1, 2, 3], required=True)
parser.add_argument("--deepspeed", action="store_true", help="its ZeRO and not PyTorch's")
parser.add_argument("--width", type=int, default=256)
parser.add_argument(
    "--seconds",
    type=float,
    default=0.02,
    help="of a layer's forward pass; backward takes twice that",
)
parser.add_argument(
    "--steps", type=int, help="train so many, print the mean of all but the first two, and end"
)
args = parser.parse_args()


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        time.sleep(args.seconds)
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * args.seconds)
        return gradient


class Layer(nn.Linear):
    def forward(self, inputs):
        return super().forward(Sleep.apply(inputs))


def of_deepspeed(model, inputs):
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")
    sharding = {"stage": args.stage, "stage3_param_persistence_threshold": 0}
    adam = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}
    config = {
        "train_micro_batch_size_per_gpu": len(inputs),
        "zero_optimization": sharding,
        "optimizer": adam,
    }
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )

    def step():
        engine.backward(engine(inputs).square().mean())
        engine.step()

    return step


def of_pytorch(model, inputs):
    dist.init_process_group("gloo")
    if args.stage == 1:
        model = nn.parallel.DistributedDataParallel(model)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    else:
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in (*model, model):
            fully_shard(part, mesh=mesh, reshard_after_forward=args.stage == 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


go_first()
torch.set_num_threads(1)
torch.manual_seed(0)
layers = nn.Sequential(*(Layer(args.width, args.width, bias=False) for _ in range(2)))
samples = torch.randn(4, args.width)
step = of_deepspeed(layers, samples) if args.deepspeed else of_pytorch(layers, samples)
took = []
for _ in range(args.steps or 100_000):
    began = time.perf_counter()
    step()
    took.append(time.perf_counter() - began)
if args.steps and dist.get_rank() == 0:
    print("a step takes", sum(took[2:]) / len(took[2:]), "by", *(f"{each:.3f}" for each in took))
