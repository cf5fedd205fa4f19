"""From blocks to a breakdown: hand-worked stalls, what is unknown and why, second opinions, warnings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build

from stash.base.errors import StashError
from stash.base.ladder import STALLS
from stash.base.records import Collective, Profile, Rate
from stash.derive.stalls import attribute, step_matrix

CALM = {
    "solo": [0.100] * 3,
    "crowd": [0.104] * 3,
    "node": [0.140] * 3,
    "warm": [0.170] * 3,
    "cold": [0.176] * 3,
}


def seconds(breakdown) -> dict[str, float]:
    return {stall.name: round(stall.seconds, 9) for stall in breakdown.stalls}


def unknown(breakdown) -> dict[str, str]:
    return {missing.name: missing.why for missing in breakdown.skipped}


def without_blocks(profile: Profile, drop) -> Profile:
    return profile.model_copy(update={"blocks": tuple(b for b in profile.blocks if not drop(b))})


# --- the matrix ---


def test_the_step_of_the_job_is_the_slowest_ranks():
    ladder = step_matrix(build({"solo": [0.1], "crowd": [0.2]}, ranks=4, factors={0: 0.5, 1: 0.9}))
    assert ladder.rungs == ("solo", "crowd")
    assert ladder.rounds == (0,)
    assert ladder.matrix.tolist() == [[pytest.approx(0.1), pytest.approx(0.2)]]


def test_a_round_without_all_ranks_is_not_complete():
    profile = without_blocks(build(CALM), lambda b: b.round == 1 and b.rung == "node" and b.rank == 1)
    assert step_matrix(profile).rounds == (0, 2)


def test_a_round_that_was_interrupted_is_ignored():
    profile = without_blocks(build(CALM), lambda b: b.round == 2 and b.rung in ("warm", "cold"))
    assert attribute(profile).rounds == 2


def test_a_skipped_rung_is_no_part_of_the_ladder_even_if_it_has_blocks():
    breakdown = attribute(build(CALM, skipped={"cold": "files stayed in the page cache"}))
    assert breakdown.rungs == ("solo", "crowd", "node", "warm")
    assert breakdown.step_seconds == pytest.approx(0.170)
    assert unknown(breakdown)["fetch"] == "files stayed in the page cache"


def test_two_blocks_of_a_rank_in_one_round_count_as_one():
    profile = build({"solo": [0.1], "crowd": [0.2]})
    slower = profile.blocks[0].model_copy(update={"seconds": 6.0, "steps": 30})
    profile = profile.model_copy(update={"blocks": (*profile.blocks, slower)})
    assert step_matrix(profile).matrix[0, 0] == pytest.approx((1.0 + 6.0) / 40)


def test_no_complete_round_is_an_error_that_says_what_is_missing():
    profile = without_blocks(build(CALM, ended="interrupted"), lambda b: b.rung == "cold")
    with pytest.raises(StashError, match=r"no complete round: nothing was measured under cold.*interrupted"):
        attribute(profile)


# --- the stalls ---


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


def test_a_negative_difference_is_shown_as_it_is():
    breakdown = attribute(build({"solo": [0.10, 0.11, 0.10], "crowd": [0.09, 0.11, 0.10]}))
    assert breakdown.stall("contention").seconds == pytest.approx(-0.01 / 3)
    assert breakdown.stall("contention").within_noise


def test_one_round_leaves_intervals_unknown():
    breakdown = attribute(build({name: values[:1] for name, values in CALM.items()}))
    assert {(stall.low, stall.high) for stall in breakdown.stalls} == {(None, None)}
    assert not any(stall.within_noise for stall in breakdown.stalls)
    assert "Only one round" in breakdown.stability.warnings[0]


def test_without_a_batch_size_the_rate_is_unknown():
    assert attribute(build(CALM, batch=None)).samples_per_second is None


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
    assert breakdown.rounds + breakdown.rounds_dropped == rounds
    told = [stall.name for stall in breakdown.stalls] + [missing.name for missing in breakdown.skipped]
    assert sorted(told) == sorted(STALLS)


def test_dropping_a_disturbed_round_keeps_the_sum():
    times = {name: [values[0] * (1 + 0.001 * (i % 3)) for i in range(8)] for name, values in CALM.items()}
    times["node"][5] = 0.5
    breakdown = attribute(build(times))
    assert (breakdown.rounds, breakdown.rounds_dropped) == (7, 1)
    assert sum(seconds(breakdown).values()) == pytest.approx(breakdown.step_seconds, abs=1e-8)
    assert any("1 of 8 rounds was disturbed" in warning for warning in breakdown.stability.warnings)


# --- rungs left out ---


def test_one_device_per_node_has_a_network_stall_and_no_interconnect():
    times = {"solo": [0.1] * 3, "crowd": [0.11] * 3, "cluster": [0.2] * 3}
    breakdown = attribute(build(times, ranks=2, nodes=2))
    assert seconds(breakdown)["network"] == pytest.approx(0.09)
    assert unknown(breakdown)["interconnect"] == "one device per node"
    assert breakdown.paper.network_pct == pytest.approx((0.2 - 0.11) / 0.11 * 100)
    assert breakdown.paper.interconnect_pct is None


def test_a_node_rung_left_out_hides_its_stall_in_the_network_and_says_so():
    times = {"solo": [0.1] * 3, "crowd": [0.11] * 3, "cluster": [0.2] * 3}
    breakdown = attribute(build(times, ranks=4, nodes=2))
    assert seconds(breakdown)["network"] == pytest.approx(0.09)
    assert unknown(breakdown)["interconnect"] == "not asked for (--rungs); contained in network"
    assert breakdown.paper.network_pct is None


def test_the_first_rung_is_compute_whatever_it_is():
    breakdown = attribute(build({"cluster": [0.2] * 3, "warm": [0.3] * 3}, ranks=4, nodes=2, device="cuda"))
    assert seconds(breakdown) == {"compute": 0.2, "prep": 0.1}
    reasons = unknown(breakdown)
    for name in ("transfer", "contention", "interconnect", "network"):
        assert reasons[name].endswith("contained in compute")
    assert reasons["fetch"] == "not asked for (--rungs)"


def test_without_resident_a_gpus_compute_contains_the_transfer():
    breakdown = attribute(build({"solo": [0.1] * 3, "crowd": [0.1] * 3}, device="cuda"))
    assert unknown(breakdown)["transfer"] == "not asked for (--rungs); contained in compute"


# --- the paper ---


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


# --- second opinions ---


def test_a_rank_slower_in_every_round_is_named():
    factors = {rank: 0.8 for rank in range(4) if rank != 2}
    slow = attribute(build(CALM, ranks=4, factors=factors)).slow_rank
    assert slow is not None
    assert (slow.rank, round(slow.seconds, 6), round(slow.others_seconds, 6)) == (2, 0.104, 0.0832)


def test_a_rank_slower_by_less_than_5_percent_or_only_once_is_not_named():
    assert attribute(build(CALM, ranks=4, factors={0: 0.96, 1: 0.96, 3: 0.96})).slow_rank is None
    profile = build(CALM, ranks=4)
    once = tuple(
        b.model_copy(update={"seconds": b.seconds * 1.4}) if (b.rung, b.rank, b.round) == ("crowd", 2, 1) else b
        for b in profile.blocks
    )
    assert attribute(profile.model_copy(update={"blocks": once})).slow_rank is None


def _loader_rates(feed: str, ranks: int, samples_per_second: float) -> tuple[Rate, ...]:
    return tuple(
        Rate(feed=feed, rank=r, round=3, samples=100, seconds=100 / samples_per_second) for r in range(ranks)
    )


def test_rates_are_those_of_the_whole_job():
    breakdown = attribute(build(CALM, rates=_loader_rates("warm", 2, 50) + _loader_rates("cold", 2, 45)))
    assert breakdown.rates.device == pytest.approx(16 / 0.140)
    assert breakdown.rates.prep == pytest.approx(100)
    assert breakdown.rates.fetch == pytest.approx(90)


def test_a_rate_that_not_every_rank_measured_is_unknown():
    assert attribute(build(CALM, rates=_loader_rates("warm", 1, 50))).rates.prep is None


def test_communication_is_total_from_collectives_and_exposed_from_stalls():
    runs = tuple(Collective(scope="node", ranks=2, bytes=40_000_000, seconds=s) for s in (0.05, 0.04, 0.09))
    exchange = attribute(build(CALM, collectives=runs, workload={"bucket_bytes": (10, 20)})).communication
    assert exchange.total_seconds == pytest.approx(0.05)  # the median
    assert exchange.exposed_seconds == pytest.approx(0.036)
    assert exchange.bytes == 30
    assert exchange.wire_bytes_per_second == pytest.approx(40e6 / 0.05)  # 2(p-1)/p is 1 for two ranks


def test_a_prep_stall_hidden_behind_the_exchange_surfaces():
    # 16 samples a step at 100/s: the loaders need 160 ms; without the interconnect the step would take 140
    breakdown = attribute(build(CALM, rates=_loader_rates("warm", 2, 50)))
    (hidden,) = breakdown.surfacing
    assert (hidden.removed, hidden.appears) == ("interconnect", "prep")
    assert hidden.seconds == pytest.approx(0.160 - (0.176 - 0.036))


def test_nothing_surfaces_behind_fast_loaders():
    assert attribute(build(CALM, rates=_loader_rates("warm", 2, 500))).surfacing == ()


def test_slow_storage_surfaces_as_fetch():
    rates = _loader_rates("warm", 2, 500) + _loader_rates("cold", 2, 50)
    (hidden,) = attribute(build(CALM, rates=rates)).surfacing
    assert hidden.appears == "fetch"


def test_two_estimators_that_agree_are_not_mentioned():
    extra = {"warm": {"wait_seconds": 0.29}, "cold": {"wait_seconds": 0.35}}  # of 10 steps
    assert attribute(build(CALM, block_extra=extra)).notes == ()


def test_two_estimators_that_disagree_are_both_reported():
    (note,) = attribute(build(CALM, block_extra={"warm": {"wait_seconds": 0.05}})).notes
    assert "30.0 ms by difference, 5.00 ms waited" in note
    assert "competing for cores" in note


# --- stability ---


def _noisy(rounds: int, scale: float, seed: int = 1) -> dict[str, list[float]]:
    rng = np.random.default_rng(seed)
    return {name: (values[0] * (1 + scale * rng.standard_normal(rounds))).tolist() for name, values in CALM.items()}


def warnings_of(profile: Profile) -> str:
    return " ".join(attribute(profile).stability.warnings)


def test_a_calm_profile_is_stable():
    stability = attribute(build(_noisy(8, 0.003))).stability
    assert stability.ok
    assert stability.warnings == ()


def test_steal_time_is_a_warning_with_advice():
    text = warnings_of(build(_noisy(8, 0.003), host={"steal_fraction": 0.12}))
    assert "12%" in text
    assert "dedicated machine" in text


def test_wide_intervals_are_compared_with_the_precision_asked_for():
    assert "not the ±2.0% asked for" in warnings_of(build(_noisy(6, 0.05)))


def test_drift_is_a_warning():
    growth = np.linspace(1, 1.3, 10)
    times = {name: (values[0] * growth).tolist() for name, values in CALM.items()}
    assert "slower from the first round to the last" in warnings_of(build(times))


def test_two_speeds_are_a_warning():
    times = {
        name: [values[0] * (1.0 if i % 3 else 1.3) for i in range(9)]
        for name, values in CALM.items()
        if name != "solo"
    }
    assert "The step under crowd takes either 104 ms or 135 ms" in warnings_of(build(times))


def test_two_rounds_are_too_few():
    assert "Only 2 rounds" in warnings_of(build(_noisy(2, 0.001)))


def test_ranks_that_are_equally_fast_on_average_make_no_contention_out_of_noise():
    # Rank 0 is fast in even rounds, rank 1 in odd ones; both take 100 ms on average, like the leader alone.
    profile = build({"solo": [0.1] * 4, "crowd": [0.1] * 4, "node": [0.12] * 4})
    noisy = {(number, rank): 1.1 if (number + rank) % 2 else 0.9 for number in range(4) for rank in range(2)}
    blocks = [
        block.model_copy(update={"seconds": block.seconds * noisy[block.round, block.rank]})
        if block.rung == "crowd"
        else block
        for block in profile.blocks
    ]
    found = seconds(attribute(profile.model_copy(update={"blocks": tuple(blocks)})))
    assert found["contention"] == pytest.approx(0, abs=1e-12)
    assert found["interconnect"] == pytest.approx(0.02)
