"""Policies for spot machines that come and go: runs worked by hand, what must hold of every record, and advice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fleet_pools import published
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.core.errors import UserError
from stash.spot.choose.fleet_costs import FleetWish, rented_on_demand
from stash.spot.choose.provision import provision
from stash.spot.policies.policies import POLICIES, Played, PolicyName, SpotMarket, SyncJob, play, ticks
from stash.spot.policies.simulating import revocable, simulate, together
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.risks import Obtainable, SpotPrices

HOUR = 3600.0
JOB = SyncJob(2 * HOUR, 6 * HOUR, 0, on_demand_dollars=4)
START = np.array([0])


def played(policy: PolicyName, pattern: str, job: SyncJob = JOB) -> Played:
    """Ticks of an hour: ``#`` where spot machines can be had."""
    return play(policy, job, market([each == "#" for each in pattern]), START)


def market(there: list[bool], gap: float = HOUR) -> SpotMarket:
    return SpotMarket(gap, np.array(there), np.ones(len(there)))


@pytest.mark.parametrize(
    ("policy", "pattern", "dollars", "on_demand", "late"),
    [
        ("on-demand", "......", 8, 2, False),
        ("spot", "#....#", 2, 0, False),
        ("spot", "#.....", 1, 0, True),
        ("greedy", "....##", 2, 0, False),  # two hours are needed: the last moment is the beginning of hour 4
        ("greedy", ".....#", 8, 2, False),
        ("greedy", "....#.", 5, 1, False),
        ("greedy", "#.....", 5, 1, False),
        ("greedy", "..##..", 2, 0, False),
        ("uniform", "......", 8, 2, False),
        ("uniform", "#...##", 2, 0, False),  # a third of an hour's work is due each hour: one is enough for three
        ("uniform", "#....#", 5, 1, False),
        ("uniform", "...###", 8, 2, False),  # on-demand in hour 1, it is ahead in hour 2: left for spot alone
        ("uniform", "..####", 5, 1, False),
    ],
)
def test_runs_of_six_hours_worked_by_hand(
    policy: PolicyName, pattern: str, dollars: float, on_demand: float, late: bool
) -> None:
    found = played(policy, pattern)
    assert (found.dollars[0], found.on_demand_hours[0]) == (pytest.approx(dollars), pytest.approx(on_demand))
    assert bool(found.late[0]) is late


def test_a_change_over_is_paid_each_time_and_brings_nothing() -> None:
    job = replace(JOB, change_seconds=HOUR / 2)
    assert played("on-demand", "......", job).dollars == pytest.approx([10])
    assert played("spot", "#.#.#.", job).late[0]  # three times half an hour
    assert played("spot", "##.##.", job).dollars == pytest.approx([3])


@settings(max_examples=30, deadline=None)
@given(
    there=st.lists(st.booleans(), min_size=24, max_size=24),
    work=st.floats(0.2, 4.5),
    change=st.sampled_from([0.0, 60.0, 300.0]),
)
def test_with_slack_no_policy_is_late(there: list[bool], work: float, change: float) -> None:
    job = SyncJob(work * HOUR, 6 * HOUR, change, on_demand_dollars=3)
    for policy in ("greedy", "uniform", "on-demand"):
        assert not play(policy, job, market(there, HOUR / 4), START).late[0], policy


@settings(max_examples=60, deadline=None)
@given(
    there=st.lists(st.booleans(), min_size=24, max_size=24),
    work=st.floats(0.2, 5.0),
    change=st.sampled_from([0.0, 60.0, 1200.0]),
    interval=st.floats(0.05, 3),
    write=st.sampled_from([0.0, 30.0, 300.0]),
)
def test_with_checkpoints_no_policy_with_a_safety_net_is_late(
    there: list[bool], work: float, change: float, interval: float, write: float
) -> None:
    job = SyncJob(work * HOUR, 6 * HOUR, change, 3, interval * HOUR, write, keeps=False)
    kept = replace(job, keeps=True, write_seconds=0.0)
    seen = market(there, HOUR / 4)
    for policy in ("greedy", "uniform"):
        assert not play(policy, job, seen, START).late[0], policy
        assert not play(policy, kept, seen, START).late[0], policy
    spot, free = play("spot", job, seen, START), play("spot", kept, seen, START)
    assert spot.late[0] >= free.late[0]
    assert spot.dollars[0] >= free.dollars[0] - 1e-9


def test_work_since_the_last_checkpoint_is_lost_and_writing_takes_time() -> None:
    job = SyncJob(3 * HOUR, 9 * HOUR, 0, 4, 2 * HOUR, HOUR / 2, keeps=False)
    # Two hours of work and half of writing, then the last hour: 3.5 h without revocations.
    assert played("spot", "#########", job).dollars == pytest.approx([3.5])
    # Revoked after two hours, before anything was written: all of it is done again.
    assert played("spot", "##.######", job).dollars == pytest.approx([5.5])
    # After three, what was written stays, and the half hour after it is lost.
    assert played("spot", "###.#####", job).dollars == pytest.approx([4.0])
    assert played("spot", "###.#####", job).revocations.tolist() == [1]
    # With a notice long enough nothing is lost.
    assert played("spot", "##.######", replace(job, keeps=True, write_seconds=0.0)).dollars == pytest.approx([3])
    # On-demand machines are not revoked, and write nothing.
    assert played("on-demand", ".........", job).dollars == pytest.approx([12])


