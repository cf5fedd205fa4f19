"""From blocks to step times, samples and the course of a measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest
from breakdowns import CALM, change_blocks, seconds
from profile_builder import STEPS, build, own_launches

from stash.analysis.attribution import attribute
from stash.analysis.step_times import explains_rounds, ranks_side_by_side, step_matrix
from stash.analysis.usage import data_blocks
from stash.core.measured import Block
from stash.core.records.profile import Loader, Profile


def test_two_blocks_of_a_rank_in_one_round_count_as_one():
    profile = build({"solo": [0.1], "crowd": [0.2]})
    slower = replace(profile.blocks[0], seconds=6.0, steps=30)
    profile = profile.model_copy(update={"blocks": (*profile.blocks, slower)})
    assert step_matrix(profile).matrix[0, 0] == pytest.approx((1.0 + 6.0) / 40)


@pytest.mark.parametrize("spread", [0.4, 0.02, None])
def test_ranks_whose_batches_differ_wait_in_each_step_for_the_longest(spread):
    # Each rank's steps take 60 and 140 ms in turn, one rank's long ones beside the other's short ones.
    loaders = (Loader(kind="map", workers=0, batch_spread=spread),)
    times = {"solo": [0.1] * 4, "crowd": [0.1] * 4, "node": [0.15] * 4}
    profile = build(times, workload={"loaders": loaders})
    short_and_long = (0.06, 0.14) * (STEPS // 2)
    changed = change_blocks(
        profile,
        lambda b: (
            {"step_seconds": short_and_long[:: 1 if b.rank else -1]} if b.rung == "crowd" else {}
        ),
    )
    found = seconds(attribute(changed))
    waits = 0.04 if spread == 0.4 else 0
    assert found["contention"] == pytest.approx(waits)
    assert found["interconnect"] == pytest.approx(0.05 - waits)


def test_batches_that_differ_make_contention_no_noisier_than_the_ranks_mean():
    # In each round one rank draws 60 and the other 140 ms: what the step waits is 40 ms, whoever leads.
    loaders = (Loader(kind="map", workers=0, batch_spread=0.4),)
    lead = (0.06, 0.14, 0.14, 0.06)
    profile = build(
        {"solo": list(lead), "crowd": [0.1] * 4, "node": [0.15] * 4}, workload={"loaders": loaders}
    )

    def draw_lengths(block: Block) -> dict[str, object]:
        if block.rung != "crowd":
            return {}
        step = 0.2 - lead[block.round] if block.rank else lead[block.round]
        return {"step_seconds": (step,) * STEPS, "seconds": step * STEPS}

    times = step_matrix(change_blocks(profile, draw_lengths))
    assert times.column_of("solo") == pytest.approx([0.1] * 4)
    assert times.column_of("crowd") == pytest.approx([0.14] * 4)


@pytest.mark.parametrize(
    ("spread", "steps", "explains"), [(0.6, 4, True), (0.6, 400, False), (0.05, 4, False)]
)
def test_rounds_differ_by_the_batches_that_they_draw_where_sizes_vary_enough(
    spread, steps, explains
):
    # Of the mean, rounds' standard deviation is 0.346: 0.7 and 1.3, twice each. Batches explain 0.6 / √4, or 0.6 / √400.
    loaders = (Loader(kind="map", workers=0, batch_spread=spread),)
    times = {"solo": [0.07, 0.13, 0.07, 0.13], "warm": [0.14, 0.26, 0.14, 0.26]}
    profile = build(times, workload={"loaders": loaders})
    profile = change_blocks(
        profile, lambda b: {"steps": steps, "seconds": b.seconds / b.steps * steps}
    )
    assert explains_rounds(profile, step_matrix(profile)) is explains


def test_rounds_of_one_set_of_launches_are_one_row():
    times = step_matrix(own_launches(sets=3))
    assert times.sets == ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    assert times.rounds == tuple(range(9))
    assert times.column_of("crowd").tolist() == [
        pytest.approx(0.21),
        pytest.approx(0.22),
        pytest.approx(0.23),
    ]


def test_data_blocks_are_told_by_the_rank_with_most_in_memory_and_by_bytes_a_sample():
    profile = build(
        {"solo": [0.1] * 3, "warm": [0.2] * 3, "cold": [0.3] * 3},
        block_extra={
            "cold": {
                "resident": 0.0,
                "storage_bytes": 600,
                "file_bytes": 500,
                "samples": 5,
                "wait_seconds": 1.0,
            }
        },
    )
    changed = change_blocks(
        profile,
        lambda b: {"resident": 0.25} if (b.rung, b.rank, b.round) == ("cold", 1, 2) else {},
    )
    found = data_blocks(changed, step_matrix(changed))
    assert [(block.rung, block.round) for block in found] == [
        (r, n) for r in ("warm", "cold") for n in range(3)
    ]
    assert found[0].resident is None
    last = found[-1]
    assert (last.resident, last.fetched_bytes, last.file_bytes, last.wait_seconds) == (
        0.25,
        120.0,
        100.0,
        0.1,
    )


def test_a_block_of_an_unnamed_rank_is_left_out_of_the_ranks():
    profile = build({"solo": [0.1] * 3, "crowd": [0.2] * 3})
    strange = tuple(
        replace(block, rank=7)
        for block in profile.blocks
        if block.rung == "crowd" and block.rank == 1
    )
    changed = profile.model_copy(update={"blocks": (*profile.blocks, *strange)})
    found = ranks_side_by_side(changed, step_matrix(changed))
    assert {time.rank for time in found} == {0, 1}


def counted(profile: Profile, count) -> Profile:
    """The same profile, whose blocks counted ``count(block)`` samples a step."""
    return change_blocks(profile, lambda block: {"samples": count(block) * STEPS})


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


@pytest.mark.parametrize("steps", [(0, 16, 16, 16), (16, 16, 16, 0), (32, 16, 16, 0)])
def test_a_batch_that_counts_for_the_step_before_or_after_a_block_is_no_smaller_step(
    steps,
):
    counts = {"samples": sum(steps), "steps": len(steps), "step_samples": steps}
    assert attribute(change_blocks(build(CALM), lambda _: counts)).samples_per_step == 32


def test_steps_that_grow_are_warned_about_and_blamed_on_no_other_program():
    growing = {"solo": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]}
    profile = build(growing)
    assert "slower" in " ".join(attribute(profile).stability.warnings)
    breakdown = attribute(counted(profile, ramp))
    assert (breakdown.samples.least, breakdown.samples.most) == (16, 136)
    _, *others = breakdown.stability.warnings  # the first is about the width of intervals
    assert others == [
        "Steps differ in samples: 16 to 136 a device, and so does their time; "
        "keep batch size and accumulation fixed while profiling."
    ]


def test_rungs_of_different_steps_are_no_stall():
    profile = counted(build(CALM), lambda block: 32 if block.rung == "solo" else 16)
    assert any(
        "also from rung to rung, which is no stall" in each
        for each in attribute(profile).stability.warnings
    )
