"""What revocations do to a plan: runs against what is expected, when spot is refused."""

import math

import numpy as np
import pytest
from fleet_pools import published_pool

from stash.spot.fleet_costs import FleetWish
from stash.spot.fleet_records import InterruptionBand, Uncertainty
from stash.spot.pages.fleet_plan import document, page
from stash.spot.provision import provision
from stash.spot.risk import (
    HOUR,
    add_risk,
    part_speeds,
    revoked_runs,
)

TWO = np.array([0.0, 1.0, 2.0])
"""One machine does all of the work in a second, two do it twice."""


def a_plan(
    on_demand=3.0,
    confidence=None,
    sure=False,
    deadline=4200,
):
    pool = published_pool()
    kinds = tuple(
        kind.model_copy(update={"on_demand_dollars_per_hour": on_demand * kind.dollars_per_hour})
        for kind in pool.types
    )
    more = {
        "types": kinds,
        "start_seconds": 60.0,
        "uncertainty": None if sure else Uncertainty(speed=0.02),
    }
    return provision(FleetWish(pool.model_copy(update=more), 0.7, deadline, confidence))


def risk_of(plan, rates):
    found = add_risk(plan, rates).risk
    assert found is not None
    return found


def stated(plan, per_hour):
    return dict.fromkeys(plan.chosen.workers, InterruptionBand(low=per_hour, high=per_hour))


def test_a_band_counts_with_its_upper_end():
    plan = a_plan()
    band = InterruptionBand(low=0.1, high=0.2)
    life, *_ = risk_of(plan, dict.fromkeys(plan.chosen.workers, band)).lives
    assert life.mean_seconds == pytest.approx(HOUR / 0.2)
    assert life.why == "stated: 0.1 an hour to 0.2 an hour; taken as memoryless at the upper end"


def test_ten_thousand_runs_do_the_work_that_the_closed_form_expects():
    # The age of a renewed memoryless machine is exponential, and it works from the age of ``join`` on: the expected
    # share of the time since then is e^(−λ · join). P(work by t ≥ u), averaged over u evenly, is that share too.
    rate = 1 / 3600
    join = 120.0
    deadline = 10_000.0
    most = 2 * (deadline - join)
    works = most * (np.arange(10_000) + 0.5) / 10_000
    draw = np.random.default_rng(3)
    seconds, _ = revoked_runs(TWO, [rate], join, draw.permutation(works), deadline, draw)
    assert np.isfinite(seconds).mean() == pytest.approx(math.exp(-rate * join), rel=0.01)
    # Without any policy: every machine is revoked as often as it should be until the deadline.
    _, revocations = revoked_runs(TWO, [rate], join, np.full(10_000, 1e9), deadline, draw)
    assert revocations.mean() == pytest.approx(2 * deadline * rate, rel=0.02)


def test_without_revocations_a_run_takes_what_was_predicted():
    work = np.array([1.0, 4.0, 99.0])
    draw = np.random.default_rng(1)
    seconds, revocations = revoked_runs(TWO, [0.0], 5.0, work, 30, draw)
    assert seconds.tolist() == [5.5, 7.0, math.inf]
    assert revocations.tolist() == [0, 0, 0]


def test_speeds_of_parts_are_those_of_such_fleets():
    wish = FleetWish(published_pool(), 0.7, 4200)
    one = wish.pool.types[0].name
    two = wish.pool.types[2].name
    found = part_speeds(wish, {one: 1, two: 2})
    assert found[0] == pytest.approx(part_speeds(wish, {two: 2}))
    assert found.shape == (2, 3)
    assert found[0, 0] == 0


def test_rare_revocations_change_nothing_and_frequent_ones_refuse_spot():
    plan = a_plan()
    rare = risk_of(plan, stated(plan, 1e-6))
    assert rare.p_deadline.value == pytest.approx(plan.chosen.p_deadline, abs=1e-3)
    assert rare.dollars.value == pytest.approx(plan.chosen.dollars, rel=5e-3)
    assert rare.advice.startswith("take spot: $")
    often = risk_of(plan, stated(plan, 20))
    assert often.p_deadline.value < 0.1
    assert often.advice.startswith(
        "refuse spot: with revocations it is in time with probability 0.0"
    )


def test_spot_is_refused_where_on_demand_costs_no_more():
    plan = a_plan(on_demand=0.95)
    assert risk_of(plan, stated(plan, 0.01)).advice.startswith("refuse spot: it costs $")


def test_a_confidence_that_revocations_break_refuses_spot():
    plan = a_plan(confidence=0.9)
    assert risk_of(plan, stated(plan, 1e-6)).advice.startswith("take spot")
    asked = risk_of(plan, stated(plan, 4)).advice
    assert asked.startswith("refuse spot: with revocations it is in time with probability 0.")
    assert "--confidence asks for 0.9" in asked


def test_an_unknown_error_of_the_pool_is_an_unknown_probability():
    plan = a_plan()
    unsure = plan.model_copy(update={"pool": plan.pool.model_copy(update={"uncertainty": None})})
    found = add_risk(unsure, stated(unsure, 1e-6))
    assert (
        "in time with unknown probability, as the pool does not say how wrong its numbers are"
        in found.risk.advice
    )
    shown = document(found)
    assert (shown["p_deadline"], shown["risk"]["p_deadline"]) == (None, None)
    assert not any(
        "100.0%" in text for _, text in dict(enumerate(page(found, "x").chapters[0].facts)).values()
    )
    often = add_risk(unsure, stated(unsure, 20))
    assert often.risk.advice.startswith("refuse spot: revocations alone make 100% of runs late")
