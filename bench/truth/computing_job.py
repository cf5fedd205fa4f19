"""A training script that really computes and times itself: ``computing_job.py KIND SECONDS [WITHOUT]`` prints JSON.

Its own stopwatch says what each part of the run took, in seconds of a step, over all epochs but the first. WITHOUT
is what another such run leaves out: ``input`` trains on the batches of the first epoch again and again, ``restarts``
keeps workers from epoch to epoch, ``exchange`` adds up no gradients of ranks. Of several ranks the first prints.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

WIDTH, CLASSES = 256, 10


def make_perceptron():
    layers = [module for _ in range(4) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


def make_convolutions():
    layers = [
        module
        for _ in range(3)
        for module in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    ]
    return nn.Sequential(
        nn.Unflatten(1, (1, 16, 16)),
        nn.Conv2d(1, 8, 3),
        *layers,
        nn.Flatten(),
        nn.LazyLinear(CLASSES),
    )


def make_many_layers():
    return nn.Sequential(*(nn.Linear(32, 32) for _ in range(120)), nn.Linear(32, CLASSES))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 96, batch_first=True), nn.Linear(96, CLASSES)

    def forward(self, x):
        return self.head(self.lstm(x.view(len(x), -1, 16))[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = (
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
            nn.Linear(32, CLASSES),
        )

    def forward(self, x):
        return self.head(self.encoder(x.view(len(x), -1, 32)).mean(1))


class Lookup(nn.Module):
    """A large table of which a batch looks up a few rows."""

    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(20_000, 64, sparse=True)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.head(self.table((x[:, :32].abs() * 1e4).long() % 20_000))


class Rivals(nn.Module):
    """A generator and what tells its samples from real ones."""

    def __init__(self):
        super().__init__()
        self.makes = nn.Sequential(nn.Linear(32, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.tells = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, x):
        return self.tells(x)


def play_rivals(model, optimizer, batch):
    tell, make = optimizer
    noise = torch.randn(len(batch[0]), 32)
    made = model.makes(noise)
    loss = nn.functional.softplus(model.tells(made.detach())) + nn.functional.softplus(
        -model.tells(batch[0])
    )
    tell.zero_grad()
    loss.mean().backward()
    tell.step()
    make.zero_grad()
    nn.functional.softplus(-model.tells(made)).mean().backward()
    make.step()


@dataclass(frozen=True)
class Kind:
    """A job; counts are of steps, seconds of hashing on an idle core of this machine, roughly."""

    model: Callable[[], nn.Module] = make_perceptron
    optimizer: str = "SGD"
    batch: int = 32
    width: int = WIDTH
    epoch: int = 40
    workers: int = 0
    keeps_workers: bool = True
    sample: int = 0
    """Blocks of 64 KiB that are hashed for each sample."""
    slow_every: int = 0
    """One sample of so many takes 40 times as long."""
    varies: bool = False
    """Batches are of unlike lengths."""
    streams: bool = False
    after: int = 0
    """Blocks hashed by the loop after a step; ``before``: before it."""
    before: int = 0
    evaluation: int = 0
    """Batches evaluated at an epoch's end."""
    checkpoint: int = 0
    """Steps between two."""
    accumulate: int = 1
    clips: bool = False
    ranks: int = 1
    by_chance: bool = False
    """Samples come in random order, and lengths are by chance."""
    learns: Callable[[nn.Module, Any, Any], None] | None = None
    """Another way to learn from a batch."""


KINDS = {
    "only computes": Kind(),
    "convolutions": Kind(make_convolutions, "Adam"),
    "recurrent": Kind(Recurrent, "Adam"),
    "attention": Kind(Attention, "AdamW"),
    "lengths that vary": Kind(Attention, varies=True),
    "many layers, clipped": Kind(make_many_layers, "Adam", width=32, clips=True),
    "LBFGS": Kind(optimizer="LBFGS", epoch=20),
    "accumulates": Kind(accumulate=4, sample=1),
    "prepares itself": Kind(sample=2),
    "one slow sample in forty": Kind(sample=1, slow_every=40),
    "two workers": Kind(sample=4, workers=2),
    "two workers that compete": Kind(sample=1, workers=2, batch=64),
    "a stream": Kind(sample=1, streams=True),
    "a stream of workers": Kind(sample=4, streams=True, workers=2),
    "epochs of five steps": Kind(epoch=5, workers=2, keeps_workers=False),
    "validates": Kind(sample=1, evaluation=20),
    "saves every 20 steps": Kind(
        lambda: nn.Sequential(nn.Linear(WIDTH, 8192), nn.Linear(8192, CLASSES)), checkpoint=20
    ),
    "measures after steps": Kind(after=60),
    "augments in the loop": Kind(before=40, sample=1),
    "two ranks": Kind(ranks=2),
    "two ranks of many layers": Kind(make_many_layers, width=32, ranks=2),
    "rivals": Kind(Rivals, "Adam", learns=play_rivals),
    "sparse rows": Kind(Lookup, batch=64, sample=1),
    "lengths by chance": Kind(Attention, "AdamW", varies=True, by_chance=True, epoch=60, batch=12),
    "short steps": Kind(lambda: nn.Linear(WIDTH, CLASSES), batch=16, epoch=200),
}


def hash_blocks(count):
    for _ in range(count):
        hashlib.sha256(BLOCK).digest()


BLOCK = bytes(1 << 16)


def make_sample(kind, index):
    slow = kind.slow_every and index % kind.slow_every == 0
    hash_blocks(kind.sample * (40 if slow else 1))
    generator = np.random.default_rng(index)
    return torch.from_numpy(generator.standard_normal(kind.width, np.float32)), index % CLASSES


