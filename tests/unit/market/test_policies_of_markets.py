"""What policies may ask and answer, and what a backtest makes of those that go wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stash.core.errors import UserError
from stash.market.advising import advise, held_offer
from stash.market.backtest import impossible, replay, summaries
from stash.market.deadline_rules import deadline_policy
from stash.market.decisions import JobState, LookAheadError, MoveTo, OfferBoard, Policy, Stay, Wait
from stash.market.fees import published_fees
from stash.market.market_rules import daily, policy
from stash.market.replaying import play
from tests.support.small_markets import FREE, START, job, offer, small, trace

HOUR = 3600.0
A, B = offer("p3@us-east-1a"), offer("p3@us-east-1b")
FIXED = offer("p3@us-east-1z", "on-demand")
FLAT = trace({A: [(0, 36.0, 1)], B: [(0, 18.0, 1), (1000, 72.0, 1)]}, 100 * HOUR)


def saying(*answers: Any) -> Policy:
    """A policy that answers so, one after the other, and then stays."""

    def decide(now: float, state: JobState, board: OfferBoard, memory: int) -> Any:
        return (answers[memory] if memory < len(answers) else Stay()), memory + 1

    return Policy("mine", decide, 0)


def test_the_board_ends_now() -> None:
    board = OfferBoard(small(FLAT, job(100)), START + 500)
    assert board.prices.tolist() == [36.0, 18.0]
    assert board.price(1, START + 400) == 18.0
    with pytest.raises(LookAheadError, match="was asked for at 2020-09-13T12:35:00Z: it was not known yet"):
        board.price(1, START + 1001)


def test_ties_go_by_cloud_then_zone() -> None:
    even = trace({B: [(0, 36.0, 1)], A: [(0, 36.0, 1)], offer("p3@us-east-1a", cloud="zed"): [(0, 36.0, 1)]}, 1e5)
    market = small(even, job(100))
    assert market.offers[OfferBoard(market, START + 1).best()] == A


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (("move",), "policy mine answered str at"),
        ((MoveTo(7),), "policy mine named offer 7 at .*; the board has 0 to 1"),
        ([each for _ in range(300) for each in (MoveTo(0, 0.0), Wait(0.0))], "policy mine moves in circles"),
    ],
)
def test_a_policy_that_goes_wrong_is_named(answers: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        play(small(FLAT, job(1e5, boot=100.0)), saying(*answers), START)


def test_a_policy_that_raises_or_rents_what_is_gone_is_named() -> None:
    def broken(now: float, state: JobState, board: OfferBoard, memory: None) -> Any:
        return 1 / 0

    with pytest.raises(
        UserError, match=r"policy bad failed at 2020-09-13T12:26:40Z: ZeroDivisionError: division by zero"
    ):
        play(small(FLAT, job(100)), Policy("bad", broken), START)
    gone = trace({A: [(0, 36.0, 0)], B: [(0, 18.0, 1)]}, 1e5)
    with pytest.raises(UserError, match=r"policy mine moves to p3@us-east-1a .* could not be rented then"):
        play(small(gone, job(100)), saying(MoveTo(0)), START)


def test_a_user_s_own_policy_is_replayed_beside_others() -> None:
    found = replay(FLAT, job(5000), [policy("stay:p3", small(FLAT, job(1))), saying(MoveTo(1))], [START], fees=FREE)
    stay, mine = summaries(found)
    assert stay.mean == mine.mean == pytest.approx((1000 * 18 + 4000 * 72) / 3600)
    assert found.foreseen[0].bound == pytest.approx((1000 * 18 + 4000 * 36) / 3600, rel=1e-3)
    assert stay.regret == pytest.approx(306 / 162 - 1, rel=1e-2)


def test_starts_that_are_not_covered_are_left_out_with_a_reason() -> None:
    late = offer("NC6@us_easta", cloud="azure")
    market = trace({A: [(0, 36.0, 1)], late: [(50 * HOUR, 1.0, 1)]}, 200 * HOUR)
    found = replay(market, job(HOUR, {"p3": 1.0, "NC6": 1.0}), ["stay:p3"], "24h", 60 * HOUR, fees=FREE)
    assert found.left_out == {"azure's prices begin later": 2, "the deadline is after the last price": 2}
    assert len(found.starts) == 4


def test_a_job_longer_than_the_record_and_a_deadline_nobody_meets_are_said() -> None:
    with pytest.raises(UserError, match=r"nothing can be replayed between .* the job takes 500 h|20.8 days"):
        replay(FLAT, job(500 * HOUR), ["stay:p3"], "24h", fees=FREE)
    found = replay(FLAT, job(10 * HOUR, boot=600.0), ["stay:p3"], [START + 2000], 9 * HOUR, fees=FREE)
    assert impossible(found) == (
        "--deadline: no course is done in 9 h: knowing all prices, the job would take 10.2 h from 2020-09-13 on; "
        "allow at least that"
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("stay:p9", "no offer on which the job's speed is known"),
        ("daily:every=soon", "--policy daily:every=soon"),
    ],
)
def test_a_name_that_is_no_policy_is_refused(name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        policy(name, small(FLAT, job(100)))


def spot_market(*there: int) -> Any:
    """An hour each with or without spot machines at a third of the on-demand price."""
    pieces = [(hour * HOUR, 30.0, count) for hour, count in enumerate(there)]
    return trace({A: pieces, FIXED: [(0, 90.0, 9)]}, 100 * HOUR)


def test_uniform_progress_goes_on_demand_once_it_is_behind() -> None:
    market = small(spot_market(*([0] * 20)), job(4 * HOUR, boot=600.0))
    found = play(market, deadline_policy("uniform-progress"), START, 10 * HOUR)
    assert found.leases[0].granted - START == pytest.approx(600)  # nothing is done, and a tick has passed
    assert not found.late


def test_spot_wait_never_rents_on_demand_and_is_late() -> None:
    market = small(spot_market(1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1), job(4 * HOUR, boot=600.0, checkpoint_every=600.0))
    found = play(market, deadline_policy("spot-wait"), START, 6 * HOUR)
    assert found.late
    assert {market.offers[lease.offer] for lease in found.leases} == {A}


def test_deadline_policies_need_a_deadline_and_an_on_demand_offer() -> None:
    with pytest.raises(UserError, match="policy uniform-progress works towards a deadline; give one, like"):
        replay(FLAT, job(100), ["uniform-progress"], [START], fees=FREE)
    with pytest.raises(UserError, match="it needs an on-demand offer, which this market has none of now"):
        replay(FLAT, job(100), ["uniform-progress"], [START], HOUR, fees=FREE)


def test_advice_says_what_moving_saves_and_at_which_price_it_would_not() -> None:
    market = small(FLAT, job(10_000, boot=100.0, save=10.0))
    now = START + 500.0
    found = advise(market, daily(0.0), 0, now)
    assert (found.word, found.to) == ("move", "p3@us-east-1b")
    # 10,000 samples at half a cent less; M = 10 s at 1 cent and 100 s at half a cent.
    assert (found.saves, found.costs) == (pytest.approx(50 - 0.6), pytest.approx(0.6))
    assert found.changes[-2:] == (
        "p3@us-east-1a falls to $18/h (now $36/h)", "p3@us-east-1b rises to $36/h (now $18/h)"
    )  # fmt: skip
    assert advise(market, daily(0.0), 1, now).word == "stay"


def test_an_offer_is_found_by_its_zone_or_its_region() -> None:
    region = trace({offer("p3@us-east-1a")._replace(zone=""): [(0, 1.0, 1)]}, 1e5)
    _, number, note = held_offer(region, "p3@us-east-1c", START + 1)
    assert (number, note) == (0, "us-east-1c has no price of its own: that of us-east-1 is taken")
    with pytest.raises(UserError, match="--on p3@mars: no such offer"):
        held_offer(region, "p3@mars", START + 1)


def test_a_held_offer_whose_record_has_ended_costs_what_its_region_does_now() -> None:
    ended = trace({A: [(0, 1.0, 1), (100, None, None)], A._replace(zone=""): [(200, 2.0, None)]}, 1e5)
    known, number, note = held_offer(ended, "p3@us-east-1a", START + 300)
    assert (known.offers[number], note) == (A, "us-east-1a has no price now: that of us-east-1 is taken")
    assert [float(known.price[known.piece(number, START + at)]) for at in (50, 300)] == [1.0, 2.0]
    known, number, note = held_offer(ended, "p3@us-east-1a", START + 50)
    assert (known.offers[number], note) == (A, None)
    alone = ended.of([ended.offers.index(A)])
    note = held_offer(alone, "p3@us-east-1a", START + 300)[2]
    assert note == "p3@us-east-1a has no price now, so what staying there costs is not known"


@pytest.mark.parametrize(
    ("answer", "held", "says"),
    [
        (Wait(), 0, "Save, give p3@us-east-1a back and wait, says this policy"),
        (Wait(), None, r"Wait, says this policy, though p3@us-east-1b at \$18/h can be rented now"),
        (
            MoveTo(1),
            2,
            "Move to p3@us-east-1b, says this policy: what p3@us-east-1z:on-demand costs now is not known",
        ),
        (MoveTo(0), 1, r"Move to p3@us-east-1a, says this policy, though that costs \$50.40 more, the move included"),
        (Stay(), 2, "Stay on p3@us-east-1z:on-demand, says this policy: what it costs now is not known"),
    ],
)
def test_advice_s_sentence_says_what_the_policy_answers(answer: Any, held: int | None, says: str) -> None:
    gone = trace({A: [(0, 36.0, 1)], B: [(0, 18.0, 1)], FIXED: [(0, 90.0, 9), (100, None, None)]}, 1e5)
    market = small(gone, job(10_000, boot=40.0))
    found = advise(market, Policy("mine", lambda now, state, board, memory: (answer, memory)), held, START + 500.0)
    assert found.word == {Wait: "wait", MoveTo: "move", Stay: "stay"}[type(answer)]
    assert re.match(says, found.sentence)


def test_advice_counts_the_data_s_way_out_of_where_they_lie() -> None:
    market = trace({A: [(0, 36.0, 1)], offer("p3@eu-west-1a"): [(0, 18.0, 1)]}, 1e5)
    found = advise(small(market, job(10_000, data=10e9, fetch=1e12), published_fees()), daily(0.0), 1, START + 500.0)
    assert found.costs == pytest.approx(10 * 0.02, abs=0.001)  # $/GB between regions of AWS
