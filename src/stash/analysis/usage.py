"""What blocks saw besides time: busy cores and links, bytes read and from where, when gradients are ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from statistics import fmean
from typing import Literal

from stash.analysis.step_times import StepTimes
from stash.core.ladder import rung
from stash.core.records.base import Record
from stash.core.records.profile import Block, Profile

# How busy the machines were

Resource = Literal["cpu", "steal", "gpu", "network", "disk"]
_READINGS: Mapping[Resource, Callable[[Block], float | None]] = {
    "cpu": lambda block: block.cpu,
    "steal": lambda block: block.steal,
    "gpu": lambda block: block.gpu,
    "network": lambda block: None if block.network_bytes is None else block.network_bytes / block.seconds,
    "disk": lambda block: None if block.disk_bytes is None else block.disk_bytes / block.seconds,
}


class Use(Record):
    """Use of one resource of a node under one rung: a fraction, or bytes per second of ``network`` and ``disk``."""

    rung: str
    resource: Resource
    amount: float
    """Mean over rounds."""
    least: float
    most: float
    """Of the rounds: what a machine does varies by more than chance, so a range says more than an interval."""


def usage(profile: Profile, kept: StepTimes) -> tuple[Use, ...]:
    """Use by resource, then rung in ladder order; what no block recorded is left out.

    One value a round: the mean over nodes of the mean over each node's ranks. Counters of a host are taken once a
    node, so that its ranks do not count them twice.
    """
    node = {rank.rank: rank.node for rank in profile.ranks}
    blocks: dict[str, list[Block]] = {name: [] for name in kept.rungs}
    numbers = set(kept.rounds)
    for block in profile.blocks:
        if block.rung in blocks and block.round in numbers and block.seconds > 0:
            blocks[block.rung].append(block)
    found = []
    for resource, read in _READINGS.items():
        for name in kept.rungs:
            rounds: dict[int, dict[int, list[float]]] = {}
            for block in blocks[name]:
                value = read(block)
                if value is not None:
                    rounds.setdefault(block.round, {}).setdefault(node.get(block.rank, 0), []).append(value)
            per = [fmean(map(fmean, nodes.values())) for nodes in rounds.values()]
            if per:
                found.append(Use(rung=name, resource=resource, amount=fmean(per), least=min(per), most=max(per)))
    return tuple(found)


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
    grouped: dict[tuple[str, int], list[Block]] = {}
    for block in profile.blocks:
        if block.rung in kept.rungs and rung(block.rung).reads_data and block.steps > 0:
            grouped.setdefault((block.rung, block.round), []).append(block)
    places = {name: place for place, name in enumerate(kept.rungs)}
    ordered = sorted(grouped.items(), key=lambda item: (places[item[0][0]], item[0][1]))
    return tuple(
        DataBlock(
            round=number,
            rung=name,
            resident=max((block.resident for block in blocks if block.resident is not None), default=None),
            fetched_bytes=_a_sample(blocks, lambda block: block.storage_bytes),
            file_bytes=_a_sample(blocks, lambda block: block.file_bytes),
            wait_seconds=max((block.wait_seconds / block.steps for block in blocks if block.wait_seconds is not None),
                             default=None),
        )
        for (name, number), blocks in ordered
    )  # fmt: skip


def _a_sample(blocks: list[Block], read: Callable[[Block], float | None]) -> float | None:
    """Bytes for each sample, of the ranks that recorded both."""
    both = [(read(block), block.samples) for block in blocks]
    known = [(count, samples) for count, samples in both if count is not None and samples]
    return sum(count for count, _ in known) / sum(samples for _, samples in known) if known else None


# When gradients are ready

_SAME = 0.01
"""Of all bytes: buckets and gradients that differ by more are not of the same parameters."""


class ReadyGradient(Record):
    """One gradient, with all bytes that are ready once it is."""

    name: str
    bytes: int
    ready_seconds: float
    """Since the first gradient of the backward pass was ready."""
    bytes_so_far: int


class ReadyBucket(Record):
    """One bucket, in the order of reduction."""

    number: int
    bytes: int
    ready_seconds: float


class Readiness(Record):
    """The gradients in the order in which they became ready, and their buckets if those can be laid out."""

    gradients: tuple[ReadyGradient, ...]
    buckets: tuple[ReadyBucket, ...]
    why_no_buckets: str | None = None


def readiness(profile: Profile) -> Readiness:
    """The readiness of a profile's gradients; empty where no moment was recorded.

    DistributedDataParallel reduces a bucket once its last gradient is ready. Which gradients a bucket holds is not
    recorded: they fill the buckets in the order in which they became ready, which is how the reducer lays buckets out
    after the first step. Rounding of sizes leaves the last bucket to the last gradient.
    """
    work = profile.workload
    timed = [(gradient, gradient.ready_seconds) for gradient in work.gradients]
    known = sorted(((g, at) for g, at in timed if at is not None), key=lambda pair: pair[1])
    sums = list(accumulate(gradient.bytes for gradient, _ in known))
    gradients = tuple(
        ReadyGradient(name=gradient.name, bytes=gradient.bytes, ready_seconds=at, bytes_so_far=so_far)
        for (gradient, at), so_far in zip(known, sums, strict=True)
    )
    why = None
    if not gradients:
        why = "no gradient's moment was recorded"
    elif not work.bucket_bytes:
        why = "one rank exchanges nothing" if profile.world_size == 1 else "no bucket was seen to be reduced"
    elif len(gradients) < len(work.gradients):
        why = "some gradients' moments were not recorded"
    elif abs(sum(work.bucket_bytes) - sums[-1]) > _SAME * sums[-1]:
        why = "the buckets' bytes are not those of the gradients"
    buckets = []
    if why is None:
        for number, (size, end) in enumerate(zip(work.bucket_bytes, accumulate(work.bucket_bytes), strict=True), 1):
            filling = next((each for each in gradients if each.bytes_so_far >= end), gradients[-1])
            buckets.append(ReadyBucket(number=number, bytes=size, ready_seconds=filling.ready_seconds))
    return Readiness(gradients=gradients, buckets=tuple(buckets), why_no_buckets=why)
