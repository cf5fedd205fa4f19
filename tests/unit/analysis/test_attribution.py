"""From a profile to stalls: hand-worked values, the paper's percentages, the slowest rank."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from breakdowns import CALM, seconds, unknown, without_blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build, own_launches

from stash.analysis.attribution import attribute
from stash.core.errors import ArtefactError, StashError
from stash.core.ladder import STALLS


def test_a_skipped_rung_is_no_part_of_the_ladder_even_if_it_has_blocks():
    breakdown = attribute(build(CALM, skipped={"cold": "files stayed in the page cache"}))
    assert breakdown.rungs == ("solo", "crowd", "node", "warm")
    assert breakdown.step_seconds == pytest.approx(0.170)
    assert unknown(breakdown)["fetch"] == "files stayed in the page cache"


def test_no_complete_round_is_an_error_that_says_what_is_missing():
    profile = without_blocks(build(CALM, ended="interrupted"), lambda b: b.rung == "cold")
    with pytest.raises(StashError, match=r"no complete round: nothing was measured under cold.*interrupted"):
        attribute(profile)


def test_each_stall_is_the_difference_of_neighbouring_rungs():
    breakdown = attribute(build(CALM))
    assert seconds(breakdown) == {
        "compute": 0.1,
        "contention": 0.004,
        "interconnect": 0.036,
        "prep": 0.03,
        "fetch": 0.006,
    }
    assert breakdown.step_seconds == pytest.approx(0.176)
    assert breakdown.samples_per_second == pytest.approx(2 * 8 / 0.176)
    assert breakdown.stall("prep").share == pytest.approx(0.030 / 0.176)
    assert unknown(breakdown) == {
        "transfer": "the job runs on CPUs: there is no host-to-device copy",
        "network": "one node",
    }


def test_one_round_leaves_intervals_unknown():
    breakdown = attribute(build({name: values[:1] for name, values in CALM.items()}))
    assert {(stall.low, stall.high) for stall in breakdown.stalls} == {(None, None)}
    assert not any(stall.within_noise for stall in breakdown.stalls)
    assert "Only one round" in breakdown.stability.warnings[0]


def test_launches_not_their_rounds_are_what_repeats_where_rungs_have_their_own():
    # Contention is 110, 120 and 130 ms in three sets of launches: a spread of 10 ms, and Student's 4.303 for three.
    # Nine rounds taken as independent would say 7 ms.
    contention = attribute(own_launches(sets=3)).stall("contention")
    assert contention.time.repetitions == 3
    assert contention.time.half_width == pytest.approx(4.303 * 0.01 / math.sqrt(3), rel=0.15)
    assert attribute(own_launches(sets=3)).rounds == 9


@given(
    st.integers(1, 12),
    st.lists(st.sampled_from(["resident", "solo", "crowd", "node", "cluster", "warm", "cold"]), min_size=1),
    st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_stalls_sum_to_the_step_for_any_rungs_and_rounds(rounds, rungs, seed):
    rng = np.random.default_rng(seed)
    times = {name: rng.lognormal(-2, 0.6, rounds).tolist() for name in set(rungs)}
    breakdown = attribute(build(times, ranks=4, nodes=2, device="cuda"))
    assert sum(seconds(breakdown).values()) == pytest.approx(breakdown.step_seconds, abs=1e-7)
    assert sum(stall.share for stall in breakdown.stalls) == pytest.approx(1)
    assert (breakdown.rounds, breakdown.rounds_dropped) == (rounds, 0)
    names = [stall.name for stall in breakdown.stalls] + [missing.name for missing in breakdown.skipped]
    assert sorted(names) == sorted({*STALLS} - {"bubble"})


def test_a_round_that_lacks_blocks_is_counted_apart():
    profile = build({name: [values[0]] * 4 for name, values in CALM.items()})
    breakdown = attribute(profile.model_copy(update={"blocks": profile.blocks[:-1]}))
    assert (breakdown.rounds, breakdown.rounds_dropped) == (3, 1)


def test_the_papers_percentages_follow_its_formulas():
    paper = attribute(build(CALM)).paper
    assert paper.interconnect_pct == pytest.approx((140 - 100) / 140 * 100)
    assert paper.network_pct is None
    assert paper.prep_pct == pytest.approx((170 - 140) / 170 * 100)
    assert paper.fetch_pct == pytest.approx((176 - 170) / 176 * 100)


def test_the_network_percentage_says_that_it_is_weak_scaling():
    times = {"solo": [0.1] * 3, "crowd": [0.1] * 3, "node": [0.12] * 3, "cluster": [0.36] * 3}
    breakdown = attribute(build(times, ranks=4, nodes=2))
    assert breakdown.paper.network_pct == pytest.approx(200)
    assert any("weak scaling" in note for note in breakdown.notes)
    assert not any("weak scaling" in note for note in attribute(build(CALM)).notes)


def test_a_rank_slower_in_every_round_is_named():
    factors = {rank: 0.8 for rank in range(4) if rank != 2}
    slow = attribute(build(CALM, ranks=4, factors=factors)).slow_rank
    assert (slow.rank, round(slow.seconds, 6), round(slow.others_seconds, 6)) == (2, 0.104, 0.0832)


SLOW_LEADER = {"solo": [0.050, 0.051, 0.049], "crowd": [0.050, 0.051, 0.049], "node": [0.052, 0.053, 0.051]}


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_only_the_leader_takes_is_waited_for_and_no_compute(ranks: int):
    # GIVEN ranks of 10 ms a step, of which rank 0 does 40 ms more, by itself as beside the others
    breakdown = attribute(build(SLOW_LEADER, ranks=ranks, factors=dict.fromkeys(range(1, ranks), 0.2)))
    # THEN that is the others' wait for a slow rank, as it is where any other is slow
    assert seconds(breakdown) == pytest.approx({"compute": 0.01, "contention": 0.04, "interconnect": 0.002})
    assert breakdown.slow_rank.rank == 0
    assert breakdown.step_seconds == pytest.approx(0.052)


def test_a_leader_that_is_slow_only_beside_others_computes_as_it_does_by_itself():
    times = {"solo": [0.010, 0.011, 0.009], "crowd": [0.050, 0.051, 0.049]}
    breakdown = attribute(build(times, factors={1: 0.2}))
    assert seconds(breakdown) == pytest.approx({"compute": 0.01, "contention": 0.04})


def test_a_rank_slower_by_less_than_5_percent_or_only_once_is_not_named():
    assert attribute(build(CALM, ranks=4, factors={0: 0.96, 1: 0.96, 3: 0.96})).slow_rank is None
    profile = build(CALM, ranks=4)
    once = tuple(
        replace(b, seconds=b.seconds * 1.4) if (b.rung, b.rank, b.round) == ("crowd", 2, 1) else b
        for b in profile.blocks
    )
    assert attribute(profile.model_copy(update={"blocks": once})).slow_rank is None


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("seconds", [math.nan, math.inf, -0.5, 0.0])
def test_a_time_that_is_no_positive_number_is_a_damaged_profile_whichever_rank_has_it(seconds, rank):
    profile = build(CALM)
    blocks = tuple(
        replace(block, seconds=seconds) if (block.rung, block.round, block.rank) == ("node", 1, rank) else block
        for block in profile.blocks
    )
    damaged = profile.model_copy(update={"blocks": blocks})
    says = r" is damaged: rank \d's steps under node in round 1 are said to take (nan|inf|-0\.5|0) s; profile again$"
    with pytest.raises(ArtefactError, match=rf"^runs/a\.stash\.json{says}"):
        attribute(damaged, "runs/a.stash.json")
    with pytest.raises(ArtefactError, match=rf"^the profile of 'train\.py'{says}"):
        attribute(damaged)