def test_prices_are_those_of_the_tick() -> None:
    seen = SpotMarket(HOUR, np.ones(6, dtype=bool), np.array([1.0, 5.0, 1, 1, 1, 1]))
    assert play("spot", JOB, seen, START).dollars == pytest.approx([6])


def test_a_deadline_between_two_ticks_has_both() -> None:
    assert ticks(JOB, HOUR) == 6
    assert ticks(JOB, 5000.0) == 5


def a_plan(start: float = 60.0, on_demand: float | None = 3.0, deadline: float = 4200) -> FleetPlan:
    pool = published()
    kinds = tuple(
        kind.model_copy(
            update={"on_demand_dollars_per_hour": None if on_demand is None else on_demand * kind.dollars_per_hour}
        )
        for kind in pool.types
    )
    wish = FleetWish(pool.model_copy(update={"types": kinds, "start_seconds": start}), 0.7, deadline)
    return provision(wish, "0", "now")


def record(*machines: int) -> list[Obtainable]:
    return [Obtainable(gap_seconds=60, machines=machines)]


def test_spot_is_taken_where_it_is_plenty_and_refused_where_it_is_rare() -> None:
    plenty = simulate(a_plan(), record(*[9] * 300), ["greedy", "uniform"], runs=50)
    assert plenty.obtainable == 1
    assert plenty.advice.startswith("take spot with greedy")
    dollars = plenty.policies[0].dollars
    assert dollars is not None
    chosen = a_plan().chosen
    assert chosen is not None
    assert dollars.value == pytest.approx(chosen.dollars)  # never revoked: what the plan says
    rare = simulate(a_plan(), record(*([9, 0, 0] * 100)), ["uniform"], runs=50)
    assert rare.advice.startswith("refuse spot: ")
    assert simulate(a_plan(), record(*[0] * 300), ["spot"], runs=50).advice.startswith(
        "refuse spot: even spot is late"
    )


def test_a_gang_takes_all_its_machines_or_none() -> None:
    chosen = a_plan().chosen
    assert chosen is not None
    size = sum(chosen.workers.values())
    assert simulate(a_plan(), record(*[size] * 99), ["spot"], runs=9).policies[0].late == 0
    assert simulate(a_plan(), record(*[size - 1] * 99), ["spot"], runs=9).policies[0].late == 1


def partly_on_demand() -> tuple[FleetPlan, str, int]:
    """A plan of two types, the first of them on demand; and the other, with its count."""
    plan = a_plan()
    assert plan.chosen is not None
    (steady, _), (other, count), *_ = plan.chosen.workers.items()
    two = plan.chosen.model_copy(update={"workers": {steady: plan.chosen.workers[steady], other: count}})
    return plan.model_copy(update={"pool": rented_on_demand(plan.pool, [steady]), "chosen": two}), other, count


def test_machines_on_demand_do_not_come_and_go_with_the_trace() -> None:
    plan, _, count = partly_on_demand()
    assert plan.chosen is not None
    held = simulate(plan, record(*[count] * 99), ["spot"], runs=9).policies[0]
    assert held.late == 0
    prices = {kind.name: kind.dollars_per_hour for kind in plan.pool.types}
    hourly = sum(n * prices[name] for name, n in plan.chosen.workers.items()) + plan.pool.server.dollars_per_hour
    assert held.dollars is not None
    assert held.dollars.value == pytest.approx(hourly * plan.chosen.seconds / HOUR)
    assert simulate(plan, record(*[count - 1] * 99), ["spot"], runs=9).policies[0].late == 1


def test_only_what_comes_and_goes_needs_traces_and_prices() -> None:
    plan, other, count = partly_on_demand()
    assert together(revocable(plan), {other: record(count)[0]}).machines == (count,)
    series = SpotPrices(moments=(0.0,), dollars=(0.0,))
    free = simulate(plan, record(*[count] * 99), ["spot"], runs=9, prices={other: series}).policies[0].dollars
    dear = simulate(plan, record(*[count] * 99), ["spot"], runs=9).policies[0].dollars
    assert free is not None
    assert dear is not None
    assert 0 < free.value < dear.value


def test_a_plan_without_spot_machines_has_nothing_to_simulate() -> None:
    plan = a_plan()
    all_of_them = rented_on_demand(plan.pool, [kind.name for kind in plan.pool.types])
    with pytest.raises(UserError, match="the plan rents nothing on spot"):
        simulate(plan.model_copy(update={"pool": all_of_them}), record(*[9] * 99), ["greedy"])


def test_the_same_seed_gives_all_policies_the_same_runs() -> None:
    draw = np.random.default_rng(1)
    trace = record(*np.repeat(draw.integers(0, 2, 60) * 9, 10).tolist())
    both = simulate(a_plan(), trace, ["greedy", "on-demand"], runs=200)
    alone = simulate(a_plan(), trace, ["greedy"], runs=200)
    assert both.policies[0] == alone.policies[0]
    assert set(POLICIES) >= {each.name for each in both.policies}


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(UserError, match="the trace is shorter than the job: it has"):
        simulate(a_plan(), record(*[9] * 10), ["greedy"])
    with pytest.raises(UserError, match=r"no on-demand price of \S+ is known; add on_demand_dollars_per_hour"):
        simulate(a_plan(on_demand=None), record(*[9] * 99), ["greedy"])
    with pytest.raises(UserError, match="the plan rents nothing"):
        simulate(a_plan(deadline=500), record(*[9] * 99), ["greedy"])
