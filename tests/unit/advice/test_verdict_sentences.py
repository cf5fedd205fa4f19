"""What Stash says about a breakdown, and which steps it puts first."""

from __future__ import annotations

import pytest
from breakdowns import CALM, FETCH, PREP, advice_for, flat
from profile_builder import build, own_launches

from stash.analysis.attribution import attribute
from stash.core.records.profile import Collective, Rate

SMALL = {"solo": 0.1, "crowd": 0.101, "node": 0.102, "warm": 0.103, "cold": 0.104}


def test_without_stalls_the_verdict_is_compute():
    advice = advice_for(build(flat(**SMALL)))
    assert (advice.kind, advice.stall) == ("compute", "compute")
    assert advice.text == (
        "Compute takes 100.0 ± 1.6 ms of every 104.0 ms step (96.1%): "
        "stalls are no obstacle here, each is below 5% of the step."
    )


def test_a_stall_that_was_not_measured_may_be_an_obstacle():
    why = "97% of the pages stayed in memory after eviction"
    advice = advice_for(build(flat(**SMALL), skipped={"cold": why}))
    assert advice.stall == "compute"
    assert advice.text.endswith(
        "(97.1%): every measured stall is below 5% of the step. Unknown: fetch."
    )


def test_without_a_loader_what_compute_contains_is_unknown():
    profile = build(
        flat(solo=0.1, crowd=0.101, node=0.102),
        skipped=dict.fromkeys(("warm", "cold"), "no data loader was seen; wrap yours"),
        workload={"loaders": ()},
    )
    advice = advice_for(profile)
    assert (advice.kind, advice.stall, advice.stalls) == ("cannot tell", None, ())
    assert (
        "compute (98.0% of the step) contains prep and fetch, which were not measured"
        in advice.text
    )
    assert advice.next_steps == (
        "Tell prep and fetch from compute: no data loader was seen; wrap yours.",
    )


@pytest.mark.parametrize(("share", "kind"), [(0.004, "compute"), (0.2, "cannot tell")])
def test_without_a_loader_the_time_before_the_forward_pass_bounds_what_batches_take(share, kind):
    profile = build(
        flat(solo=0.1),
        skipped=dict.fromkeys(("warm", "cold"), "no data loader was seen; wrap yours"),
        workload={"loaders": (), "before_forward": share},
    )
    breakdown, advice = attribute(profile), advice_for(profile)
    assert advice.kind == kind
    if kind == "compute":
        assert "what no loader prepares takes at most 0.4%." in advice.text
        assert "0.4% of a step passes before its first forward pass" in breakdown.skipped[-1].why
    else:
        assert (
            breakdown.skipped[-1].why == "no data loader was seen; wrap yours; contained in compute"
        )


@pytest.mark.parametrize(
    ("placed", "kind"), [(True, "compute"), (False, "cannot tell"), (None, "cannot tell")]
)
def test_copies_before_the_forward_pass_are_within_what_passes_until_then(placed, kind):
    why = "no data loader to replay batches from"
    profile = build(
        flat(solo=0.1),
        device="cuda",
        skipped=dict.fromkeys(("resident", "warm", "cold"), why),
        workload={"loaders": (), "before_forward": 0.004, "inputs_placed": placed},
    )
    assert advice_for(profile).kind == kind


def test_rungs_left_out_that_compute_contains_are_to_be_measured():
    advice = advice_for(build(flat(node=0.1, warm=0.101, cold=0.101)))
    assert advice.next_steps == (
        "Profile again without --rungs, which left out contention and interconnect.",
    )


def test_the_largest_stall_dominates_even_if_compute_is_larger():
    advice = advice_for(build(flat(solo=0.1, crowd=0.105, node=0.12)))
    assert (advice.kind, advice.stall, advice.stalls) == (
        "stall",
        "interconnect",
        ("interconnect",),
    )
    assert advice.text.startswith(
        "Compute is most of every 120.0 ms step: 100.0 ± 1.7 ms (83.3%). The largest stall is "
    )
    assert "The largest stall is interconnect, 15.0 ± 2.9 ms (12.5%)." in advice.text


def test_within_wide_intervals_it_cannot_tell_and_says_what_would_decide():
    times = {"solo": [0.10, 0.10, 0.10, 0.10], "crowd": [0.10, 0.14, 0.08, 0.12]}
    advice = advice_for(build(times))
    assert (advice.kind, advice.stall) == ("cannot tell", None)
    (stall,) = advice.open
    most = f"{stall.high * 1e3:.1f} ms (46%)"
    assert advice.text == (
        "Compute is most of every 110.0 ms step: 100.0 ± 1.6 ms (90.9%). "
        f"Which stall matters is not known yet: contention may take up to {most}."
    )
    assert advice.next_steps[0].startswith(
        f"Profile again with `--budget {advice.budget_seconds:g}s`: "
    )
    assert "saves" not in " ".join(advice.next_steps)


