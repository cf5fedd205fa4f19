"""Two models, two optimizers: the critic steps twice for each step of the generator; no variable holds the loader."""

import sys

import torch
import torch.distributed as dist
from parts import SIDE, ArrayFolder
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

PIXELS = 3 * SIDE * SIDE

dist.init_process_group("gloo")
generator = DistributedDataParallel(
    nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, PIXELS))
)
critic = DistributedDataParallel(
    nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, 1))
)
of_generator = torch.optim.Adam(generator.parameters())
of_critic = torch.optim.Adam(critic.parameters())

for _ in range(1000):
    for number, (pictures, _) in enumerate(
        DataLoader(ArrayFolder(sys.argv[1]), 16, shuffle=True, num_workers=1)
    ):
        fake = generator(torch.randn(len(pictures), 16))
        of_critic.zero_grad()
        both = critic(torch.cat([pictures.flatten(1), fake.detach()]))
        truth = torch.cat([torch.ones(len(pictures), 1), torch.zeros(len(pictures), 1)])
        bce(both, truth).backward()
        of_critic.step()
        if number % 2 == 1:
            of_generator.zero_grad()
            bce(critic(fake), torch.ones(len(pictures), 1)).backward()
            of_generator.step()
