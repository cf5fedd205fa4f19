"""What Stash says about a breakdown, and which steps it puts first."""

from __future__ import annotations

import pytest
from breakdowns import FETCH, PREP, advice_for, flat
from profile_builder import build

from stash.base.records import Collective, Rate


def test_without_stalls_the_verdict_is_compute():
    advice = advice_for(build(flat(solo=0.1, crowd=0.101, node=0.102)))
    assert advice.stall == "compute"
    assert (
        advice.text == "Compute takes 100 ms of every 102 ms step (98%); no stall beyond the noise reaches 3% of it."
    )


def test_the_largest_stall_dominates_even_if_compute_is_larger():
    advice = advice_for(build(flat(solo=0.1, crowd=0.105, node=0.12)))
    assert advice.stall == "interconnect"
    assert advice.text.startswith("The interconnect stall takes 15.0 ms of every 120 ms step (12%)")


def test_a_stall_within_the_noise_does_not_dominate():
    times = {"solo": [0.10, 0.10, 0.10, 0.10], "crowd": [0.10, 0.14, 0.08, 0.12]}
    assert advice_for(build(times)).stall == "compute"


def test_a_single_round_is_told_as_such():
    assert "single round" in advice_for(build(flat(1, solo=0.1, crowd=0.2))).text


def test_at_most_three_steps_are_given_the_most_valuable_first():
    runs = (Collective(scope="world", ranks=4, bytes=100_000_000, seconds=0.12),)
    work = {"precision": "float32", "bucket_bytes": (10_000_000, 90_000_000)}
    times = flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.2)
    advice = advice_for(build(times, ranks=4, nodes=2, collectives=runs, workload=work))
    assert advice.stall == "network"
    assert len(advice.next_steps) == 3
    # accumulation saves 3/4 of the 100 ms stall, half the bytes half of the 120 ms exchange
    assert "no_sync" in advice.next_steps[0]
    assert "saves up to 75.0 ms a step (38%)" in advice.next_steps[0]
    assert "fp16_compress_hook" in advice.next_steps[1]
    assert "saves up to 60.0 ms a step (30%)" in advice.next_steps[1]


def _hiding(loader_rate: float):
    """Interconnect 100 of 200 ms; 16 samples a step from loaders of the given rate per rank."""
    rates = tuple(Rate(feed="warm", rank=r, round=3, samples=80, seconds=80 / loader_rate) for r in range(2))
    return build(flat(solo=0.1, crowd=0.1, node=0.2, warm=0.2), rates=rates)


def test_what_surfaces_next_is_said_and_limits_what_is_saved():
    advice = advice_for(_hiding(16 / 2 / 0.14))  # loaders alone: 140 ms a step, so at most 60 of 100 ms are won
    assert "Removing it leaves a prep stall of 40.0 ms, hidden behind it now." in advice.text
    assert "saves up to 60.0 ms a step (30%)" in advice.next_steps[0]
    assert advice.next_steps[-1].startswith("Then, against prep: use num_workers=2 instead of 1")


def test_a_hidden_stall_that_eats_most_of_the_gain_comes_first():
    advice = advice_for(_hiding(16 / 2 / 0.19))
    assert advice.next_steps[0].startswith("First, against prep:")
    assert "saves up to 10.0 ms a step (5%)" in advice.next_steps[1]


@pytest.mark.parametrize("rounds", [1, 3])
def test_every_step_is_a_sentence(rounds):
    for times in (PREP, FETCH, {"solo": 0.1, "crowd": 0.2}, {"solo": 0.1}):
        advice = advice_for(build(flat(rounds, **times)))
        assert advice.next_steps
        for text in (advice.text, *advice.next_steps):
            assert text[0].isupper()
            assert text.endswith(".")
            assert ".." not in text
