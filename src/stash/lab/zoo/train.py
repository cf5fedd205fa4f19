"""A plain distributed training script for every workload of the zoo: what Stash is pointed at.

Runs as one process (``python -m stash.lab.zoo.train --workload resnet18 --data DIR``) or under torchrun, on
CPUs or GPUs. Knows nothing of Stash beyond the zoo: no hooks, no timers, just a user's training loop.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from stash.core.errors import UserError
from stash.lab.training import exit_code, repeat_epochs
from stash.lab.zoo.feed import LOSSES, Sample, Synthetic, open_feed
from stash.lab.zoo.registry import LONGEST_SEQUENCE, ON_DISK, WorkloadSpec, workload

LOG_EVERY = 50
SYNTHETIC_STEPS, SYNTHETIC_SAMPLES = 1000, 2_000_000
"""The most steps, and about the most samples, of an epoch of synthetic data: the sampler shuffles it all."""


@dataclass(frozen=True)
class Replica:
    """Where this process trains."""

    rank: int
    world: int
    device: torch.device


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the command line says; prints a user's mistake in one sentence and returns an exit code."""
    options = _parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    _check(options)
    replica = join()
    try:
        train(workload(options.workload), options, replica)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def join() -> Replica:
    """Join the job that torchrun (or anything that sets WORLD_SIZE) started, else be a job of one."""
    rank = int(os.environ.get("RANK", "0"))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Replica(rank, world, device)


def train(spec: WorkloadSpec, options: argparse.Namespace, replica: Replica) -> None:
    """Train ``spec`` until ``--steps`` optimizer steps are done, or for ever."""
    torch.manual_seed(0)
    batch = options.batch or spec.batch
    loader = make_loader(spec, options, replica, batch)
    model: nn.Module = spec.build(options.image_size).to(replica.device).train()
    layout = torch.channels_last if options.channels_last else torch.preserve_format
    model = model.to(memory_format=layout)  # type: ignore[call-overload]
    if dist.is_initialized():
        own = [replica.device] if replica.device.type == "cuda" else None
        buckets = {} if options.bucket_mb is None else {"bucket_cap_mb": options.bucket_mb}
        model = DistributedDataParallel(model, device_ids=own, **buckets)
    optimizer = make_optimizer(spec, model)
    amp_type = torch.float16 if replica.device.type == "cuda" else torch.bfloat16
    scaler = torch.amp.GradScaler(
        replica.device.type, enabled=options.amp and amp_type == torch.float16
    )

    started = time.monotonic()
    for step, tensors in enumerate(repeat_epochs(loader), start=1):
        moved = [
            tensor.to(
                replica.device,
                non_blocking=True,
                memory_format=layout if tensor.ndim == 4 else None,
            )
            for tensor in tensors
        ]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(replica.device.type, dtype=amp_type, enabled=options.amp):
            loss = LOSSES[spec.kind](model, moved)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        last = step == options.steps
        if replica.rank == 0 and (last or step % LOG_EVERY == 0):
            speed = step * batch * replica.world / (time.monotonic() - started)
            print(f"step {step}  loss {loss.item():.4f}  {speed:.1f} samples/s", flush=True)
        if last:
            break


def make_loader(
    spec: WorkloadSpec, options: argparse.Namespace, replica: Replica, batch: int
) -> DataLoader[Sample]:
    """A loader of this rank's share of the data; raises UserError if that is less than one batch."""
    feed: Dataset[Sample]
    if options.synthetic:
        together = batch * replica.world
        steps = max(1, min(SYNTHETIC_STEPS, SYNTHETIC_SAMPLES // together))
        feed = Synthetic(spec, steps * together, options.image_size, options.sequence_length)
    else:
        feed = open_feed(spec, options.data, options.image_size, options.sequence_length)
    total = len(feed)  # type: ignore[arg-type]
    if total // replica.world < batch:
        raise UserError(
            f"{options.data} holds {total} samples, too few for a batch of {batch} on each of {replica.world} "
            f"process(es); use a smaller --batch, or more samples from `stash lab dataset make`"
        )
    sampler: DistributedSampler[Sample] = DistributedSampler(
        feed, num_replicas=replica.world, rank=replica.rank, shuffle=True, drop_last=True
    )
    return DataLoader(
        feed,
        batch_size=batch,
        sampler=sampler,
        num_workers=options.workers,
        pin_memory=replica.device.type == "cuda",
        drop_last=True,
        persistent_workers=options.workers > 0,
    )


def make_optimizer(spec: WorkloadSpec, model: nn.Module) -> torch.optim.Optimizer:
    """SGD with momentum for convolutional models, AdamW for transformers."""
    if spec.kind == "text":
        return torch.optim.AdamW(model.parameters(), lr=spec.lr)
    return torch.optim.SGD(model.parameters(), lr=spec.lr, momentum=0.9, weight_decay=1e-4)


def _check(options: argparse.Namespace) -> None:
    spec = workload(options.workload)
    if options.data is None and not options.synthetic:
        if spec.kind not in ON_DISK:
            raise UserError(f"{spec.name} trains on samples in memory only; use --synthetic")
        raise UserError(
            f"{spec.name} needs data: `stash lab dataset make {spec.kind} PATH` makes some for --data PATH, "
            "or use --synthetic"
        )
    for name in ("batch", "workers", "steps", "image_size", "sequence_length"):
        value, least = getattr(options, name), int(name != "workers")
        if value is not None and value < least:
            raise UserError(f"--{name.replace('_', '-')} must be at least {least}, not {value}")
    if spec.kind == "text" and (options.sequence_length or 0) > LONGEST_SEQUENCE:
        raise UserError(
            f"{spec.name} takes at most {LONGEST_SEQUENCE} tokens, not {options.sequence_length}; "
            f"use --sequence-length {LONGEST_SEQUENCE}"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stash.lab.zoo.train", description="Train a workload of the zoo."
    )
    add = parser.add_argument
    add("--workload", required=True, help="one of those listed by `stash lab zoo`")
    add("--data", type=Path, help="folder made by `stash lab dataset make`, or your own like it")
    add("--synthetic", action="store_true", help="random samples from memory instead of --data")
    add("--batch", type=int, help="samples per process and step (default: the workload's)")
    add("--workers", type=int, default=2, help="loader processes per training process (default 2)")
    add("--steps", type=int, help="optimizer steps to take (default: until interrupted)")
    add("--image-size", type=int, default=224, help="pixels per side (default 224)")
    add("--sequence-length", type=int, help="tokens per sample (default: the workload's)")
    add("--bucket-mb", type=float, help="MiB of DistributedDataParallel's buckets (default: its)")
    add("--channels-last", action="store_true", help="images and convolutions channels-last")
    add("--amp", action="store_true", help="mixed precision: float16 on GPUs, bfloat16 on CPUs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
