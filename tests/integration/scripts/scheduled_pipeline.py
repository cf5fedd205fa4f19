"""A pipeline of PyTorch's own, whose stages sleep: how long each takes, and so what must be idle, is known.

With ``--width`` messages are large, and so late. An interleaved schedule has two stages on each rank.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

from stash.lab.testbed.accelerator import go_first

parser = argparse.ArgumentParser()
parser.add_argument("--schedule", default="Schedule1F1B")
parser.add_argument("--microbatches", type=int, default=8)
parser.add_argument("--slow", type=int, help="stage that takes twice as long")
parser.add_argument(
    "--seconds",
    type=float,
    default=0.01,
    help="of a forward pass; a backward pass takes twice that",
)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--layers", help="of each stage, like 6,2: each of them takes --seconds")
parser.add_argument(
    "--steps", type=int, help="train so many, print the mean of all but the first two, and end"
)
args = parser.parse_args()


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.seconds)
        return gradient, None


class Stage(torch.nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.seconds = seconds

    def forward(self, inputs):
        return Sleep.apply(inputs * self.scale, self.seconds)


def stage_of(number):
    if args.layers:
        layers = int(args.layers.split(",")[number])
        return torch.nn.Sequential(*(Stage(args.seconds) for _ in range(layers)))
    return Stage(args.seconds * (2 if number == args.slow else 1))


go_first()
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
kind = getattr(schedules, args.schedule)
several = issubclass(kind, schedules.PipelineScheduleMulti)
count = 2 * world if several else world
stages = [
    PipelineStage(stage_of(number), number, count, torch.device("cpu"))
    for number in range(rank, count, world)
]
loss = torch.nn.functional.mse_loss
schedule = kind(stages if several else stages[0], n_microbatches=args.microbatches, loss_fn=loss)
optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=0.01)
inputs = torch.ones(args.microbatches, args.width)

began = []
for _ in range(args.steps or 100_000):
    began.append(time.perf_counter())
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(inputs)
    elif rank == world - 1:
        schedule.step(target=inputs)
    else:
        schedule.step()
    optimizer.step()
if args.steps and rank == 0:
    print("a step takes", (began[-1] - began[2]) / (len(began) - 3))
