"""What the data blocks read, and from where: the proof that cold files were cold and warm ones were not.

Two witnesses, round by round: the fraction of the files' pages in the page cache just before a block, and the bytes
that the processes really fetched from storage beside the sizes of the files that they opened. A cache below the
guest's, of a hypervisor or a storage server, neither of them sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stash.base.ladder import rung
from stash.base.records import Block, Profile, Record
from stash.derive.stalls.step_times import StepTimes


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
