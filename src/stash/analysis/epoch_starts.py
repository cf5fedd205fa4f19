"""Steps that begin an epoch take longer than others: workers that are just started compete with them for cores.

What they take longer belongs to the epoch's start and to no step; of a job without workers that is nothing. Known
where the job's first steps, as typed, reach over the start of an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from stash.core.ladder import UNTOUCHED
from stash.core.ledger_rows import EPOCH_END, EPOCH_START
from stash.core.measured import Block
from stash.core.records.profile import Profile, RankLedger


def count_ledger_steps(profile: Profile) -> tuple[RankLedger, ...]:
    """The ledgers, in steps as blocks have them: of several optimizers that take turns each update was counted."""
    steps = {block.rank: block.steps for block in profile.blocks if block.rung == UNTOUCHED.name}
    return tuple(_count_as_block(each, steps.get(each.rank, 0)) for each in profile.ledgers)


def _count_as_block(ledger: RankLedger, steps: int) -> RankLedger:
    updates = round(ledger.timed_steps / steps) if steps else 1
    if updates < 2 or abs(ledger.timed_steps - updates * steps) > updates:
        return ledger
    rows = tuple(
        row.model_copy(update={"at_steps": tuple(at // updates for at in row.at_steps)})
        for row in ledger.rows
    )
    return ledger.model_copy(
        update={"steps": ledger.steps // updates, "timed_steps": steps, "rows": rows}
    )


def longer_first_steps(profile: Profile) -> dict[int, dict[int, float]]:
    """By rank and steps taken before: seconds that the step after an epoch's start takes beyond the median.

    Less than nothing where it was shorter, by chance: without these the mean of several would be too long. What the
    script does after the epoch before has a row of its own.
    """
    found: dict[int, dict[int, float]] = {}
    if not _has_workers(profile):
        return found
    blocks = {block.rank: block for block in profile.blocks if block.rung == UNTOUCHED.name}
    for ledger in count_ledger_steps(profile):
        block = blocks.get(ledger.rank)
        places = {} if block is None else _epoch_start_steps(ledger, block)
        if block is not None and places:
            usual = median(block.step_seconds)
            ends = occurrences(ledger, EPOCH_END)
            found[ledger.rank] = {
                at: block.step_seconds[n] - usual - ends.get(at, 0.0) for at, n in places.items()
            }
    return found


def _has_workers(profile: Profile) -> bool:
    return any(loader.workers for loader in profile.workload.loaders)


def occurrences(ledger: RankLedger, name: str) -> dict[int, float]:
    """Seconds of each of a row's occurrences by the step after which it began: of several at once the sum."""
    found: dict[int, float] = {}
    for row in ledger.rows:
        if row.row == name:
            for at, seconds in zip(row.at_steps, row.each, strict=False):
                found[at] = found.get(at, 0.0) + max(0.0, seconds)
    return found


def level_epoch_starts(profile: Profile) -> Profile:
    """The profile, in whose first steps those that begin an epoch take and wait as long as the median."""
    if not _has_workers(profile):
        return profile
    ledgers = {ledger.rank: ledger for ledger in count_ledger_steps(profile)}
    blocks = tuple(
        _level_block(block, _epoch_start_steps(ledgers[block.rank], block))
        if block.rung == UNTOUCHED.name and block.rank in ledgers
        else block
        for block in profile.blocks
    )
    return profile.model_copy(update={"blocks": blocks})


def _epoch_start_steps(ledger: RankLedger, block: Block) -> dict[int, int]:
    """Which of the block's steps, counted from 0, follow an epoch's start; by the steps taken before."""
    if len(block.step_seconds) != ledger.timed_steps:
        return {}
    first = ledger.steps - ledger.timed_steps
    starts = [at for row in ledger.rows if row.row == EPOCH_START for at in row.at_steps]
    return {at: at - first for at in starts if 0 <= at - first < ledger.timed_steps}


def _level_block(block: Block, places: Mapping[int, int]) -> Block:
    if not places:
        return block
    found: dict[str, Any] = {}
    for name, total in (("step_seconds", "seconds"), ("step_waits", "wait_seconds")):
        values = list(getattr(block, name))
        if len(values) == block.steps:
            usual = median(values)
            for at in places.values():
                values[at] = usual
            found |= {name: tuple(values), total: sum(values)}
    return replace(block, **found)
