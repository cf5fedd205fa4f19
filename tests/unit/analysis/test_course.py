"""The rounds, ranks and data blocks behind a breakdown, by hand-chosen numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from profile_builder import build, own_launches

from stash.analysis.step_times import course, ranks_side_by_side, step_matrix
from stash.analysis.usage import data_blocks, usage
from stash.core.intervals import mean_interval


def test_a_course_has_every_block_and_says_which_rounds_count():
    quiet = [0.1, 0.101, 0.099, 0.1, 0.1, 0.1, 0.101]
    profile = build({"solo": [*quiet, 0.1], "crowd": [*(2 * t for t in quiet[:-1]), 0.4]})
    found = course(profile)
    assert [(time.round, time.rung) for time in found.times] == [
        *((number, rung) for number in range(7) for rung in ("solo", "crowd")), (7, "solo"),
    ]  # fmt: skip
    assert found.incomplete == (7,)
    assert found.disturbed == (6,)
    assert found.dropped == {6, 7}
    assert found.times[13].step_seconds == pytest.approx(0.4)


def test_a_disturbed_round_keeps_its_own_times_in_the_course():
    times = [0.1, 0.101, 0.099, 0.1, 0.3, 0.1]
    found = course(build({"solo": [t / 2 for t in times], "crowd": times}))
    assert found.disturbed == (4,)
    assert next(t for t in found.times if (t.round, t.rung) == (4, "crowd")).step_seconds == pytest.approx(0.3)


def test_the_fastest_and_the_slowest_rank_of_a_block_are_known():
    found = course(build({"solo": [0.1] * 3, "crowd": [0.2] * 3}, factors={0: 0.5}))
    crowd = next(time for time in found.times if time.rung == "crowd")
    assert (crowd.fastest_seconds, crowd.slowest_seconds, crowd.ranks) == (pytest.approx(0.1), pytest.approx(0.2), 2)


def test_rounds_that_share_a_launch_have_the_times_of_their_slowest_rank():
    found = course(own_launches(3))
    assert len({time.round for time in found.times}) == 9
    assert [t.step_seconds for t in found.times if t.rung == "crowd"] == [
        pytest.approx(0.21 + 0.01 * (n // 3) + 0.0001 * (n % 3 - 1)) for n in range(9)]  # fmt: skip


def test_a_profile_without_a_round_has_no_course_but_its_blocks():
    profile = build({"solo": [0.1], "crowd": [0.2]})
    found = course(profile.model_copy(update={"blocks": profile.blocks[:1]}))
    assert (len(found.times), found.incomplete, found.drift) == (1, (0,), None)


def test_ranks_side_by_side_are_means_of_their_own_rounds():
    profile = build({"solo": [0.1] * 4, "crowd": [0.19, 0.21, 0.19, 0.21]}, factors={0: 0.5})
    found = {(t.rank, t.rung): t.time for t in ranks_side_by_side(profile, step_matrix(profile).calmed())}
    assert found.keys() == {(0, "solo"), (0, "crowd"), (1, "crowd")}
    assert found[0, "crowd"].value == pytest.approx(0.1)
    slow, expected = found[1, "crowd"], mean_interval([0.19, 0.21, 0.19, 0.21])
    assert (slow.value, slow.low) == (pytest.approx(expected.value), pytest.approx(expected.low))


def test_a_mean_has_students_interval_and_one_value_has_none():
    found = mean_interval([1.0, 2.0, 3.0])
    assert found.value == pytest.approx(2.0)
    assert found.high == pytest.approx(2.0 + 4.302653 / 3**0.5)  # t of 2 degrees of freedom, standard deviation 1
    assert mean_interval([5.0]).low is None


def test_a_node_counts_its_bytes_once_however_many_ranks_report_them():
    profile = build(
        {"solo": [0.1] * 3, "crowd": [0.2] * 3}, ranks=4, nodes=2, block_extra={"crowd": {"network_bytes": 2_000_000}}
    )
    (network,) = usage(profile, step_matrix(profile).calmed())
    assert (network.rung, network.resource) == ("crowd", "network")
    assert network.amount == pytest.approx(2_000_000 / (10 * 0.2))


def test_data_blocks_are_told_by_the_rank_with_most_in_memory_and_by_bytes_a_sample():
    profile = build(
        {"solo": [0.1] * 3, "warm": [0.2] * 3, "cold": [0.3] * 3},
        block_extra={
            "cold": {"resident": 0.0, "storage_bytes": 600, "file_bytes": 500, "samples": 5, "wait_seconds": 1.0}
        },
    )
    blocks = tuple(
        replace(b, resident=0.25) if (b.rung, b.rank, b.round) == ("cold", 1, 2) else b for b in profile.blocks
    )
    changed = profile.model_copy(update={"blocks": blocks})
    found = data_blocks(changed, step_matrix(changed).calmed())
    assert [(block.rung, block.round) for block in found] == [(r, n) for r in ("warm", "cold") for n in range(3)]
    assert found[0].resident is None
    last = found[-1]
    assert (last.resident, last.fetched_bytes, last.file_bytes, last.wait_seconds) == (0.25, 120.0, 100.0, 0.1)


def test_a_block_of_a_rank_that_nobody_named_is_left_out_of_the_ranks():
    profile = build({"solo": [0.1] * 3, "crowd": [0.2] * 3})
    strange = tuple(replace(block, rank=7) for block in profile.blocks if block.rung == "crowd" and block.rank == 1)
    changed = profile.model_copy(update={"blocks": (*profile.blocks, *strange)})
    found = ranks_side_by_side(changed, step_matrix(changed).calmed())
    assert {time.rank for time in found} == {0, 1}
