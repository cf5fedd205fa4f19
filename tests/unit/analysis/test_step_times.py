"""From blocks to a matrix: which rounds are complete, and whose time a step's is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from breakdowns import CALM, seconds, without_blocks
from profile_builder import build, own_launches

from stash.analysis.attribution import attribute
from stash.analysis.step_times import step_matrix


def test_the_step_of_the_job_is_the_slowest_ranks():
    ladder = step_matrix(build({"solo": [0.1], "crowd": [0.2]}, ranks=4, factors={0: 0.5, 1: 0.9}))
    assert ladder.rungs == ("solo", "crowd")
    assert ladder.rounds == (0,)
    assert ladder.matrix.tolist() == [[pytest.approx(0.1), pytest.approx(0.2)]]


def test_a_round_without_all_ranks_is_not_complete():
    profile = without_blocks(build(CALM), lambda b: b.round == 1 and b.rung == "node" and b.rank == 1)
    assert step_matrix(profile).rounds == (0, 2)


def test_two_blocks_of_a_rank_in_one_round_count_as_one():
    profile = build({"solo": [0.1], "crowd": [0.2]})
    slower = replace(profile.blocks[0], seconds=6.0, steps=30)
    profile = profile.model_copy(update={"blocks": (*profile.blocks, slower)})
    assert step_matrix(profile).matrix[0, 0] == pytest.approx((1.0 + 6.0) / 40)


def test_ranks_that_are_equally_fast_on_average_make_no_contention_out_of_noise():
    # Rank 0 is fast in even rounds, rank 1 in odd ones; both take 100 ms on average, like the leader alone.
    profile = build({"solo": [0.1] * 4, "crowd": [0.1] * 4, "node": [0.12] * 4})
    noisy = {(number, rank): 1.1 if (number + rank) % 2 else 0.9 for number in range(4) for rank in range(2)}
    blocks = [
        replace(block, seconds=block.seconds * noisy[block.round, block.rank]) if block.rung == "crowd" else block
        for block in profile.blocks
    ]
    found = seconds(attribute(profile.model_copy(update={"blocks": tuple(blocks)})))
    assert found["contention"] == pytest.approx(0, abs=1e-12)
    assert found["interconnect"] == pytest.approx(0.02)


def test_step_times_know_their_columns_and_their_top():
    times = step_matrix(build(CALM))
    assert times.step_seconds == pytest.approx(0.176)
    assert times.of("node").tolist() == [pytest.approx(0.140)] * 3
    assert times.top_replay == "node"
    assert step_matrix(build({"warm": [0.2], "cold": [0.3]})).top_replay is None


def test_rounds_of_one_set_of_launches_are_one_row():
    times = step_matrix(own_launches(sets=3))
    assert times.sets == ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    assert times.rounds == tuple(range(9))
    assert times.of("crowd").tolist() == [pytest.approx(0.21), pytest.approx(0.22), pytest.approx(0.23)]


def test_a_disturbed_round_keeps_its_row_and_is_named():
    times = {name: [values[0] * (1 + 0.001 * (i % 3)) for i in range(8)] for name, values in CALM.items()}
    times["node"][5] = 0.5
    found = step_matrix(build(times)).calmed()
    assert found.disturbed == (5,)
    assert 5 not in found.rounds
    assert found.matrix.shape == (8, 5)
    assert found.step_seconds > 0.176 * 1.05  # what it cost is shared out, not forgotten
