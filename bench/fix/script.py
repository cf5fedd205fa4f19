"""The script of a job of ``bench.fix``, as text: ordinary training of two ranks, with its settings as literals."""

from __future__ import annotations

from collections.abc import Mapping

SCRIPT = '''"""{name}"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--workers", type=int, default={workers})
args = parser.parse_args()
{threads}

class Samples(Dataset):
    """Numbers that take a while to come, by waiting or by work."""

    def __len__(self):
        return {samples}

    def __getitem__(self, index):
        time.sleep({sleep})
        numbers = torch.full(({width},), index / {samples}){noise}
        until = time.process_time() + {busy}
        while time.process_time() < until:
            numbers = numbers.roll(1)
        return numbers, numbers.mean().unsqueeze(0)


dist.init_process_group("gloo")
torch.manual_seed(0)
data = Samples()
loader = DataLoader(
    data,
    batch_size={batch},
    sampler=DistributedSampler(data, drop_last=True),
    num_workers={num_workers},{loader}
)
parts = [part for _ in range({layers}) for part in (nn.Linear({width}, {width}), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*parts, nn.Linear({width}, 1)){ddp})
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9{optimizer})

step, took = 0, []
while step < args.steps:
    optimizer.zero_grad({zero_grad})
    for number, (inputs, targets) in enumerate(loader, 1):
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        if number % {accumulate}:
            continue
        optimizer.step()
        optimizer.zero_grad({zero_grad})
        step += 1{wait}
        took.append(time.monotonic())
        if step == args.steps:
            break
if dist.get_rank() == 0:
    print("seconds a step", (took[-1] - took[len(took) // 4]) / (len(took) - 1 - len(took) // 4))
dist.destroy_process_group()
'''

USUAL: Mapping[str, object] = {
    "workers": 1,
    "threads": "",
    "samples": 200_000,
    "noise": " + 0.1 * torch.randn({width})",
    "sleep": 0.0,
    "busy": 0.0,
    "batch": 8,
    "num_workers": "args.workers",
    "loader": "",
    "layers": 4,
    "width": 256,
    "ddp": "",
    "optimizer": "",
    "zero_grad": "",
    "accumulate": 1,
    "wait": "",
}


def text(name: str, **settings: object) -> str:
    """The script of that name, usual but for these settings."""
    values = {**USUAL, "name": name, **settings}
    return SCRIPT.format(**{**values, "noise": str(values["noise"]).format(**values)})
