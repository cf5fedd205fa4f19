"""Trains an emulated model: ordinary code of DDP or FSDP2, whose right profile is known beforehand.

Run as ``python -m stash.lab.testbed.train_emulated --model model.yaml --batch 8`` or under torchrun. Knows nothing of
Stash's measuring: no hooks, no timers.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from stash.core import pagecache
from stash.core.errors import UserError
from stash.lab.testbed.accelerator import (
    KINDS,
    EmulatedModel,
    EmulatedOptimizer,
    PacedExchange,
    go_first,
    paced_hook,
    sharpen_sleep,
)
from stash.lab.testbed.emulation import Emulation, load
from stash.lab.training import exit_code, repeat_epochs

EPOCH_BATCHES = 1000
LOG_EVERY = 50


FAULTS = ("prep", "forward", "backward", "optimizer", "exchange")


class Fault(NamedTuple):
    """What goes wrong on one rank, or on all (-1), from one step on, until before another."""

    rank: int
    what: str
    """One of ``FAULTS``; the ``exchange`` is that of set time, and each of its buckets."""
    first: int
    last: int
    seconds: float
    """That it takes longer, a step."""


def delay_at(faults: Sequence[Fault], rank: int, what: str, step: int) -> float:
    """Seconds that it takes a rank longer at that step."""
    return sum(
        fault.seconds
        for fault in faults
        if fault.what == what and fault.rank in (rank, -1) and fault.first <= step < fault.last
    )


class EmulatedSamples(Dataset[Tensor]):
    """Samples that take a set time to make; from files, if there are any, which take longer when not cached."""

    def __init__(
        self,
        emulation: Emulation,
        batch: int,
        count: int,
        files: Sequence[Path] = (),
        late: Callable[[int], float] = lambda batch: 0.0,
    ) -> None:
        self._late = late
        self._made = 0
        self._prep = emulation.prep_seconds / batch
        self._read = emulation.read_seconds / batch
        self._files = [str(path) for path in files]
        self._count = count

    def __len__(self) -> int:
        return len(self._files) or self._count

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        """A whole batch at once, so that its delay is one sleep, which begins once its files are open.

        Whoever watches files being opened takes time then, which the sleep must not make up for.
        """
        sharpen_sleep()
        self._made += 1
        paths = [self._files[index] for index in indices] if self._files else []
        with ExitStack() as stack:
            files = [stack.enter_context(open(path, "rb", buffering=0)) for path in paths]
            deadline = time.monotonic() + self._prep * len(indices) + self._late(self._made)
            deadline += self._read * sum(not _read_cached(file.fileno()) for file in files)
        time.sleep(max(0.0, deadline - time.monotonic()))
        return [torch.full((1,), float(index % KINDS)) for index in indices]

    def __getitem__(self, index: int) -> Tensor:
        return self.__getitems__([index])[0]


def _read_cached(descriptor: int) -> bool:
    """Read a whole file; True if all of it was in the page cache.

    That is asked first: a read that is not to wait (RWF_NOWAIT) begins to read ahead, and has from a fast disk what
    was not there.
    """
    size = os.fstat(descriptor).st_size
    found = pagecache.resident_pages(descriptor, size, layered=True)
    if found is None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        raise UserError(
            f"{path}: only its owner can see whether it is cached; copy --data, so that it is yours"
        )
    os.preadv(descriptor, [bytearray(size)], 0)
    return found[0] * pagecache.PAGE >= size


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the command line says; prints a user's mistake in one sentence and returns an exit code."""
    options = _parser().parse_args(arguments)
    go_first()
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    emulation = load(options.model).scale(options.size_scale, options.time_scale)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    try:
        train(emulation, options)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def train(emulation: Emulation, options: argparse.Namespace) -> None:
    """Train until ``--steps`` optimizer steps are done, or for ever."""
    rank = int(os.environ.get("RANK", "0"))
    step = 0

    def late(what: str) -> float:
        return delay_at(options.fault, rank, what, step)

    loader = make_loader(emulation, options, rank)
    emulated = EmulatedModel(emulation, rank, late)
    model, synchronise = parallel(emulated, emulation, options, late)
    optimizer = EmulatedOptimizer(
        emulated.parameters(), emulated.queue, emulation.optimizer_seconds, late
    )
    batches = repeat_epochs(loader)
    began = time.monotonic()
    for step in itertools.count(1):
        optimizer.zero_grad(set_to_none=True)
        for left in reversed(range(options.accumulate)):
            batch = next(batches)
            with synchronise(not left):
                model(batch).sum().backward()
        optimizer.step()
        last = step == options.steps
        if rank == 0 and (last or step % LOG_EVERY == 0):
            print(
                f"step {step}  {1000 * (time.monotonic() - began) / step:.2f} ms per step",
                flush=True,
            )
        if last:
            break


