"""What may be claimed: of random profiles nothing is, beyond what their intervals allow."""

from __future__ import annotations

import numpy as np
import pytest
from breakdowns import advice_for
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build

from stash.base.records import Profile
from stash.derive.advise.claims import decisive_width, may_claim, width
from stash.derive.stalls import attribute

RUNGS = ("solo", "crowd", "node", "warm", "cold")


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """One to eight rounds of some rungs, each stall nothing to half a step, with noise of up to a third."""
    rounds, noise = draw(st.integers(1, 8)), draw(st.sampled_from([0.0, 0.003, 0.02, 0.1, 0.3]))
    rungs = draw(st.lists(st.sampled_from(RUNGS), min_size=1, unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    times, base = {}, 0.1
    for name in sorted(rungs, key=RUNGS.index):
        times[name] = (base * rng.lognormal(0, noise, rounds)).tolist()
        base += draw(st.sampled_from([0.0, 0.001, 0.004, 0.02, 0.1]))
    loaders = draw(st.booleans())
    return build(times, workload=None if loaders or {"warm", "cold"} & times.keys() else {"loaders": ()})


@given(profiles())
@settings(max_examples=150, deadline=None)
def test_nothing_is_claimed_beyond_the_intervals(profile):
    breakdown = attribute(profile)
    advice = advice_for(profile)
    words = " ".join((advice.text, *advice.next_steps))
    stalls = [stall for stall in breakdown.stalls if stall.name != "compute"]
    small = all(stall.high is not None and stall.high <= 0.05 * breakdown.step_seconds for stall in stalls)
    unknown = [missing for missing in breakdown.skipped if missing.possible]
    if not small or unknown or breakdown.rounds == 1:
        assert "no obstacle" not in words
    if advice.stall == "compute":
        assert small
        assert not any(missing.contained_in == "compute" for missing in unknown)
    named = [stall for stall in stalls if stall.name in advice.stalls]
    assert all(stall.low > 0 and stall.share >= 0.03 for stall in named)
    for other in (stall for stall in stalls if named and stall not in named):
        assert other.high <= named[0].high
    if breakdown.rounds == 1:
        assert advice.stalls == ()
        assert "saves" not in words
    assert (advice.stall is None) == (advice.kind in ("estimate", "cannot tell"))


@given(profiles())
@settings(max_examples=60, deadline=None)
def test_as_narrow_as_is_decisive_every_open_stall_is_decided(profile):
    breakdown = attribute(profile)
    for stall in may_claim(breakdown).open:
        arm = decisive_width(stall, breakdown.step_seconds) * (1 - 1e-9)
        assert 0 < arm <= width(stall)
        narrow = stall.time.model_copy(update={"low": stall.seconds - arm, "high": stall.seconds + arm})
        decided = stall.model_copy(update={"time": narrow})
        stalls = tuple(decided if each == stall else each for each in breakdown.stalls)
        assert decided not in may_claim(breakdown.model_copy(update={"stalls": stalls})).open


def test_the_precision_of_the_default_can_always_tell():
    for share in np.linspace(-0.02, 0.12, 57):
        stall, arm = 0.1 * share, 0.1 * 0.0199
        rounds = [stall - arm / 4.303 * 3**0.5, stall, stall + arm / 4.303 * 3**0.5]
        solo = [0.1 - each for each in rounds]
        profile = build({"solo": solo, "crowd": [0.1] * 3})
        (found,) = [each for each in attribute(profile).stalls if each.name == "contention"]
        assert found.high - found.seconds == pytest.approx(arm, rel=0.01)
        assert may_claim(attribute(profile)).open == ()
