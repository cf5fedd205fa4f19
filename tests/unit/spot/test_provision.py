"""The fleet that is chosen: the published rows, what more quota and time do, and what would do where none does."""

from dataclasses import replace

import pytest
from fleet_pools import published_pool

from bench.spot.paper_loss import ROWS
from stash.core.errors import UserError
from stash.spot.fleet_costs import FleetWish
from stash.spot.fleet_records import Uncertainty
from stash.spot.provision import provision as plan


def wished(loss, seconds):
    return FleetWish(published_pool(), loss, seconds)


@pytest.mark.parametrize(("loss", "seconds", "workers", "dollars"), ROWS)
def test_the_fleets_of_the_papers_exhaustive_row_are_chosen(loss, seconds, workers, dollars):
    found = plan(wished(loss, seconds))
    assert (found.chosen.workers, round(found.chosen.dollars, 3)) == (workers, dollars)
    assert (found.optimal, found.gap) == (True, 0)


def test_a_confidence_tightens_the_deadline_to_what_is_in_time_that_often():
    pool = published_pool().model_copy(
        update={"uncertainty": Uncertainty(speed=0.03, updates=0.04)}
    )
    half = plan(FleetWish(pool, 0.8, 2400, confidence=0.5)).chosen
    sure = plan(FleetWish(pool, 0.8, 2400, confidence=0.9)).chosen
    assert half.p_deadline == pytest.approx(0.69, abs=0.01)  # Phi(ln(2400 / 2341.9) / 0.05)
    assert sure.p_deadline >= 0.9
    assert sure.dollars > half.dollars


def test_infeasible_wishes_come_back_with_the_nearest_ones_that_are_not():
    found = plan(wished(0.8, 1600))
    assert found.chosen is None
    assert not found.optimal
    looser = {each.option: each.to for each in found.looser}
    assert looser["deadline"] == "--deadline 1607s"
    assert plan(wished(0.8, 1607)).chosen is not None


def test_what_no_machine_can_keep_comes_back_with_what_can():
    slow = published_pool().model_copy(update={"start_seconds": 60.0})
    found = plan(FleetWish(slow, 0.8, 50))  # starting alone takes longer
    (deadline,) = (each for each in found.looser if each.option == "deadline")
    assert deadline.to == "--deadline 1667s"
    assert "60 of them to start, for $" in deadline.text
    assert plan(FleetWish(slow, 0.8, 1667)).chosen is not None
    found = plan(wished(0.4, 2400))  # 0.5 is left after any number of updates
    assert found.beyond == (
        "by this curve 0.5 is left after any number of updates (gamma5): ask for a higher --loss",
    )


def test_on_demand_is_the_cheapest_fleet_at_on_demand_prices():
    pool = published_pool()
    types = tuple(
        kind.model_copy(update={"on_demand_dollars_per_hour": 3 * kind.dollars_per_hour})
        for kind in pool.types
    )
    found = plan(FleetWish(pool.model_copy(update={"types": types}), 0.8, 2400))
    (beside,) = found.baselines
    on_demand = beside.fleet
    (unpriced,) = plan(wished(0.8, 2400)).baselines
    assert "add on_demand_dollars_per_hour" in unpriced.why
    assert on_demand.dollars == pytest.approx(3 * found.chosen.dollars)


def test_servers_and_their_start_are_paid():
    pool = published_pool()
    dear = pool.model_copy(
        update={
            "server": pool.server.model_copy(update={"dollars_per_hour": 0.2, "count": 2}),
            "start_seconds": 100.0,
        }
    )
    found = plan(FleetWish(dear, 0.9, 3000)).chosen
    prices = {kind.name: kind.dollars_per_hour for kind in pool.types}
    hourly = sum(prices[name] * count for name, count in found.workers.items()) + 0.4
    assert found.seconds == pytest.approx(100 + found.updates / found.updates_per_second)
    assert found.dollars == pytest.approx(found.seconds * hourly / 3600)


def test_a_confidence_needs_to_know_how_wrong_the_numbers_are():
    with pytest.raises(UserError, match="does not say how wrong its numbers are"):
        plan(replace(wished(0.8, 2400), confidence=0.9))


def test_a_pool_with_too_many_fleets_is_refused():
    types = tuple(kind.model_copy(update={"quota": 15}) for kind in published_pool().types)
    with pytest.raises(UserError, match=r"1,048,575 fleets, .*lower quotas with --quota"):
        plan(FleetWish(published_pool().model_copy(update={"types": types}), 0.8, 2400))
