"""From a profile to stalls: hand-worked values, the paper's percentages, the slowest rank."""

from __future__ import annotations

import math

import numpy as np
import pytest
from breakdowns import CALM, change_blocks, drop_blocks, seconds, unknown
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.core.errors import ArtefactError, StashError
from stash.core.ladder import STALLS


def test_no_complete_round_is_an_error_that_says_what_is_missing():
    profile = drop_blocks(build(CALM, ended="interrupted"), lambda b: b.rung == "cold")
    with pytest.raises(
        StashError, match=r"no complete round: nothing was measured under cold.*interrupted"
    ):
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


@given(
    st.integers(1, 12),
    st.lists(
        st.sampled_from(["resident", "solo", "crowd", "node", "cluster", "warm", "cold"]),
        min_size=1,
    ),
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
    names = [stall.name for stall in breakdown.stalls] + [
        missing.name for missing in breakdown.skipped
    ]
    assert sorted(names) == sorted({*STALLS} - {"bubble"})


def test_a_round_that_lacks_blocks_is_counted_apart():
    profile = build({name: [values[0]] * 4 for name, values in CALM.items()})
    breakdown = attribute(profile.model_copy(update={"blocks": profile.blocks[:-1]}))
    assert (breakdown.rounds, breakdown.rounds_dropped) == (3, 1)


SLOW_LEADER = {
    "solo": [0.050, 0.051, 0.049],
    "crowd": [0.050, 0.051, 0.049],
    "node": [0.052, 0.053, 0.051],
}


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_only_the_leader_takes_is_waited_for_and_no_compute(ranks):
    # GIVEN ranks of 10 ms a step, of which rank 0 does 40 ms more, by itself as beside the others
    breakdown = attribute(
        build(SLOW_LEADER, ranks=ranks, factors=dict.fromkeys(range(1, ranks), 0.2))
    )
    # THEN that is the others' wait for a slow rank, as it is where any other is slow
    assert seconds(breakdown) == pytest.approx(
        {"compute": 0.01, "contention": 0.04, "interconnect": 0.002}
    )
    assert breakdown.slow_rank.rank == 0
    assert breakdown.step_seconds == pytest.approx(0.052)


def test_a_leader_that_is_slow_only_beside_others_computes_as_it_does_by_itself():
    times = {"solo": [0.010, 0.011, 0.009], "crowd": [0.050, 0.051, 0.049]}
    breakdown = attribute(build(times, factors={1: 0.2}))
    assert seconds(breakdown) == pytest.approx({"compute": 0.01, "contention": 0.04})


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("seconds", [math.nan, math.inf, -0.5, 0.0])
def test_a_time_that_is_no_positive_number_is_a_damaged_profile_whichever_rank_has_it(
    seconds, rank
):
    damaged = change_blocks(
        build(CALM),
        lambda b: {"seconds": seconds} if (b.rung, b.round, b.rank) == ("node", 1, rank) else {},
    )
    says = r" is damaged: rank \d's steps under node in round 1 are said to take (nan|inf|-0\.5|0) s; profile again$"
    with pytest.raises(ArtefactError, match=rf"^runs/a\.stash\.json{says}"):
        attribute(damaged, "runs/a.stash.json")
    with pytest.raises(ArtefactError, match=rf"^the profile of 'train\.py'{says}"):
        attribute(damaged)
