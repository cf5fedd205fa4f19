"""A pipeline of PyTorch's own: a stage on each rank, eight microbatches, forward and backward passes in turn."""

import sys
import time

import torch
import torch.distributed as dist
from parts import ArrayFolder
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils.data import DataLoader

STAGE_SECONDS = 0.002


class Stage(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(STAGE_SECONDS)
        return self.layer(inputs)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
stage = PipelineStage(Stage(), rank, world, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.01)

for _ in range(1000):
    for pictures, _labels in DataLoader(ArrayFolder(sys.argv[1]), 16, drop_last=True):
        optimizer.zero_grad()
        inputs = pictures[:, 0, 0].clone()
        if rank == 0:
            schedule.step(inputs)
        elif rank == world - 1:
            schedule.step(target=inputs)
        else:
            schedule.step()
        optimizer.step()
