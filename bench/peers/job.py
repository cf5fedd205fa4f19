"""An ordinary data-parallel training script, as a user might have written it; the model takes known times.

Started by torchrun. Prints how long its steps take, as such scripts do. Knows nothing of any tool that may watch it.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from stash.lab.testbed.accelerator import EmulatedModel, EmulatedOptimizer, go_first
from stash.lab.testbed.emulation import load
from stash.lab.testbed.train_emulated import Samples

parser = argparse.ArgumentParser()
parser.add_argument("--model", type=Path, required=True)
parser.add_argument("--data", type=Path)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--steps", type=int, default=10**9)


def main():
    options = parser.parse_args()
    go_first()  # as real accelerators, which do not share the cores, would
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    emulation = load(options.model)
    torch.manual_seed(0)

    files = sorted(options.data.iterdir()) if options.data else []
    data = Samples(emulation, options.batch, 1000 * options.batch * world, files)
    sampler = DistributedSampler(data, world, rank)
    loader = DataLoader(
        data, options.batch, sampler=sampler, num_workers=1, drop_last=True, persistent_workers=True
    )

    network = EmulatedModel(emulation, rank)
    model = DistributedDataParallel(network)
    optimizer = EmulatedOptimizer(network.parameters(), network.queue, emulation.optimizer_seconds)

    seconds, last = [], time.perf_counter()
    for epoch in range(1000):
        sampler.set_epoch(epoch)
        for inputs in loader:
            optimizer.zero_grad()
            loss = model(inputs).sum()
            loss.backward()
            optimizer.step()
            now = time.perf_counter()
            seconds.append(now - last)
            last = now
            if rank == 0 and len(seconds) % 10 == 0:
                print(f"step {len(seconds)}: {1000 * sum(seconds[-10:]) / 10:.1f} ms", flush=True)
            if len(seconds) == options.steps:
                break
        if len(seconds) == options.steps:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    assert "RANK" in os.environ, "start it with torchrun"
    main()
