"""What policies decide, what a backtest makes of them, and what advice says."""

import pytest

from stash.catalog.reference import tariffs
from stash.core.errors import UserError
from stash.market.advising import advise, held_offer
from stash.market.backtest import replay
from stash.market.job_market import JobState, Policy, PolicyDecision
from stash.market.jobs import MarketJob
from stash.market.policies import policy
from stash.market.replaying import play
from tests.support.small_markets import FREE, START, job, offer, small, trace

HOUR = 3600.0
A = offer("p3@us-east-1a")
B = offer("p3@us-east-1b")
FIXED = offer("p3@us-east-1z", "on-demand")
FLAT = trace({A: [(0, 36.0, 1)], B: [(0, 18.0, 1), (1000, 72.0, 1)]}, 100 * HOUR)


def always(decision):
    return Policy("mine", lambda state: decision)


def test_ties_go_by_cloud_then_zone():
    even = trace(
        {B: [(0, 36.0, 1)], A: [(0, 36.0, 1)], offer("p3@us-east-1a", cloud="zed"): [(0, 36.0, 1)]},
        1e5,
    )
    market = small(even, job(100))
    assert market.offers[JobState(market, START + 1, START).best()] == A


def test_a_policy_that_rents_what_is_gone_is_named():
    gone = trace({A: [(0, 36.0, 0)], B: [(0, 18.0, 1)]}, 1e5)
    with pytest.raises(
        UserError, match=r"policy mine rents p3@us-east-1a .* could not be rented then"
    ):
        play(small(gone, job(100)), always(PolicyDecision(0)), START)


def test_a_policy_that_moves_in_circles_is_named(monkeypatch):
    monkeypatch.setattr("stash.market.replaying._MAX_LEASES", 50)
    other = Policy("mine", lambda state: PolicyDecision(int(state.held == 0), until=0.0))
    with pytest.raises(UserError, match="policy mine moves in circles: 50 leases"):
        play(small(FLAT, job(1e5, boot=100.0)), other, START)


def test_a_user_s_own_policy_is_replayed_beside_others():
    found = replay(FLAT, job(5000), ["stay:p3", always(PolicyDecision(1))], [START], fees=FREE)
    assert (
        found.mean("stay:p3") == found.mean("mine") == pytest.approx((1000 * 18 + 4000 * 72) / 3600)
    )


def test_the_offers_that_a_policy_chooses_among():
    other = offer("v@eu-1a", cloud="gcp")
    four = offer("p4@us-east-1a")
    market = trace(
        {A: [(0, 40.0, 1)], B: [(0, 36.0, 1)], four: [(0, 90.0, 1)], other: [(0, 9.0, 1)]}, 1e6
    )
    four_gpus = {"samples_per_second": 4, "gpus": 4}
    work = MarketJob.model_validate({"samples": 100, "rates": {"p3": 1, "v": 1, "p4": four_gpus}})
    found = replay(market, work, ["stay", "multi-cloud"], [START], fees=FREE)
    rented = {
        name: found.market.offers[runs[0].leases[0].offer] for name, runs in found.runs.items()
    }
    assert rented == {"stay:p3": B, "multi-cloud": other}


def test_starts_that_are_not_covered_are_left_out_with_a_reason():
    late = offer("NC6@us_easta", cloud="azure")
    market = trace({A: [(0, 36.0, 1)], late: [(50 * HOUR, 1.0, 1)]}, 200 * HOUR)
    found = replay(
        market, job(HOUR, {"p3": 1.0, "NC6": 1.0}), ["stay:p3"], "24h", 60 * HOUR, fees=FREE
    )
    assert found.left_out == {
        "azure was not watched then": 2,
        "the deadline is after the last price": 2,
    }
    assert len(found.starts) == 4


def test_what_was_never_watched_is_no_offer():
    other = offer("g5@us-east-1a")
    with pytest.raises(UserError, match="no rate for any instance that was watched; add aws/g5"):
        small(trace({A: [(0, None, None)], other: [(0, 1.0, 1)]}, 1e5), job(1))


@pytest.mark.parametrize(
    ("seconds", "policies", "deadline", "says"),
    [
        (
            500 * HOUR,
            ["stay:p3"],
            None,
            r"nothing can be replayed in .* the job takes 20.8 days on the fastest offer",
        ),
        (100, ["stay:p9"], None, "no offer on which the job's speed is known; there are p3"),
        (100, ["daily:every=6h"], None, "there is no such policy; did you mean daily"),
        (100, ["daily", "daily"], None, "policy daily is given twice"),
        (
            100,
            ["uniform-progress"],
            None,
            "policy uniform-progress works towards a deadline; give one, like",
        ),
        (
            100,
            ["uniform-progress"],
            HOUR,
            "it needs an on-demand offer, which this market has none of then",
        ),
    ],
)
def test_what_cannot_be_replayed_is_said(seconds, policies, deadline, says):
    with pytest.raises(UserError, match=says):
        replay(FLAT, job(seconds), policies, "24h", deadline, fees=FREE)


