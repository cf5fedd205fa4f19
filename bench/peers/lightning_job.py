"""The same training as ``job.py``, as somebody who uses Lightning would have written it.

Same model, same data, same options. Knows nothing of any tool that may watch it.
"""

import argparse
import json
import os
import time
from pathlib import Path

import lightning
from torch.utils.data import DataLoader

from stash.lab.testbed.accelerator import EmulatedModel, EmulatedOptimizer, go_first
from stash.lab.testbed.emulation import load
from stash.lab.testbed.train_emulated import Samples

parser = argparse.ArgumentParser()
parser.add_argument("--model", type=Path, required=True)
parser.add_argument("--data", type=Path)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--steps", type=int, default=10**9)
parser.add_argument("--times", type=Path)


class Network(lightning.LightningModule):
    def __init__(self, emulation, rank):
        super().__init__()
        self.emulation, self.network = emulation, EmulatedModel(emulation, rank)
        self.moments = [time.perf_counter()]

    def training_step(self, batch, index):
        return self.network(batch).sum()

    def on_train_batch_end(self, *_):
        self.moments.append(time.perf_counter())

    def configure_optimizers(self):
        return EmulatedOptimizer(self.network.parameters(), self.network.queue, self.emulation.optimizer_seconds)


def main():
    options = parser.parse_args()
    go_first()  # as real accelerators, which do not share the cores, would
    emulation = load(options.model)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    files = sorted(options.data.iterdir()) if options.data else []
    data = Samples(emulation, options.batch, 1000 * options.batch * world, files)
    loader = DataLoader(
        data, options.batch, shuffle=True, num_workers=1, drop_last=True, persistent_workers=True
    )  # fmt: skip
    module = Network(emulation, rank)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=local,
        num_nodes=world // local,
        strategy="ddp",
        max_steps=options.steps,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(module, loader)
    if options.times and rank == 0:
        pairs = zip(module.moments, module.moments[1:], strict=False)
        options.times.write_text(json.dumps([after - before for before, after in pairs]))


if __name__ == "__main__":
    main()
