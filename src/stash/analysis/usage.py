"""What blocks saw besides time: bytes read and from where, and the energy that they took."""

from __future__ import annotations

import math
from collections.abc import Callable

from stash.analysis.breakdown import Breakdown
from stash.analysis.step_times import StepTimes
from stash.core.grouping import group_by
from stash.core.intervals import Interval, mean_interval
from stash.core.ladder import rung
from stash.core.measured import Block
from stash.core.records.base import Number, Record
from stash.core.records.circumstances import EnergyPart, EnergyUse
from stash.core.records.profile import Profile

# What was read, and from where


class DataBlock(Record):
    """One rung's reading in one round, all ranks together; ``None`` is what no rank recorded."""

    round: int
    rung: str
    resident: float | None
    """Fraction of the files' pages in memory just before, of the rank that had most."""
    fetched_bytes: float | None
    """From storage, a sample."""
    file_bytes: float | None
    """Sizes of the files opened, a sample; files of many samples count whole."""
    wait_seconds: float | None
    """That the slowest rank's step waited for the loader."""


def data_blocks(profile: Profile, kept: StepTimes) -> tuple[DataBlock, ...]:
    """The blocks of the rungs that read, by rung and round: proof that cold files were cold and warm ones were not.

    Two witnesses: the fraction of the files' pages in the page cache just before a block, and the bytes that the
    processes really fetched from storage next to the sizes of the files that they opened. A cache below the guest's,
    of a hypervisor or a storage server, neither of them sees.
    """
    reading = [name for name in kept.rungs if rung(name).reads_data]
    read = (block for block in profile.blocks if block.rung in reading and block.steps > 0)
    grouped = group_by(read, lambda block: (reading.index(block.rung), block.round))
    found = []
    for (place, number), blocks in sorted(grouped.items(), key=lambda item: item[0]):
        waits = [each.wait_seconds / each.steps for each in blocks if each.wait_seconds is not None]
        found.append(
            DataBlock(
                round=number,
                rung=reading[place],
                resident=max((b.resident for b in blocks if b.resident is not None), default=None),
                fetched_bytes=_a_sample(blocks, lambda block: block.storage_bytes),
                file_bytes=_a_sample(blocks, lambda block: block.file_bytes),
                wait_seconds=max(waits, default=None),
            )
        )
    return tuple(found)


def _a_sample(blocks: list[Block], read: Callable[[Block], float | None]) -> float | None:
    """Bytes for each sample, of the ranks that recorded both."""
    both = [(read(block), block.samples) for block in blocks]
    known = [(count, samples) for count, samples in both if count is not None and samples]
    return (
        sum(count for count, _ in known) / sum(samples for _, samples in known) if known else None
    )


# Energy: the power of the highest rung's blocks times the step's seconds. Blocks differ in power as rounds differ in
# time, so the interval is Student's over blocks, joined with that of the step.


class StepEnergy(Record):
    """Of everything that was counted, together."""

    joules: Interval
    """Of a step."""
    watts: Number
    parts: dict[EnergyPart, Number]
    """Joules of a step by what counted them."""
    epoch_joules: Number | None
    """Of an epoch's steps, not of what lies between them."""
    epoch_dollars: Number | None


def step_energy(breakdown: Breakdown, use: EnergyUse | None) -> StepEnergy | None:
    """``None`` where nothing was counted, or not of the rung that the step is measured under."""
    if use is None or not use.joules or use.rung != breakdown.rungs[-1]:
        return None
    step, seconds = breakdown.step, math.fsum(use.seconds)
    parts = {part: math.fsum(blocks) / seconds for part, blocks in use.joules.items()}
    watts = math.fsum(parts.values())
    power = mean_interval(
        [
            math.fsum(block) / took
            for took, *block in zip(use.seconds, *use.joules.values(), strict=True)
        ]
    )
    joules = Interval(value=watts * step.value)
    if power.half_width is not None and step.half_width is not None:
        half = math.hypot(power.half_width * step.value, step.half_width * watts)
        joules = joules.symmetric(half)
    steps = None if breakdown.run is None else breakdown.run.epoch_steps
    epoch = None if steps is None else joules.value * steps
    return StepEnergy(
        joules=joules,
        watts=watts,
        parts={part: each * step.value for part, each in parts.items()},
        epoch_joules=epoch,
        epoch_dollars=dollars_of(epoch, use.dollars_per_kwh),
    )


def dollars_of(joules: float | None, dollars_per_kwh: float | None) -> float | None:
    """``None`` where one of both is unknown."""
    if joules is None or dollars_per_kwh is None:
        return None
    return joules / 3.6e6 * dollars_per_kwh


def gpu_watts(use: EnergyUse | None) -> float | None:
    """What one GPU of the job drew on average; ``None`` where it was not counted."""
    if use is None or "gpus" not in use.joules:
        return None
    return math.fsum(use.joules["gpus"]) / math.fsum(use.seconds) / use.counts["gpus"]
