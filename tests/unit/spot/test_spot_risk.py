"""What revocations do to a plan: runs against what is expected, replays worked by hand, when spot is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fleet_pools import published

from stash.core.errors import UserError
from stash.spot.choose.fleet_costs import FleetWish
from stash.spot.choose.provision import provision
from stash.spot.records.fleets import FleetPlan, Uncertainty
from stash.spot.records.risks import FleetRisk, InterruptionBand, Obtainable
from stash.spot.risk.fleet_risk import RiskOptions, mean_of, share_of, with_risk
from stash.spot.risk.lifetimes import HOUR, RevocationRate, rate_of_band
from stash.spot.risk.replacing import FleetSpeeds, by_rates, by_record, speeds

TWO = FleetSpeeds((2,), np.array([0.0, 1.0, 2.0]))
"""One machine does all of the work in a second, two do it twice."""


def a_plan(
    on_demand: float = 3.0, confidence: float | None = None, sure: bool = False, deadline: float = 4200
) -> FleetPlan:
    pool = published()
    kinds = tuple(
        kind.model_copy(update={"on_demand_dollars_per_hour": on_demand * kind.dollars_per_hour})
        for kind in pool.types
    )
    more = {"types": kinds, "start_seconds": 60.0, "uncertainty": None if sure else Uncertainty(speed=0.02)}
    return provision(FleetWish(pool.model_copy(update=more), 0.7, deadline, confidence))


def risk_of(plan: FleetPlan, options: RiskOptions) -> FleetRisk:
    found = with_risk(plan, options).risk
    assert found is not None
    return found


def stated(plan: FleetPlan, per_hour: float) -> RiskOptions:
    return RiskOptions(dict.fromkeys(plan.chosen.workers, RevocationRate(per_hour / HOUR, "stated")))


def test_a_band_counts_with_its_upper_end() -> None:
    found = rate_of_band(InterruptionBand(low=0.1, high=0.2))
    assert found.per_second == pytest.approx(0.2 / HOUR)
    assert found.why == "stated: 0.1 an hour to 0.2 an hour; taken as memoryless at the upper end"


def test_ten_thousand_runs_do_the_work_that_the_closed_form_expects() -> None:
    # The age of a renewed memoryless machine is exponential, and it works from the age of ``join`` on: the expected
    # share of the time since then is e^(−λ · join). P(work by t ≥ u), averaged over u evenly, is that share too.
    rate, join, deadline = 1 / 3600, 120.0, 10_000.0
    most = 2 * (deadline - join)
    works = most * (np.arange(10_000) + 0.5) / 10_000
    draw = np.random.default_rng(3)
    found = by_rates(TWO, [rate], join, draw.permutation(works), deadline, draw)
    assert np.isfinite(found.seconds).mean() == pytest.approx(math.exp(-rate * join), rel=0.01)
    # Without any policy: every machine is revoked as often as it should be until the deadline.
    idle = by_rates(TWO, [rate], join, np.full(10_000, 1e9), deadline, draw)
    assert idle.revocations.mean() == pytest.approx(2 * deadline * rate, rel=0.02)


def test_without_revocations_a_run_takes_what_was_predicted() -> None:
    found = by_rates(TWO, [0.0], 5.0, np.array([1.0, 4.0, 99.0]), 30, np.random.default_rng(1))
    assert found.seconds.tolist() == [5.5, 7.0, math.inf]
    assert found.revocations.tolist() == [0, 0, 0]


def test_a_replay_worked_by_hand() -> None:
    # Ticks of 10 s, joining takes 4: two machines from 0, one is away in the second tick, and joins in the third.
    record = np.array([2, 1, 2, 2])
    found = by_record(TWO, [record], 10, 4, np.array([11.0]), 40)
    assert found.seconds == pytest.approx([4 + 5.5])  # two machines from second 4 on
    later = by_record(TWO, [record], 10, 4, np.array([12 + 10 + 4 + 6.0]), 40)
    # 12 by second 10, 10 more by 20, 4 more by 24 with one machine, 12 more by 30 with both: 32 at second 27.
    assert later.seconds == pytest.approx([27])
    assert later.revocations.tolist() == [1]
    none = by_record(TWO, [np.zeros(6)], 10, 4, np.array([1.0, 1.0, 1.0]), 40)
    assert np.isinf(none.seconds).all()


def test_joining_may_take_longer_than_a_tick() -> None:
    found = by_record(TWO, [np.array([1, 1, 1, 1])], 10, 25, np.array([3.0]), 40)
    assert found.seconds == pytest.approx([28])
    assert np.isinf(by_record(TWO, [np.array([1, 1, 0, 1, 1])], 10, 25, np.array([3.0]), 50).seconds).all()


def test_speeds_of_parts_are_those_of_such_fleets() -> None:
    wish = FleetWish(published(), 0.7, 4200)
    found = speeds(wish, [(0, 1), (2, 2)])
    assert found.table[0] == pytest.approx(speeds(wish, [(2, 2)]).table)
    assert found.of(np.array([1.0, 2.0])) == found.table[-1, -1]


def test_rare_revocations_change_nothing_and_frequent_ones_refuse_spot() -> None:
    plan = a_plan()
    rare = risk_of(plan, stated(plan, 1e-6))
    assert rare.p_deadline.value == pytest.approx(plan.chosen.p_deadline, abs=1e-3)
    assert rare.dollars.value == pytest.approx(plan.chosen.dollars, rel=5e-3)
    assert rare.advice.startswith("take spot: $")
    often = risk_of(plan, stated(plan, 20))
    assert often.p_deadline.value < 0.1
    assert often.advice.startswith("refuse spot: with revocations it is in time with probability 0.0")


def test_spot_is_refused_where_on_demand_costs_no_more() -> None:
    plan = a_plan(on_demand=0.95)
    assert risk_of(plan, stated(plan, 0.01)).advice.startswith("refuse spot: it costs $")


def test_a_confidence_that_revocations_break_refuses_spot() -> None:
    plan = a_plan(confidence=0.9)
    assert risk_of(plan, stated(plan, 1e-6)).advice.startswith("take spot")
    asked = risk_of(plan, stated(plan, 4)).advice
    assert asked.startswith("refuse spot: with revocations it is in time with probability 0.")
    assert "--confidence asks for 0.9" in asked


def test_a_record_is_replayed_and_says_how_much_it_tells() -> None:
    plan = a_plan(sure=True)
    names = plan.chosen.workers
    there = Obtainable(gap_seconds=60, machines=(20,) * 300)
    found = risk_of(plan, RiskOptions({}, dict.fromkeys(names, there)))
    assert (found.how, found.p_deadline.value, found.revocations) == ("replay", 1.0, 0.0)
    assert found.p_deadline.low < 0.6  # four runs beside each other
    short = Obtainable(gap_seconds=60, machines=(20,) * 80)
    once = risk_of(plan, RiskOptions({}, dict.fromkeys(names, short)))
    assert once.p_deadline.low is None
    assert any("less than two whole runs" in sentence for sentence in once.beyond)
    with pytest.raises(UserError, match="the trace is shorter than the job"):
        with_risk(plan, RiskOptions({}, dict.fromkeys(names, Obtainable(gap_seconds=60, machines=(20,) * 20))))


def test_what_overlaps_tells_less() -> None:
    values = np.tile([1.0, 3.0], 500)
    assert mean_of(values, 1000).half_width == pytest.approx(0.062, abs=0.001)
    assert mean_of(values, 10).half_width == pytest.approx(0.62, abs=0.01)
    assert mean_of(values, 1.5).half_width is None
    # Wilson's interval of 0 of 10, by hand: 0 to z² / (n + z²).
    seen = share_of(np.zeros(1000, dtype=bool), 10)
    assert (seen.low, seen.high) == (0, pytest.approx(1.96**2 / (10 + 1.96**2), abs=1e-4))