def parallel(
    emulated: EmulatedModel,
    emulation: Emulation,
    options: argparse.Namespace,
    late: Callable[[str], float],
) -> tuple[nn.Module, Callable[[bool], AbstractContextManager[None]]]:
    """The model as ranks train it, and what its passes are in, told whether the backward pass exchanges.

    Raises UserError for an exchange of set time of shards, which only buckets have.
    """
    if not dist.is_initialized():
        return emulated, lambda exchanges: nullcontext()
    if options.parallel == "fsdp2":
        if emulation.exchange is not None:
            raise UserError(
                "an exchange of set time is of buckets: leave it out of the model, or use --parallel ddp"
            )
        from torch.distributed.fsdp import fully_shard

        for layer in emulated.layers:
            fully_shard(layer)
        sharded: Any = fully_shard(emulated)

        def synchronise(exchanges: bool) -> AbstractContextManager[None]:
            sharded.set_requires_gradient_sync(exchanges)
            return nullcontext()

        return sharded, synchronise
    ddp = DistributedDataParallel(emulated, bucket_cap_mb=options.bucket_mb)
    if emulation.exchange is not None:
        ddp.register_comm_hook(PacedExchange(emulation.exchange, late), paced_hook)
    return ddp, lambda exchanges: nullcontext() if exchanges else ddp.no_sync()


def make_loader(emulation: Emulation, options: argparse.Namespace, rank: int) -> DataLoader[Tensor]:
    """This rank's share of the samples; raises UserError if there are too few files, or none to read slowly."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    files = (
        sorted(path for path in options.data.rglob("*") if path.is_file()) if options.data else []
    )
    if options.data and len(files) // world < options.batch:
        raise UserError(
            f"--data {options.data} holds {len(files)} files, too few for {world} batches of {options.batch}"
        )
    if emulation.read_seconds and not files:
        raise UserError(
            "read_seconds needs files to read: say where with --data, or leave it out of the model"
        )
    share = max(1, options.workers)  # each worker makes one batch in so many

    def late(made: int) -> float:
        return delay_at(options.fault, rank, "prep", made * share // options.accumulate)

    data = EmulatedSamples(
        emulation, options.batch, EPOCH_BATCHES * options.batch * world, files, late
    )
    sampler: DistributedSampler[Tensor] = DistributedSampler(data, world, rank, drop_last=True)
    return DataLoader(
        data,
        options.batch,
        sampler=sampler,
        num_workers=options.workers,
        drop_last=True,
        persistent_workers=options.workers > 0,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stash.lab.testbed.train_emulated", description="Train an emulated model."
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="its description in YAML")
    add("--size-scale", type=_size, default=1.0, help="all its bytes times this (links alike)")
    add("--time-scale", type=_size, default=1.0, help="all its times times this")
    add("--data", type=Path, help="a folder of files, one sample each (default: no files)")
    add("--batch", type=_whole(1), default=8, help="samples per rank and batch (default 8)")
    add("--accumulate", type=_whole(1), default=1, help="batches to a step, exchanged once")
    add("--workers", type=_whole(0), default=0, help="loader processes per rank (default 0)")
    add("--steps", type=_whole(1), help="optimizer steps to take (default: until interrupted)")
    add("--bucket-mb", type=_size, help="MiB of all of DDP's buckets (default: 1, then 25)")
    add("--parallel", choices=("ddp", "fsdp2"), default="ddp", help="replicas, or layers' shards")
    add(
        "--fault",
        type=_fault,
        action="append",
        default=[],
        help="RANK:WHAT:FROM:TO:SECONDS: slow one rank's (-1: every rank's) "
        f"{', '.join(FAULTS)} from a step until before another",
    )
    return parser


def _fault(text: str) -> Fault:
    rank, what, first, last, seconds = text.split(":")
    if what not in FAULTS:
        raise argparse.ArgumentTypeError(f"{what} is none of {', '.join(FAULTS)}")
    return Fault(int(rank), what, int(first), int(last), float(seconds))


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if (number := int(text)) < least:
            raise argparse.ArgumentTypeError(f"it must be at least {least}")
        return number

    return read


def _size(text: str) -> float:
    if not 0 < (number := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError("it must be more than 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
