"""What may be claimed: of random profiles nothing is, beyond what their intervals allow."""

import numpy as np
import pytest
from breakdowns import advice_for, flat
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profile_builder import build

from stash.advice.claims import decisive_width, may_claim
from stash.analysis.attribution import attribute
from stash.analysis.uncertainty import launch_error
from stash.core.intervals import Interval

RUNGS = ("solo", "crowd", "node", "warm", "cold")


def some_profile(seed):
    """One to eight rounds of some rungs, each stall nothing to half a step, with noise of up to a third."""
    rng = np.random.default_rng(seed)
    rounds, noise = int(rng.integers(1, 9)), 10 ** rng.uniform(-3, -0.5)
    lowest, highest = sorted(rng.choice(len(RUNGS) + 1, 2, replace=False).tolist())
    rungs = RUNGS[lowest:highest]
    means = 0.1 + np.cumsum(rng.choice([0.0, 0.001, 0.004, 0.02, 0.1], len(rungs)))
    times = {
        name: (mean * rng.lognormal(0, noise, rounds)).tolist()
        for name, mean in zip(rungs, means, strict=True)
    }
    seen = "warm" in times or "cold" in times or rng.random() < 0.5
    return build(times, workload=None if seen else {"loaders": ()})


def profiles():
    return st.integers(0, 2**31).map(some_profile)


@given(profiles())
@example(some_profile(37825962))  # a tie in which the larger one is not the first of the ladder
@example(some_profile(4753))  # a stall above a tenth of the step, and far below compute
@settings(max_examples=300, deadline=None)
def test_nothing_is_claimed_beyond_the_intervals(profile):
    breakdown = attribute(profile)
    advice = advice_for(profile)
    words = " ".join((advice.text, *advice.next_steps))
    stalls = [stall for stall in breakdown.stalls if stall.name != "compute"]
    small = all(
        stall.high is not None and stall.high <= 0.1 * breakdown.step_seconds for stall in stalls
    )
    unknown = [missing for missing in breakdown.skipped if missing.possible]
    if not small or unknown or breakdown.rounds == 1:
        assert "no obstacle" not in words
    if advice.stall == "compute":
        compute = breakdown.stall("compute")
        assert small or all(
            stall.high <= 0.2 * min(compute.low, breakdown.step_seconds) for stall in stalls
        )
        assert not any(missing.contained_in == "compute" for missing in unknown)
    named = [stall for stall in stalls if stall.name in advice.stalls]
    assert all(stall.low >= 0.03 * breakdown.step_seconds for stall in named)
    for other in (stall for stall in stalls if named and stall not in named):
        largest = max(named, key=lambda stall: stall.seconds)
        # a minor one is no rival
        assert other.high <= max(largest.high, 0.1 * breakdown.step_seconds)
    if breakdown.rounds == 1:
        assert advice.stalls == ()
        # a forecast of one round is only said of what may be
        assert all(step.startswith("If it is") for step in advice.next_steps if "saves" in step)
    assert (advice.stall is None) == (advice.kind in ("estimate", "cannot tell"))


@given(st.lists(st.tuples(st.floats(-0.02, 0.12), st.floats(0.0, 0.12)), min_size=2, max_size=2))
@settings(max_examples=300, deadline=None)
def test_compute_dominates_only_where_no_stall_can_come_near_it(shares):
    contention, interconnect = (share for share, _ in shares)
    breakdown = attribute(
        build(flat(solo=0.1, crowd=0.1 + contention, node=0.1 + contention + interconnect))
    )
    arms = {"contention": shares[0][1], "interconnect": shares[1][1], "compute": 0.0}
    stalls = tuple(
        stall.model_copy(
            update={
                "time": Interval(
                    value=stall.seconds, low=stall.seconds - arm, high=stall.seconds + arm
                )
            }
        )
        for stall in breakdown.stalls
        for arm in (arms[stall.name] * breakdown.step_seconds,)
    )
    found = may_claim(breakdown.model_copy(update={"stalls": stalls}))
    ends = [stall.high / breakdown.step_seconds for stall in stalls[1:]]
    if found.kind == "compute":
        assert max(ends) <= 0.2 * stalls[0].low / breakdown.step_seconds + 1e-9 or max(ends) <= 0.1
    elif max(ends) <= 0.1:
        assert found.certain  # one that certainly takes 3 % is worth a sentence


@given(profiles())
@settings(max_examples=100, deadline=None)
def test_as_narrow_as_is_decisive_every_open_stall_is_decided(profile):
    breakdown = attribute(profile)
    for stall in may_claim(breakdown).open:
        arm = decisive_width(stall, breakdown.step_seconds) * (1 - 1e-9)
        assert 0 < arm <= stall.width
        narrow = stall.time.model_copy(
            update={"low": stall.seconds - arm, "high": stall.seconds + arm}
        )
        decided = stall.model_copy(update={"time": narrow})
        stalls = tuple(decided if each == stall else each for each in breakdown.stalls)
        assert decided not in may_claim(breakdown.model_copy(update={"stalls": stalls})).open


def test_a_stall_known_to_two_percent_of_the_step_is_never_open():
    for share in np.linspace(-0.02, 0.12, 57):
        stall, arm = 0.1 * share, 0.1 * 0.0199
        noise = (arm**2 - launch_error(0.1) ** 2) ** 0.5 / 4.303 * 3**0.5
        rounds = [stall - noise, stall, stall + noise]
        solo = [0.1 - each for each in rounds]
        profile = build({"solo": solo, "crowd": [0.1] * 3})
        (found,) = [each for each in attribute(profile).stalls if each.name == "contention"]
        assert found.high - found.seconds == pytest.approx(arm, rel=0.01)
        assert may_claim(attribute(profile)).open == ()
