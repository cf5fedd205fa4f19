"""What is rented when machines are gone: survivors stay, what cools down is left alone, more time is never dearer."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from fleet_pools import published, random_pool
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stash.core.errors import UserError
from stash.spot.choose.fleet_costs import FleetWish, rented_on_demand
from stash.spot.choose.provision import provision
from stash.spot.records.fleets import FleetPlan, FleetPool, LossCurve, ParameterServers, WorkerType
from stash.spot.replacement.outlook import FleetSituation
from stash.spot.replacement.replanning import Replanning, replan

# One update a second and worker, whose servers are never busy; 100 updates to loss 1, of any fleet of one.
PAIR = FleetPool(
    as_of="2026-11-22", source="made up", exchange_bytes=1, worker_bytes_per_second=1e9, pcie_bytes_per_second=1e9,
    server=ParameterServers(bytes_per_second=1e12, dollars_per_hour=3600),
    loss=LossCurve(gamma1=0, gamma2=0, gamma3=100, gamma5=0),
    types=(
        WorkerType(name="slow", batch=1, samples_per_second=1, quota=4, dollars_per_hour=3600),
        WorkerType(name="fast", batch=1, samples_per_second=2, quota=4, dollars_per_hour=10800),
    ),
)  # fmt: skip


def plan(pool: FleetPool = PAIR, loss: float = 1.0, seconds: float = 1000.0) -> FleetPlan:
    return provision(FleetWish(pool, loss, seconds), "0", "2026-11-22T00:00:00+00:00")


def seen(**fields: object) -> FleetSituation:
    usual: dict[str, object] = {"workers": {"slow": 1}, "updates": 0.0, "loss": None, "seconds_left": 1000.0}
    return FleetSituation(**{**usual, "dollars_left": None, "join_seconds": 10.0, **fields})  # type: ignore[arg-type]


def test_who_is_left_does_it_alone_if_that_is_in_time() -> None:
    found = replan(plan(), seen())
    assert (found.add, found.in_time) == ({}, True)
    assert found.seconds == pytest.approx(100)
    assert found.dollars == pytest.approx(200)  # a worker and the server at $1 a second each
    assert found.why == "rent nothing: who is left is in time"


def test_survivors_train_on_while_what_is_added_joins() -> None:
    # By hand: 100 updates alone, 100·√2 of two. After 10 s a tenth is done; of the rest two do 0.9·141.4/2 s.
    found = replan(plan(), seen(seconds_left=80.0))
    assert found.add == {"slow": 1}
    assert found.seconds == pytest.approx(10 + 0.9 * 100 * math.sqrt(2) / 2, rel=1e-6)
    assert found.dollars == pytest.approx(3 * found.seconds, rel=1e-6)


def test_the_loss_that_is_observed_says_what_is_left() -> None:
    # Loss 2 is half of the way by the curve: 50 of 100 updates are left.
    assert replan(plan(), seen(loss=2.0, updates=50)).seconds == pytest.approx(50)
    # It took twice as many updates as the curve says, and so will the rest.
    assert replan(plan(), seen(loss=2.0, updates=100)).seconds == pytest.approx(100)
    # Nearly nothing was seen yet: that it took ten times as many says little.
    assert replan(plan(), seen(loss=50.0, updates=20)).seconds == pytest.approx(98)
    assert replan(plan(), seen(loss=0.9, updates=90)).seconds == 0


def test_workers_that_are_slower_than_predicted_are_believed() -> None:
    found = replan(plan(), seen(speeds={"slow": 0.5}))
    assert found.seconds == pytest.approx(200)
    # A type that was never seen is as wrong as those that were.
    assert replan(plan(), seen(speeds={"slow": 0.5}, seconds_left=150.0)).seconds == pytest.approx(
        10 + 0.95 * 100 * math.sqrt(2)
    )


def test_a_revoked_type_is_left_alone_until_it_has_cooled_down() -> None:
    found = replan(plan(), seen(workers={}, cooling={"slow": 300.0}))
    assert set(found.add) == {"fast"}
    assert found.look_again_seconds == 300
    nothing = replan(plan(), seen(workers={}, cooling={"slow": 300.0, "fast": 60.0}))
    assert (nothing.add, nothing.seconds, nothing.look_again_seconds) == ({}, None, 60.0)
    assert nothing.why == "no worker is left, and no machine can be had now"


def with_on_demand(pool: FleetPool = PAIR, dearer: float = 3.0, **quotas: int) -> FleetPool:
    """The pool with machines on demand too, so many times as dear as spot ones."""
    types = tuple(
        kind.model_copy(
            update={
                "on_demand_dollars_per_hour": dearer * kind.dollars_per_hour,
                "quota": quotas.get(kind.name, kind.quota),
            }
        )
        for kind in pool.types
    )
    return pool.model_copy(update={"types": types})


BOTH_COOL = {"slow": 600.0, "fast": 600.0}
ONE_MORE = with_on_demand(slow=2, fast=0)
"""Of slow ones there may be two, of fast ones none."""


def test_where_no_spot_machine_can_be_had_one_on_demand_comes_in_time() -> None:
    found = replan(plan(with_on_demand()), seen(seconds_left=80.0, cooling=BOTH_COOL))
    assert (found.add, found.add_on_demand, found.later) == ({}, {"slow": 1}, {})
    assert found.in_time
    assert found.seconds == pytest.approx(10 + 0.9 * 100 * math.sqrt(2) / 2, rel=1e-6)
    assert found.dollars == pytest.approx((1 + 1 + 3) * found.seconds, rel=1e-6)  # server, survivor, on demand
    assert found.why == "rent 1 machine of slow on demand: no spot machines are in time, this is the cheapest that is"


def test_a_type_that_is_planned_on_demand_is_never_asked_for_on_spot() -> None:
    fixed = rented_on_demand(ONE_MORE, ["slow"])
    found = replan(plan(fixed), seen(seconds_left=80.0))
    assert (found.add, found.add_on_demand, found.later) == ({}, {"slow": 1}, {})
    assert found.in_time
    assert found.dollars == pytest.approx((1 + 3 + 3) * found.seconds, rel=1e-6)  # server, survivor, one more
    assert found.look_again_seconds is None


def test_if_no_worker_would_train_machines_on_demand_are_not_waited_with() -> None:
    found = replan(plan(with_on_demand()), seen(workers={}, cooling=BOTH_COOL, seconds_left=5000.0))
    assert (found.add, found.add_on_demand, found.later) == ({}, {"slow": 1}, {})


def test_a_cooldown_is_waited_for_as_long_as_machines_on_demand_would_still_do() -> None:
    # By hand: two need 70.7 s, so with 95 s left, of which one alone does 1/100 a second, they have to be complete
    # after (95 - 70.7) / (1 - 0.707) = 82.8 s, and asked for after 72.8; it takes 10 s to see whether spot ones come.
    waits = replan(plan(ONE_MORE), seen(seconds_left=95.0, cooling={"slow": 62.0}))
    assert waits.last_moment_seconds == pytest.approx(72.85, abs=0.1)
    assert (waits.add, waits.add_on_demand, waits.later, waits.in_time) == ({}, {}, {"slow": 1}, True)
    assert waits.seconds == pytest.approx(72 + 0.28 * 100 * math.sqrt(2) / 2, rel=1e-6)
    assert waits.dollars == pytest.approx(3 * waits.seconds - 62, rel=1e-6)  # what comes later is paid from then on
    assert waits.why == "rent nothing now, and 1 machine of slow after the cooldown: the cheapest that is in time"
    does_not = replan(plan(ONE_MORE), seen(seconds_left=95.0, cooling={"slow": 64.0}))
    assert (does_not.add_on_demand, does_not.later) == ({"slow": 1}, {})


def test_what_is_late_anyway_is_on_demand_only_if_it_is_much_sooner() -> None:
    a_bit = replan(plan(ONE_MORE), seen(seconds_left=1.0, cooling=BOTH_COOL))
    assert (a_bit.add, a_bit.add_on_demand, a_bit.in_time) == ({}, {}, False)  # 73.6 s instead of 100
    much = replan(plan(with_on_demand()), seen(seconds_left=1.0, cooling=BOTH_COOL))
    assert much.add_on_demand
    assert much.seconds is not None
    assert much.seconds < 50
    alone = replan(plan(ONE_MORE), seen(workers={}, seconds_left=1.0, cooling=BOTH_COOL))
    assert (alone.add_on_demand, alone.in_time) == ({"slow": 2}, False)  # else no worker would train


def test_machines_on_demand_are_for_the_money_that_is_left() -> None:
    tight = seen(seconds_left=80.0, cooling=BOTH_COOL, dollars_left=300.0)  # it would take $368
    found = replan(plan(with_on_demand()), tight)
    assert (found.add, found.add_on_demand, found.in_time, found.affordable) == ({}, {}, False, True)


def test_a_quota_counts_spot_machines_and_those_on_demand_together() -> None:
    pool = with_on_demand(slow=2, fast=0)
    full = seen(workers={"slow": 2}, on_demand={"slow": 1}, seconds_left=20.0)
    assert replan(plan(pool), full).add == {}
    assert replan(plan(pool), replace(full, cooling=BOTH_COOL)).add_on_demand == {}


def test_survivors_cost_what_their_own_kind_costs() -> None:
    pool = with_on_demand(slow=1, fast=0)
    assert replan(plan(pool), seen(on_demand={"slow": 1})).dollars == pytest.approx(100 * (1 + 3))


def test_what_was_refused_on_demand_is_not_asked_for_again_at_once() -> None:
    found = replan(plan(ONE_MORE), seen(workers={}, cooling=BOTH_COOL, refused={"slow": 30.0}))
    assert (found.add, found.add_on_demand, found.look_again_seconds) == ({}, {}, 30.0)


def test_a_machine_on_demand_that_is_no_dearer_is_taken_as_any() -> None:
    found = replan(plan(with_on_demand(dearer=0.5, fast=0)), seen(seconds_left=80.0))
    assert (found.add, found.add_on_demand) == ({}, {"slow": 1})
    assert found.why == "rent 1 machine of slow on demand: the cheapest that is in time"


def test_if_nothing_is_in_time_the_soonest_that_the_money_allows() -> None:
    late = replan(plan(), seen(seconds_left=1.0))
    assert (late.in_time, late.affordable) == (False, True)
    assert late.seconds is not None
    assert late.seconds < replan(plan(), seen()).seconds  # type: ignore[operator]
    poor = replan(plan(), seen(seconds_left=1.0, dollars_left=210.0))
    assert poor.dollars is not None
    assert poor.dollars <= 210
    broke = replan(plan(), seen(dollars_left=10.0))
    assert (broke.add, broke.affordable) == ({}, False)


@pytest.mark.parametrize(("loss", "seconds"), [(0.9, 1900.0), (0.8, 2400.0), (0.7, 3700.0)])
def test_before_anything_has_happened_it_rents_what_was_planned(loss: float, seconds: float) -> None:
    planned = plan(published(), loss, seconds)
    found = replan(
        planned,
        FleetSituation(
            workers={},
            updates=0,
            loss=None,
            seconds_left=seconds,
            dollars_left=None,
            join_seconds=published().start_seconds,
        ),
    )
    assert planned.chosen is not None
    assert found.add == planned.chosen.workers
    assert found.dollars == pytest.approx(planned.chosen.dollars)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), kept=st.integers(0, 3), hot=st.booleans())
def test_survivors_stay_and_more_time_is_never_dearer(seed: int, kept: int, hot: bool) -> None:
    pool = random_pool(seed, 3, 3)
    try:
        planned = plan(pool, pool.loss.gamma5 + 0.3, 4000.0)
    except UserError:
        assume(False)  # a type faster alone than its exchange
    first = pool.types[0]
    now = FleetSituation(
        workers={first.name: min(kept, first.quota)},
        updates=0,
        loss=None,
        seconds_left=planned.deadline_seconds,
        dollars_left=None,
        join_seconds=60.0,
        cooling={first.name: 100.0} if hot else {},
    )
    found = replan(planned, now)
    assert all(n > 0 for n in found.add.values())
    assert not (hot and first.name in found.add)
    for kind in pool.types:
        assert now.workers.get(kind.name, 0) + found.add.get(kind.name, 0) <= kind.quota
    relaxed = replan(planned, replace(now, seconds_left=2 * now.seconds_left))
    if found.in_time and found.dollars is not None:
        assert relaxed.in_time
        assert relaxed.dollars is not None
        assert relaxed.dollars <= found.dollars * (1 + 1e-9)


def rank(found: Replanning) -> int:
    """The better, the lower: spot machines of now, any mix, late, more than there is money for."""
    if not found.affordable:
        return 3
    return 2 if not found.in_time else int(bool(found.add_on_demand or found.later))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6), kept=st.integers(0, 3), dearer=st.floats(1.1, 4), share=st.floats(0.05, 1.5),
    money=st.floats(0.05, 5), hot=st.lists(st.sampled_from([0.0, 30.0, 600.0]), min_size=3, max_size=3),
    more=st.floats(1, 4),
)  # fmt: skip
def test_more_time_or_money_is_never_worse_and_where_spot_is_in_time_nothing_is_on_demand(
    seed: int, kept: int, dearer: float, share: float, money: float, hot: list[float], more: float
) -> None:
    pool = random_pool(seed, 3, 3)
    try:
        planned = plan(pool, pool.loss.gamma5 + 0.3, 4000.0)
    except UserError:
        assume(False)  # a type faster alone than its exchange
    first = pool.types[0]
    both = planned.model_copy(update={"pool": with_on_demand(pool, dearer)})
    cooling = {kind.name: left for kind, left in zip(pool.types, hot, strict=False)}
    survivors = {first.name: min(kept, first.quota)}
    now = FleetSituation(
        workers=survivors,
        updates=0,
        loss=None,
        seconds_left=share * 4000.0,
        dollars_left=money,
        join_seconds=60.0,
        cooling=cooling,
    )
    found, on_spot = replan(both, now), replan(planned, now)
    assert found.dollars is None or not found.affordable or found.dollars <= money * (1 + 1e-9)
    if on_spot.in_time and on_spot.affordable:
        assert (found.add, found.add_on_demand, found.later) == (on_spot.add, {}, {})
    for kind in pool.types:
        added = (each.get(kind.name, 0) for each in (found.add, found.add_on_demand, found.later))
        assert survivors.get(kind.name, 0) + sum(added) <= kind.quota
        assert not (cooling.get(kind.name) and kind.name in found.add)
    for relaxed in (replace(now, seconds_left=more * now.seconds_left), replace(now, dollars_left=more * money)):
        better = replan(both, relaxed)
        assert rank(better) <= rank(found)
        if rank(better) == rank(found) < 2:
            assert better.dollars <= found.dollars * (1 + 1e-9)  # type: ignore[operator]
