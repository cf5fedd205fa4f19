"""Who comes for a node of a gang that is gone; hand-worked."""

from __future__ import annotations

import pytest
from gang_fleets import gang_plan

from stash.spot.choose.fleet_costs import rented_on_demand
from stash.spot.records.fleets import FleetPlan
from stash.spot.replacement.outlook import GangSituation
from stash.spot.replacement.replanning import Successors, succeed

# samples/s and $/h: p2.8xlarge 2115, 2.16; g3.16xlarge 1995, 1.5676; p3.2xlarge 1885, 0.918; g3.8xlarge 1018, 0.684;
# g4dn.4xlarge 750, 0.3612


def _seen(p3: int = 1, g4dn: int = 2, **fields: object) -> GangSituation:
    workers = {name: count for name, count in (("p3.2xlarge", p3), ("g4dn.4xlarge", g4dn)) if count}
    usual: dict[str, object] = {"least": 1, "work_seconds": 3600.0, "seconds_left": 7200.0, "join_seconds": 120.0}
    return GangSituation(workers=workers, **{**usual, **fields})  # type: ignore[arg-type]


def _asked(found: Successors) -> tuple[dict[str, int], dict[str, int], int]:
    return found.add, found.add_on_demand, found.missing


def test_a_whole_gang_is_left_alone() -> None:
    assert _asked(succeed(gang_plan(), _seen())) == ({}, {}, 0)
    assert _asked(succeed(gang_plan(), _seen(g4dn=3))) == ({}, {}, 0)  # a notice was withdrawn


def test_the_planned_type_comes_first() -> None:
    assert _asked(succeed(gang_plan(), _seen(p3=0, g4dn=1))) == ({"p3.2xlarge": 1, "g4dn.4xlarge": 1}, {}, 0)


def test_another_type_stands_for_it_and_is_not_replaced_in_its_turn() -> None:
    found = succeed(
        gang_plan(),
        GangSituation(
            workers={"p3.2xlarge": 1, "g4dn.4xlarge": 1, "g3.8xlarge": 1},
            least=1,
            work_seconds=9.0,
            seconds_left=9.0,
            join_seconds=9.0,
        ),
    )
    assert _asked(found) == ({}, {}, 0)


def test_while_it_cools_down_the_cheapest_comes_that_is_no_slower_than_the_slowest_planned() -> None:
    found = succeed(gang_plan(), _seen(g4dn=1, cooling={"g4dn.4xlarge": 900.0}))
    assert _asked(found) == ({"g3.8xlarge": 1}, {}, 0)
    fast = gang_plan({"p3.2xlarge": 2})
    found = succeed(fast, _seen(p3=1, g4dn=0, cooling={"p3.2xlarge": 900.0}))
    assert _asked(found) == ({"g3.16xlarge": 1}, {}, 0)  # g3.8xlarge and g4dn.4xlarge would hold the gang up


def _one_type(plan: FleetPlan) -> FleetPlan:
    types = tuple(kind for kind in plan.pool.types if kind.name == "g4dn.4xlarge")
    return plan.model_copy(update={"pool": plan.pool.model_copy(update={"types": types})})


def test_a_quota_holds_whatever_is_missing() -> None:
    pool = _one_type(gang_plan({"g4dn.4xlarge": 5})).pool
    tight = pool.model_copy(update={"types": (pool.types[0].model_copy(update={"quota": 4}),)})
    plan = gang_plan({"g4dn.4xlarge": 5}).model_copy(update={"pool": tight})
    found = succeed(plan, _seen(p3=0, g4dn=3))
    assert _asked(found) == ({"g4dn.4xlarge": 1}, {}, 1)
    assert found.why == "rent 1 machine of g4dn.4xlarge: 1 node cannot be had"


@pytest.mark.parametrize(
    ("left", "cooling", "on_demand"),
    [
        # slack = left - 3600 - 2 * 120; waiting w for one node of two costs w / 2
        (4500.0, 1200.0, 0),  # slack 660 >= 600: in time after the cooldown
        (4400.0, 1200.0, 1),  # slack 560 < 600: now or never
        (3700.0, 1200.0, 0),  # slack -140: late anyway, and somebody trains
    ],
)
def test_on_demand_comes_once_waiting_would_be_late(left: float, cooling: float, on_demand: int) -> None:
    plan = _one_type(gang_plan({"g4dn.4xlarge": 2}, 3.0))
    found = succeed(plan, _seen(p3=0, g4dn=1, seconds_left=left, cooling={"g4dn.4xlarge": cooling}))
    assert found.add_on_demand == ({"g4dn.4xlarge": 1} if on_demand else {})
    assert found.look_again_seconds == (None if on_demand else cooling)


def test_late_anyway_only_as_many_come_on_demand_as_it_takes_to_train() -> None:
    plan = _one_type(gang_plan({"g4dn.4xlarge": 3}, 3.0))
    seen = _seen(p3=0, g4dn=0, least=2, seconds_left=100.0, cooling={"g4dn.4xlarge": 900.0})
    assert _asked(succeed(plan, seen)) == ({}, {"g4dn.4xlarge": 2}, 1)


def test_who_was_refused_on_demand_is_not_asked_for_so() -> None:
    plan = _one_type(gang_plan({"g4dn.4xlarge": 2}, 3.0))
    seen = _seen(p3=0, g4dn=1, seconds_left=4000.0, cooling={"g4dn.4xlarge": 900.0}, refused={"g4dn.4xlarge": 900.0})
    assert _asked(succeed(plan, seen)) == ({}, {}, 1)


def test_without_a_price_on_demand_there_is_no_such_machine() -> None:
    found = succeed(_one_type(gang_plan({"g4dn.4xlarge": 2})), _seen(p3=0, g4dn=0, cooling={"g4dn.4xlarge": 900.0}))
    assert (found.add_on_demand, found.look_again_seconds) == ({}, 900.0)
    assert found.why == "rent nothing: 2 nodes more once a type has cooled down"


def test_types_that_are_planned_on_demand_cool_down_by_themselves() -> None:
    plan = gang_plan(dearer=3.0)
    plan = plan.model_copy(update={"pool": rented_on_demand(plan.pool, ["p3.2xlarge"])})
    assert succeed(plan, _seen(p3=0, cooling={"p3.2xlarge": 900.0})).add == {"p3.2xlarge": 1}
    assert "p3.2xlarge" not in succeed(plan, _seen(p3=0, refused={"p3.2xlarge": 900.0})).add
