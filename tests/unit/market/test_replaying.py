"""Every policy on markets drawn at random: each dollar has a part."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stash.market.policies import policy
from stash.market.replaying import UncoveredError, check_parts, play
from tests.support.small_markets import FREE, START, job, offer, small, trace
from tests.unit.market.test_leases import AWS

A = offer("p3@us-east-1a")
B = offer("p3@us-east-1b")
FIXED = offer("p3@us-east-1z", "on-demand")
HOUR = 3600.0
NAMES = (
    "multi-cloud",
    "daily",
    "spot-wait",
    "uniform-progress",
)


def piece(draw, last):
    found = []
    at = 0.0
    while at < last:
        found.append((at, float(draw(st.integers(5, 80))), draw(st.sampled_from([1, 1, 1, 0]))))
        at += draw(st.integers(10, 300)) * 60
    return found


@st.composite
def markets(draw):
    pieces = {each: piece(draw, 20 * HOUR) for each in (A, B)}
    work = job(
        float(draw(st.integers(60, 300)) * 60),
        boot=float(draw(st.integers(0, 600))),
        checkpoint_every=draw(st.sampled_from([600.0, 1800.0, None])),
        save=float(draw(st.integers(0, 60))),
        checkpoint=float(draw(st.sampled_from([0, 10e9]))),
        data=float(draw(st.sampled_from([0, 20e9]))),
        data_in=draw(st.sampled_from(["us-east-1", "gcp"])),
    )
    return trace({**pieces, FIXED: [(0, 90.0, 9)]}, 40 * HOUR), work


@settings(max_examples=20, deadline=None)
@given(markets(), st.sampled_from([FREE, AWS]))
def test_every_dollar_of_every_policy_has_a_part(drawn, fees):
    market = small(*drawn, fees)
    for name in NAMES:
        try:
            run = play(market, policy(name, market), START, 12 * HOUR)
        except UncoveredError:
            continue
        check_parts(run)
