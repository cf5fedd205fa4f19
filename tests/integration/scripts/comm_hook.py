"""A communication hook of the user's own choice; with fp16 on a model with a branch that DDP finds unused.

PowerSGD and unused parameters together fail on gloo by themselves.
"""

import argparse

from ddp import begin, share, step
from parts import CLASSES, ArrayFolder, network
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook


class Forked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = network()
        self.taken = nn.Linear(CLASSES, CLASSES)
        self.unused = nn.Linear(CLASSES, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.taken(self.trunk(pictures))


parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--hook", choices=["fp16", "powersgd"], default="fp16")
args = parser.parse_args()

if args.hook == "fp16":
    model, optimizer = begin(Forked(), find_unused_parameters=True)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
else:
    model, optimizer = begin(network())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=5)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

loader = share(ArrayFolder(args.data))
for _ in range(1000):
    for pictures, labels in loader:
        step(model, optimizer, pictures, labels)