def spot_market(*there):
    """An hour each with or without spot machines at a third of the on-demand price."""
    pieces = [(hour * HOUR, 30.0, count) for hour, count in enumerate(there)]
    return trace({A: pieces, FIXED: [(0, 90.0, 9)]}, 100 * HOUR)


def test_uniform_progress_goes_on_demand_once_it_is_behind():
    market = small(spot_market(*([0] * 20)), job(4 * HOUR, boot=600.0))
    found = play(market, policy("uniform-progress", market), START, 10 * HOUR)
    # nothing is done, and a tick has passed
    assert found.leases[0].granted - START == pytest.approx(600)
    assert not found.late


def test_spot_wait_never_rents_on_demand_and_is_late():
    market = small(
        spot_market(1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1),
        job(4 * HOUR, boot=600.0, checkpoint_every=600.0),
    )
    found = play(market, policy("spot-wait", market), START, 6 * HOUR)
    assert found.late
    assert {market.offers[lease.offer] for lease in found.leases} == {A}


def test_an_offer_is_found_by_its_zone_or_where_that_has_no_price_by_its_region():
    region = A._replace(zone="")
    ended = trace({A: [(0, 1.0, 1), (100, None, None)], region: [(200, 2.0, None)]}, 1e5)
    found = [ended.offers[held_offer(ended, "p3@us-east-1a", START + at)] for at in (50, 300)]
    assert found == [A, region]
    with pytest.raises(UserError, match="--on p3@mars: no such offer has a price now"):
        held_offer(ended, "p3@mars", START + 300)


@pytest.mark.parametrize(
    ("price", "held", "says"),
    [
        (
            18.0,
            0,
            "Move to p3@us-east-1b: that saves $49.40 over what is left, the move's $0.60 paid.",
        ),
        (
            18.0,
            1,
            "Stay on p3@us-east-1b: moving to p3@us-east-1a costs $51.05 more over what is left, the move's",
        ),
        (
            35.9,
            0,
            "Stay on p3@us-east-1a: moving to p3@us-east-1b costs $0.82 more over what is left, the move's $1",
        ),
        (
            35.0,
            0,
            "Move to p3@us-east-1b: that saves $1.71 over what is left, the move's $1.07 paid.",
        ),
        (
            18.0,
            None,
            "Rent p3@us-east-1b at $18/h: the whole job takes 2.81 h, its start included, and costs about",
        ),
    ],
)
def test_advice_compares_what_is_left_to_save_with_what_moving_costs(price, held, says):
    # 10,000 samples, one a second, at a cent where it is; M = 10 s of that and 100 s of where it goes.
    both = trace({A: [(0, 36.0, 1)], B: [(0, price, 1)]}, 100 * HOUR)
    found = advise(small(both, job(10_000, boot=100.0, save=10.0)), held, START + 500.0)
    assert found.sentence.startswith(says)
    assert (found.word == "stay") is says.startswith("Stay")


def test_advice_with_a_deadline_takes_the_cheapest_that_is_in_time_else_the_soonest():
    fast = offer("fast@us-east-1a")
    market = small(
        trace({A: [(0, 36.0, 1)], fast: [(0, 90.0, 1)]}, 100 * HOUR),
        MarketJob.model_validate({"samples": 10_000, "rates": {"p3": 1, "fast": 2}, "boot": 100.0}),
    )
    slow = market.offers.index(A)
    assert advise(market, slow, START + 500.0).word == "stay"
    pressed = advise(market, slow, START + 500.0, deadline=6000.0)
    assert pressed.word == "move"
    assert pressed.sentence.endswith("It is done in 1.42 h; p3@us-east-1a takes 2.78 h.")
    late = advise(market, slow, START + 500.0, deadline=600.0)
    assert "Nothing is done within 10 min: this is the soonest, done in 1.42 h." in late.sentence


def test_advice_counts_the_data_s_way_out_of_where_they_lie():
    market = small(
        trace({A: [(0, 36.0, 1)], offer("p3@eu-west-1a"): [(0, 18.0, 1)]}, 1e5),
        job(10_000, data=10e9, fetch=1e12),
        tariffs(),
    )
    found = advise(market, 1, START + 500.0)
    assert found.costs == pytest.approx(10 * 0.02, abs=0.001)  # $/GB between regions of AWS