class Samples(Dataset[Any]):
    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return self.kind.epoch * self.kind.batch * self.kind.accumulate

    def __getitem__(self, index):
        return make_sample(self.kind, index)


class Stream(IterableDataset[Any]):
    def __init__(self, kind):
        self.kind = kind

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return (
            make_sample(self.kind, index)
            for index in range(first, self.kind.epoch * self.kind.batch, step)
        )


def lengthen(kind, batch):
    """The batch as it is trained on: some are several times as long."""
    if not kind.varies:
        return batch
    times = 1 + int(batch[1][0]) % 8
    if kind.by_chance:
        times = max(1, (1 + int(batch[0][0, 0].abs() * 1e4) % 16) ** 3 // 200)
    return [batch[0].repeat(1, times), batch[1]]


class Stopwatch:
    """Seconds by row; whatever passes between two laps is the second one's.

    ``alone``: without what the training thread waited for a core, which only other work on the machine can make it
    wait for in a job of one thread.
    """

    def __init__(self, alone=False):
        self.seconds: collections.Counter[str] = collections.Counter()
        self.delays = os.open("/proc/thread-self/schedstat", os.O_RDONLY) if alone else None
        self.since = self.read_clock()

    def read_clock(self):
        now = time.perf_counter()
        if self.delays is None:
            return now
        return now - 1e-9 * int(os.pread(self.delays, 100, 0).split()[1])

    def lap(self, row):
        now = self.read_clock()
        self.seconds[row] += now - self.since
        self.since = now


NEVER_DONE = {"tolerance_grad": 0.0, "tolerance_change": 0.0}
"""Of LBFGS: its steps would be shorter and shorter, the longer a run has learnt."""


def make_optimizer(kind, model):
    if isinstance(model, Rivals):
        return [torch.optim.Adam(part.parameters(), 1e-4) for part in (model.tells, model.makes)]
    settings = {"lr": 1e-3}
    if kind.optimizer == "LBFGS":
        settings = {"lr": 0.1, "max_iter": 4, "history_size": 5, **NEVER_DONE}
    return getattr(torch.optim, kind.optimizer)(model.parameters(), **settings)


def update(kind, model, optimizer, batch, last):
    """Learn from a batch; without ``last`` gradients are only added up."""
    x, y = batch
    if kind.learns is not None:
        kind.learns(model, optimizer, batch)
        return

    def loss():
        if kind.accumulate == 1:
            optimizer.zero_grad()
        found = nn.functional.cross_entropy(model(x), y) / kind.accumulate
        found.backward()
        return found

    if kind.optimizer == "LBFGS":
        optimizer.step(loss)
        return
    loss()
    if kind.clips:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if last:
        optimizer.step()
        optimizer.zero_grad()


def exchange_of(model, without):
    """In which a step exchanges what the job exchanges."""
    alone = without == "exchange" and isinstance(model, nn.parallel.DistributedDataParallel)
    return model.no_sync() if alone else nullcontext()


def evaluate(model, batches):
    model.eval()
    with torch.no_grad():
        for batch in batches:
            model(batch[0])
    model.train()


def goes_on(kind, wants):
    """Whether all ranks do; they agree between epochs."""
    if kind.ranks == 1:
        return wants
    every = torch.tensor(float(wants))
    torch.distributed.all_reduce(every, torch.distributed.ReduceOp.MIN)
    return bool(every)


def train(kind, seconds, without=""):
    """Train for so long after a first epoch: steps, and seconds of a step by row."""
    if without == "restarts":
        kind = replace(kind, keeps_workers=True)
    model = kind.model()
    model(torch.zeros(2, kind.width))
    if kind.ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer, keeps = make_optimizer(kind, model), kind.workers > 0 and kind.keeps_workers
    data = Stream(kind) if kind.streams else Samples(kind)
    loader = DataLoader(
        data,
        kind.batch,
        num_workers=kind.workers,
        persistent_workers=keeps,
        shuffle=kind.by_chance,
    )
    held_out = DataLoader(Samples(kind), kind.batch)
    kept = list(loader) if without == "input" else None
    if kept is not None:
        del loader  # its workers, if they stay
    alone = kind.ranks == 1 and kind.workers == 0
    watch, began = Stopwatch(alone), time.perf_counter()
    batches = epochs = 0
    while epochs < 2 or goes_on(kind, time.perf_counter() - began < seconds):
        if epochs == 1:
            watch, began, batches = Stopwatch(alone), time.perf_counter(), 0
        watch.lap("epoch end")
        iterator = iter(kept if kept is not None else loader)
        batch = next(iterator)
        watch.lap("epoch start")
        while batch is not None:
            batch = lengthen(kind, batch)
            hash_blocks(kind.before)
            watch.lap("loop")
            batches += 1
            with exchange_of(model, without):
                update(kind, model, optimizer, batch, batches % kind.accumulate == 0)
            watch.lap("compute")
            hash_blocks(kind.after)
            watch.lap("loop")
            if kind.checkpoint and batches % kind.checkpoint == 0:
                torch.save({"model": model.state_dict()}, Path("model.pt"))
                watch.lap("checkpoint")
            batch = next(iterator, None)
            watch.lap("input")
        if kind.evaluation:
            evaluate(model, itertools.islice(held_out, kind.evaluation))
            watch.lap("evaluation")
        epochs += 1
    steps = batches // kind.accumulate
    return {"steps": steps, **{row: value / steps for row, value in watch.seconds.items()}}


if __name__ == "__main__":
    rows = train(KINDS[sys.argv[1]], float(sys.argv[2]), *sys.argv[3:])
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(rows), flush=True)
    if KINDS[sys.argv[1]].ranks > 1:
        os._exit(
            0
        )  # gloo's threads abort some exits ("terminate called without an active exception")
