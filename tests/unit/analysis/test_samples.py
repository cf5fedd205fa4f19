"""How many samples a step trains, counted by the blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from breakdowns import CALM
from profile_builder import STEPS, build

from stash.analysis.attribution import attribute
from stash.core.records.profile import Block, Profile


def counted(profile: Profile, count) -> Profile:
    """The same profile, whose blocks counted ``count(block)`` samples a step."""
    counts = [count(block) for block in profile.blocks]
    blocks = tuple(
        replace(block, samples=each and each * STEPS) for block, each in zip(profile.blocks, counts, strict=True)
    )
    return profile.model_copy(update={"blocks": blocks})


def ramp(block: Block) -> int:
    return 16 + 20 * block.round


def test_samples_come_from_the_blocks_and_not_from_the_batch():
    breakdown = attribute(counted(build(CALM), lambda block: 16))
    assert breakdown.samples_per_step == 32
    assert breakdown.samples_per_second == pytest.approx(32 / 0.176)
    assert breakdown.rates.device == pytest.approx(32 / 0.140)


def test_without_counts_the_batch_tells_and_without_both_nothing_does():
    assert attribute(build(CALM)).samples_per_step == 16
    assert attribute(build(CALM, batch=None)).samples is None
    assert attribute(counted(build(CALM, batch=None), lambda block: 4)).samples_per_step == 8


def test_ranks_of_different_size_add_up():
    breakdown = attribute(counted(build(CALM), lambda block: 8 + 8 * block.rank))
    assert breakdown.samples_per_step == 24
    assert breakdown.samples.per_rung["solo"] == 16  # as if every rank did as the leader does


def test_a_rank_that_did_not_count_leaves_the_job_unknown():
    samples = attribute(counted(build(CALM), lambda block: 8 if block.rank == 0 else None)).samples
    assert set(samples.per_rung) == {"solo"}


def test_steps_that_grow_are_warned_about_and_blamed_on_nobody_else():
    growing = {"solo": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]}
    profile = build(growing)
    assert "neighbour" in " ".join(attribute(profile).stability.warnings)
    breakdown = attribute(counted(profile, ramp))
    assert (breakdown.samples.least, breakdown.samples.most) == (16, 136)
    _, *others = breakdown.stability.warnings  # the first is about the width of intervals
    assert others == [
        "Steps differ in samples: 16 to 136 a device, and so does their time; "
        "keep batch size and accumulation fixed while profiling."
    ]


def test_rungs_of_different_steps_are_no_stall():
    profile = counted(build(CALM), lambda block: 32 if block.rung == "solo" else 16)
    assert any("also from rung to rung, which is no stall" in each for each in attribute(profile).stability.warnings)
