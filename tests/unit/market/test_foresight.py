"""Hindsight: a bound that no policy beats, exact on markets that can be worked by hand or tried out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.market.deadline_rules import deadline_policy
from stash.market.decisions import JobMarket
from stash.market.fees import Fees
from stash.market.foresight import foresee
from stash.market.jobs import MarketJob
from stash.market.market_rules import daily, look_ahead, multi_cloud
from stash.market.market_trace import MarketTrace
from stash.market.replaying import UncoveredError, check_parts, play
from tests.support.small_markets import FREE, START, job, offer, small, trace
from tests.unit.market.test_leases import AWS

A, B = offer("p3@us-east-1a"), offer("p3@us-east-1b")
FIXED = offer("p3@us-east-1z", "on-demand")
HOUR = 3600.0
RULES = (
    multi_cloud(), daily(0.0), daily(HOUR), look_ahead(2 * HOUR),
    *(deadline_policy(name) for name in ("spot-wait", "uniform-progress")),
)  # fmt: skip


def piece(draw: st.DrawFn, last: float) -> list[tuple[float, float, int]]:
    found, at = [], 0.0
    while at < last:
        found.append((at, float(draw(st.integers(5, 80))), draw(st.sampled_from([1, 1, 1, 0]))))
        at += draw(st.integers(10, 300)) * 60
    return found


@st.composite
def markets(draw: st.DrawFn) -> tuple[MarketTrace, MarketJob]:
    pieces = {each: piece(draw, 20 * HOUR) for each in (A, B)}
    every = draw(st.sampled_from([600.0, 1800.0, None]))
    work = job(
        float(draw(st.integers(60, 300)) * 60), boot=float(draw(st.integers(0, 600))), checkpoint_every=every,
        save=float(draw(st.integers(0, 60))), checkpoint=float(draw(st.sampled_from([0, 10e9]))), fetch=250e6,
        data=float(draw(st.sampled_from([0, 20e9]))), data_in="us-east-1",
    )  # fmt: skip
    return trace({**pieces, FIXED: [(0, 90.0, 9)]}, 40 * HOUR), work


def played(market: JobMarket, deadline: float) -> list[tuple[str, float]]:
    """Dollars of every policy that was in time."""
    found = []
    for rule in RULES:
        try:
            run = play(market, rule, START, deadline)
        except UncoveredError:
            continue
        check_parts(run)
        if not run.late:
            found.append((rule.name, run.dollars))
    return found


@settings(max_examples=20, deadline=None)
@given(markets(), st.sampled_from([FREE, AWS]))
def test_no_policy_is_cheaper_than_hindsight_s_bound_and_every_dollar_has_a_part(
    drawn: tuple[MarketTrace, MarketJob], fees: Fees
) -> None:
    market = small(*drawn, fees)
    known = foresee(market, START, START + 12 * HOUR)
    runs = played(market, 12 * HOUR)
    if known.bound is None:
        assert runs == []
        return
    for name, dollars in runs:
        assert dollars >= known.bound * (1 - 1e-7), name


def test_the_cheapest_hours_by_hand() -> None:
    # Three hours of work; hours cost 3, 1, 2, 1, 5 dollars, and a start takes no time: 1 + 1 + 2.
    pieces = {A: [(hour * HOUR, price, 1) for hour, price in enumerate((3.0, 1.0, 2.0, 1.0, 5.0))]}
    known = foresee(small(trace(pieces, 5 * HOUR), job(3 * HOUR)), START, START + 5 * HOUR)
    assert known.bound == pytest.approx(4.0, rel=1e-3)
    assert known.earliest == pytest.approx(3 * HOUR)


def test_nothing_is_known_where_nobody_can_be_in_time() -> None:
    market = small(trace({A: [(0, 1.0, 1), (HOUR, 1.0, 0)]}, 5 * HOUR), job(2 * HOUR))
    known = foresee(market, START, START + 5 * HOUR)
    assert (known.bound, known.earliest) == (None, None)


def test_no_course_of_a_small_market_is_cheaper_than_the_bound_and_the_best_is_near_it() -> None:
    """Against every way of holding one of two offers, or none, through each of six hours."""
    random = np.random.default_rng(5)
    for _ in range(5):
        prices = random.integers(1, 9, (2, 6)).astype(float)
        pieces = {each: [(h * HOUR, prices[row, h], 1) for h in range(6)] for row, each in enumerate((A, B))}
        market = small(trace(pieces, 6 * HOUR), job(2.5 * HOUR, boot=0.5 * HOUR))
        best = min(
            cost
            for held in itertools.product((-1, 0, 1), repeat=6)
            if (cost := _cost(held, prices, work=2.5, boot=0.5)) is not None
        )
        known = foresee(market, START, START + 6 * HOUR)
        assert known.bound <= best * (1 + 1e-3)  # which may also start within an hour
        assert known.bound >= 0.7 * best


def _cost(held: tuple[int, ...], prices: np.ndarray, work: float, boot: float) -> float | None:  # type: ignore[type-arg]
    left, dollars, before = work, 0.0, -1
    for hour, offer_held in enumerate(held):
        if offer_held >= 0:
            useful = 1.0 - (boot if offer_held != before else 0.0)
            if left <= useful:
                return dollars + prices[offer_held, hour] * (1.0 - useful + left)
            left, dollars = left - useful, dollars + prices[offer_held, hour]
        before = offer_held
    return None