def test_beside_a_larger_uncertain_one_a_certain_stall_is_told_but_does_not_dominate():
    times = {"solo": [0.1] * 4, "crowd": [0.11] * 4, "node": [0.12, 0.17, 0.10, 0.15]}
    advice = advice_for(build(times))
    assert (advice.kind, advice.stall) == ("cannot tell", None)
    assert advice.text == (
        "Compute is most of every 135.0 ms step: 100.0 ± 1.8 ms (74.1%). "
        "Which stall matters is not known yet: interconnect may take up to 74.6 ms (55%). "
        "Certain is contention: 10.0 ± 1.3 ms (7.4%)."
    )
    assert advice.next_steps[1].startswith("Against contention: run fewer ranks on a node")


def test_one_that_may_be_nearly_as_large_is_mentioned():
    times = {
        "solo": [0.1] * 4,
        "crowd": [0.14, 0.16, 0.145, 0.155],
        "node": [0.14, 0.20, 0.125, 0.175],
    }
    advice = advice_for(build(times))
    assert advice.stall == "contention"
    assert "Others are not known well enough: interconnect may take up to " in advice.text


def test_two_stalls_that_tie_are_both_named_with_a_remedy_of_each():
    times = {"solo": [0.1] * 3, "crowd": [0.118, 0.122, 0.120], "node": [0.140, 0.142, 0.139]}
    advice = advice_for(build(times))
    assert (advice.kind, advice.stall, advice.stalls) == (
        "tie",
        "interconnect",
        ("interconnect", "contention"),
    )
    assert "The interconnect and contention stalls take 20.3 ± 4.8 ms" in advice.text
    assert "(14.5%) and 20.0 ± 5.2 ms (14.2%); which is the largest is not known" in advice.text
    assert [step.split(":")[0] for step in advice.next_steps[:2]] == [
        "Against interconnect",
        "Against contention",
    ]


def test_fewer_than_three_rounds_or_sets_of_launches_make_no_verdict():
    two = {name: values[:2] for name, values in CALM.items()}
    for profile, what in (
        (build(two), "Two rounds were"),
        (own_launches(sets=2), "Two sets of launches were"),
    ):
        advice = advice_for(profile)
        assert (advice.kind, advice.stall, advice.stalls) == ("estimate", None, ())
        assert advice.text.startswith(
            f"{what} measured: an estimate of each stall, and no verdict."
        )


def test_a_single_round_is_an_estimate_without_a_verdict():
    profile = build(flat(1, **PREP), block_extra={"warm": {"wait_seconds": 0.04}})
    advice = advice_for(profile)
    assert (advice.kind, advice.stall, advice.stalls) == ("estimate", None, ())
    assert advice.text == (
        "One round was measured: an estimate of each stall, and no verdict. "
        "Rungs differ by 100.0 ms a step for prep; steps waited 4.00 ms for the loader."
    )
    assert advice.next_steps == ("Profile again with `--budget 210s`: about 5 rounds.",)


def test_at_most_three_steps_are_given_the_most_valuable_first():
    runs = (Collective(scope="world", ranks=4, bytes=100_000_000, seconds=0.12),)
    work = {"precision": "float32", "bucket_bytes": (10_000_000, 90_000_000)}
    times = flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.2)
    advice = advice_for(
        build(times, ranks=4, nodes=2, device="cuda", collectives=runs, workload=work)
    )
    assert advice.stall == "network"
    assert len(advice.next_steps) == 3
    # accumulation saves 3/4 of the 100 ms stall
    assert "no_sync" in advice.next_steps[0]
    assert "saves about 75.0 ms for every 32 samples (37%)" in advice.next_steps[0]
    # twice the batch has one exchange for two steps' samples
    assert "Double the batch" in advice.next_steps[1]
    assert "saves about 50.0 ms for every 32 samples (25%)" in advice.next_steps[1]
    assert "fp16_compress_hook" in advice.next_steps[2]


def _hiding(loader_rate: float):
    """Interconnect 100 of 200 ms; 16 samples a step from loaders of the given rate per rank."""
    rates = tuple(
        Rate(feed="warm", rank=r, round=3, samples=80, seconds=80 / loader_rate) for r in range(2)
    )
    return build(flat(solo=0.1, crowd=0.1, node=0.2, warm=0.2), rates=rates)


def test_what_surfaces_next_is_said_and_limits_what_is_saved():
    # loaders alone: 140 ms a step, so at most 60 of 100 ms are won
    advice = advice_for(_hiding(16 / 2 / 0.14))
    assert "Removing it leaves a prep stall of 40.0 ms, hidden behind it now." in advice.text
    assert "saves about 59.8 ms for every 16 samples (30%)" in advice.next_steps[0]
    assert advice.next_steps[-1].startswith("Then, against prep: use num_workers=2 instead of 1")


def test_a_hidden_stall_that_eats_most_of_the_gain_comes_first():
    advice = advice_for(_hiding(16 / 2 / 0.19))
    assert advice.next_steps[0].startswith("First, against prep:")
    # once that is done
    assert "saves about 74.8 ms for every 16 samples (37%)" in advice.next_steps[1]


@pytest.mark.parametrize("rounds", [1, 3])
def test_every_step_is_a_sentence(rounds):
    for times in (PREP, FETCH, {"solo": 0.1, "crowd": 0.2}, {"solo": 0.1}):
        advice = advice_for(build(flat(rounds, **times)))
        assert advice.next_steps
        for text in (advice.text, *advice.next_steps):
            assert text[0].isupper()
            assert text.endswith(".")
            assert ".." not in text
