"""What blocks saw besides time: busy cores and links, bytes read and from where, when gradients are ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Literal

from stash.analysis.step_times import StepTimes
from stash.core.ladder import rung
from stash.core.records.base import Record
from stash.core.records.profile import Block, Profile

# Usage -----------------------------------------------------------------------------------------------------
# How busy the machines were under each rung: cores, other tenants, GPUs, network and disk.
#
# Means over the kept rounds of what every block recorded of its host. Counters of a host are taken once a node, so
# that ranks beside each other do not count them twice. Says nothing of what would be a lot.

Resource = Literal["cpu", "steal", "gpu", "network", "disk"]
_READINGS: Mapping[Resource, Callable[[Block], float | None]] = {
    "cpu": lambda block: block.cpu,
    "steal": lambda block: block.steal,
    "gpu": lambda block: block.gpu,
    "network": lambda block: _pace(block.network_bytes, block.seconds),
    "disk": lambda block: _pace(block.disk_bytes, block.seconds),
}


class Use(Record):
    """Of one resource under one rung, a node: a fraction, or bytes per second of ``network`` and ``disk``."""

    rung: str
    resource: Resource
    amount: float
    """Mean over rounds."""
    least: float
    most: float
    """Of the rounds: what a machine does varies by more than chance, so a range says more than an interval."""


def usage(profile: Profile, kept: StepTimes) -> tuple[Use, ...]:
    """By resource, then rung in ladder order; what no block recorded is left out."""
    node = {rank.rank: rank.node for rank in profile.ranks}
    blocks: dict[str, list[Block]] = {name: [] for name in kept.rungs}
    rounds = set(kept.rounds)
    for block in profile.blocks:
        if block.rung in blocks and block.round in rounds and block.seconds > 0:
            blocks[block.rung].append(block)
    found = (
        (name, resource, _per_round(blocks[name], read, node))
        for resource, read in _READINGS.items()
        for name in kept.rungs
    )
    return tuple(
        Use(rung=name, resource=resource, amount=_mean(per), least=min(per), most=max(per))
        for name, resource, per in found
        if per
    )


def _per_round(blocks: list[Block], read: Callable[[Block], float | None], node: Mapping[int, int]) -> list[float]:
    """One value a round: the mean over nodes of the mean over each node's ranks."""
    rounds: dict[int, dict[int, list[float]]] = {}
    for block in blocks:
        value = read(block)
        if value is not None:
            rounds.setdefault(block.round, {}).setdefault(node.get(block.rank, 0), []).append(value)
    return [_mean([_mean(of_node) for of_node in nodes.values()]) for nodes in rounds.values()]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _pace(count: int | None, seconds: float) -> float | None:
    return None if count is None else count / seconds


# Storage ---------------------------------------------------------------------------------------------------
# What the data blocks read, and from where: the proof that cold files were cold and warm ones were not.
#
# Two witnesses, round by round: the fraction of the files' pages in the page cache just before a block, and the
# bytes that the processes really fetched from storage beside the sizes of the files that they opened. A cache below
# the guest's, of a hypervisor or a storage server, neither of them sees.


class DataBlock(Record):
    """One rung's reading in one round, all ranks together; ``None`` is what nobody recorded."""

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
    """The blocks of the rungs that read, by rung and round."""
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
            resident=max(_known(blocks, lambda block: block.resident), default=None),
            fetched_bytes=_a_sample(blocks, lambda block: block.storage_bytes),
            file_bytes=_a_sample(blocks, lambda block: block.file_bytes),
            wait_seconds=max((block.wait_seconds / block.steps for block in blocks if block.wait_seconds is not None),
                             default=None),
        )
        for (name, number), blocks in ordered
    )  # fmt: skip


def _known(blocks: Iterable[Block], read: Callable[[Block], float | None]) -> list[float]:
    return [value for value in map(read, blocks) if value is not None]


def _a_sample(blocks: list[Block], read: Callable[[Block], float | None]) -> float | None:
    """Bytes for each sample, of the ranks that recorded both."""
    both = [(read(block), block.samples) for block in blocks]
    known = [(count, samples) for count, samples in both if count is not None and samples]
    return sum(count for count, _ in known) / sum(samples for _, samples in known) if known else None


# Readiness -------------------------------------------------------------------------------------------------
# When a step's gradients are ready to be exchanged: parameter by parameter, and bucket by bucket.
#
# DistributedDataParallel reduces a bucket once its last gradient is ready. Which gradients a bucket holds is not
# recorded: they fill the buckets in the order in which they became ready, which is how the reducer lays buckets out
# after the first step. Knows nothing of how long the exchange then takes.

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
    """The readiness of a profile's gradients; empty where no moment was recorded."""
    work = profile.workload
    timed = [(gradient, gradient.ready_seconds) for gradient in work.gradients]
    known = sorted(((g, at) for g, at in timed if at is not None), key=lambda pair: pair[1])
    sums = list(accumulate(gradient.bytes for gradient, _ in known))
    gradients = tuple(
        ReadyGradient(name=gradient.name, bytes=gradient.bytes, ready_seconds=at, bytes_so_far=so_far)
        for (gradient, at), so_far in zip(known, sums, strict=True)
    )
    why = _why_no_buckets(profile, gradients)
    return Readiness(
        gradients=gradients, buckets=() if why else _buckets(work.bucket_bytes, gradients), why_no_buckets=why
    )


def _why_no_buckets(profile: Profile, gradients: tuple[ReadyGradient, ...]) -> str | None:
    work = profile.workload
    if not gradients:
        return "no gradient's moment was recorded"
    if not work.bucket_bytes:
        return "one rank exchanges nothing" if profile.world_size == 1 else "no bucket was seen to be reduced"
    if len(gradients) < len(work.gradients):
        return "some gradients' moments were not recorded"
    if abs(sum(work.bucket_bytes) - gradients[-1].bytes_so_far) > _SAME * gradients[-1].bytes_so_far:
        return "the buckets' bytes are not those of the gradients"
    return None


def _buckets(sizes: tuple[int, ...], gradients: tuple[ReadyGradient, ...]) -> tuple[ReadyBucket, ...]:
    """Each is ready with the gradient that fills it; rounding of sizes leaves the last to the last gradient."""
    found, last = [], gradients[-1]
    for number, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True), 1):
        filling = next((each for each in gradients if each.bytes_so_far >= end), last)
        found.append(ReadyBucket(number=number, bytes=size, ready_seconds=filling.ready_seconds))
    return tuple(found)
