"""Choosing with revocations: another fleet where the cheapest would be late, the same where that holds, and why."""

from __future__ import annotations

import pytest
from fleet_pools import published_pool

from stash.core.errors import UserError
from stash.spot import planning
from stash.spot.fleet_costs import FleetWish, all_fleets, cost_fleet
from stash.spot.fleet_records import FleetPlan
from stash.spot.planning import plan_with_revocations
from stash.spot.provision import provision
from stash.spot.risk import HOUR, RevocationRate, add_risk, keeps_limits

BRISK, RARE = (RevocationRate(rate / HOUR, "stated") for rate in (1.0, 1e-3))


def tight(deadline: float = 2400) -> FleetPlan:
    """A plan whose cheapest fleet is in time by a second or two, if no machine is revoked."""
    pool = published_pool().model_copy(update={"start_seconds": 60.0})
    return provision(FleetWish(pool, 0.8, deadline))


def everywhere(rate: RevocationRate) -> dict[str, RevocationRate]:
    return {kind.name: rate for kind in published_pool().types}


def test_a_fleet_that_revocations_make_late_gives_way_to_one_that_is_in_time() -> None:
    plan = tight()
    found = plan_with_revocations(plan, everywhere(BRISK))
    assert found.chosen.workers != plan.chosen.workers
    assert not keeps_limits(add_risk(plan, everywhere(BRISK)))
    assert keeps_limits(found)
    assert found.risk.weighed > 1
    # The one for machines that stay is cheaper by a little, and stands beside it with its chance.
    assert plan.chosen.dollars < found.risk.dollars.value < 1.2 * plan.chosen.dollars
    beside = next(each for each in found.runners_up if each.fleet.workers == plan.chosen.workers)
    assert "without revocations; with them in time with unknown probability" in beside.why


def test_no_fleet_that_is_in_time_often_enough_is_cheaper() -> None:
    # By force: every fleet of the pool that would do, and costs less, if no machine were revoked.
    plan = tight(deadline=2150)
    found = plan_with_revocations(plan, everywhere(BRISK))
    wish = FleetWish(plan.pool, plan.loss, plan.deadline_seconds)
    every = all_fleets(wish)
    cheaper = every.counts[every.feasible & (every.dollars < found.risk.dollars.value)]
    assert len(cheaper) >= found.risk.weighed - 1
    for counts in cheaper:
        fleet = cost_fleet(wish, counts)
        other = add_risk(plan.model_copy(update={"chosen": fleet}), everywhere(BRISK), 1000)
        assert (
            not keeps_limits(other) or other.risk.dollars.value >= found.risk.dollars.value * 0.998
        )


def test_where_no_fleet_is_in_time_the_cheapest_is_kept_and_spot_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "_SECONDS", 0.2)  # whatever is looked at, it is late
    plan = tight(deadline=2000)
    hopeless = RevocationRate(12 / HOUR, "stated")
    found = plan_with_revocations(plan, everywhere(hopeless))
    assert found.chosen == plan.chosen
    assert found.risk.advice.startswith("refuse spot: revocations alone make 100% of runs late")


def test_an_unknown_type_of_the_plans_own_fleet_is_said() -> None:
    with pytest.raises(UserError, match=r"how often p3\.2xlarge is revoked is unknown"):
        plan_with_revocations(tight(), {"k80": BRISK})


def with_prices(plan: FleetPlan, times: float) -> FleetPlan:
    """Made again, with on-demand prices so many times those of spot machines."""
    kinds = tuple(
        kind.model_copy(update={"on_demand_dollars_per_hour": times * kind.dollars_per_hour})
        for kind in plan.pool.types
    )
    pool = plan.pool.model_copy(update={"types": kinds})
    return provision(FleetWish(pool, plan.loss, plan.deadline_seconds))


def test_some_types_are_rented_on_demand_where_that_is_cheaper_in_the_mean() -> None:
    often = RevocationRate(5 / HOUR, "stated")
    plan = with_prices(tight(), 1.2)
    found = plan_with_revocations(plan, everywhere(often))
    assert 0 < len(found.chosen.on_demand) < len(found.chosen.workers)
    assert {each.type for each in found.risk.lives} == set(found.chosen.workers) - set(
        found.chosen.on_demand
    )
    # Dearer than all of it on spot, cheaper than all on demand, and in time where spot alone is not.
    assert found.risk.dollars.value < found.risk.on_demand_dollars
    assert keeps_limits(found)
    fixed = [kind for kind in found.pool.types if kind.market == "on-demand"]
    assert [kind.dollars_per_hour for kind in fixed] == [
        kind.on_demand_dollars_per_hour for kind in fixed
    ]


def test_a_plan_without_a_fleet_has_no_risk() -> None:
    plan = tight(deadline=100)
    assert plan_with_revocations(plan, everywhere(BRISK)) == plan
