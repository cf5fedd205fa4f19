"""The fleet that is chosen: the published rows, brute force, what more quota and time do, and how others choose."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fleet_pools import published, random_pool
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.core.errors import UserError
from stash.spot.choose.branching import TOLERANCE, cheapest
from stash.spot.choose.fleet_costs import FleetWish, all_fleets, too_much
from stash.spot.choose.provision import provision
from stash.spot.records.fleets import FleetPlan, SpeedModel, Uncertainty

ROWS = [
    (0.9, 1900, {"p3.2xlarge": 2, "g3.8xlarge": 2}, 1.670),
    (0.8, 2400, {"p3.2xlarge": 2, "g3.8xlarge": 4}, 2.973),
    (0.7, 3700, {"p3.2xlarge": 2, "g4dn.4xlarge": 1, "g3.8xlarge": 3}, 4.361),
]


def plan(wish: FleetWish) -> FleetPlan:
    return provision(wish, "0", "2026-11-22T00:00:00+00:00")


def wished(loss: float, seconds: float, model: SpeedModel = "paper") -> FleetWish:
    return FleetWish(published(), model, loss, seconds)


@pytest.mark.parametrize(("loss", "seconds", "workers", "dollars"), ROWS)
def test_the_papers_exhaustive_row_is_found_by_both_searches(
    loss: float, seconds: float, workers: dict[str, int], dollars: float
) -> None:
    found = plan(wished(loss, seconds))
    assert found.chosen is not None
    assert (found.chosen.workers, round(found.chosen.dollars, 3)) == (workers, dollars)
    assert (found.optimal, found.gap) == (True, 0)
    branched = cheapest(wished(loss, seconds))
    assert branched.dollars == pytest.approx(found.chosen.dollars)
    assert branched.evaluations < found.evaluations / 10


def test_fifteen_machines_reach_what_the_papers_upper_bound_of_13_rules_out() -> None:
    all_of_them = all_fleets(wished(0.8, 1e9))
    size, seconds = all_of_them.counts.sum(axis=1), all_of_them.seconds
    assert round(float(seconds[size == 15].min())) == 1921
    assert round(float(seconds[size <= 13].min())) == 1926


def by_force(wish: FleetWish) -> float:
    found = all_fleets(wish)
    return float(np.where(found.feasible, found.dollars, math.inf).min())


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_branching_finds_what_brute_force_finds(first: int) -> None:
    for seed in range(first, first + 10):
        draw = np.random.default_rng(1000 + seed)
        budget = 4.0 if seed % 3 == 0 else None
        wish = FleetWish(
            random_pool(seed), "paper", draw.uniform(0.6, 1.2), draw.uniform(1200, 9000), budget_dollars=budget
        )
        assert cheapest(wish).dollars == pytest.approx(by_force(wish), rel=2 * TOLERANCE), seed


@pytest.mark.parametrize("seed", [7, 29])
def test_branching_finds_what_brute_force_finds_where_large_batches_take_more_updates(seed: int) -> None:
    draw, pool = np.random.default_rng(seed), random_pool(seed, 2, 3)
    types = tuple(
        pool.types[0].model_copy(
            update={
                "name": name,
                "gpus": 1,
                "vcpus": 1,
                "batch": batch,
                "quota": quota,
                "samples_per_second": batch * draw.uniform(1, 2),
                "dollars_per_hour": draw.uniform(0.5, 1.5),
            }
        )
        for name, batch, quota in (("small", 8, 13), ("medium", 32, 9), ("large", 512, 9))
    )
    loss = pool.loss.model_copy(update={"gamma2": 20.0, "gamma4": None})
    pool = pool.model_copy(update={"types": types, "most_vcpus": None, "start_seconds": 0.0, "loss": loss})
    seconds = all_fleets(FleetWish(pool, "paper", 0.8, 1e8)).seconds
    wish = FleetWish(pool, "paper", 0.8, float(np.quantile(seconds[np.isfinite(seconds)], 0.002)))
    assert cheapest(wish).dollars == pytest.approx(by_force(wish), rel=2 * TOLERANCE)


@pytest.mark.slow
def test_branching_finds_what_brute_force_finds_in_220_pools() -> None:
    for seed in range(20, 240):
        draw = np.random.default_rng(1000 + seed)
        wish = FleetWish(random_pool(seed, 5, 6), "paper", draw.uniform(0.6, 1.2), draw.uniform(1200, 9000))
        assert cheapest(wish).dollars == pytest.approx(by_force(wish), rel=2 * TOLERANCE), seed


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    loss=st.floats(0.6, 1.2),
    seconds=st.floats(1200, 9000),
    model=st.sampled_from(["paper", "queue"]),
)
def test_more_quota_or_time_is_never_dearer(seed: int, loss: float, seconds: float, model: SpeedModel) -> None:
    wish = FleetWish(random_pool(seed, 3, 3), model, loss, seconds)
    types = list(wish.pool.types)
    types[0] = types[0].model_copy(update={"quota": types[0].quota + 1})
    cost = by_force(wish)
    assert by_force(replace(wish, deadline_seconds=seconds * 1.3)) <= cost
    assert by_force(replace(wish, pool=wish.pool.model_copy(update={"types": tuple(types)}))) <= cost * (1 + 1e-9)


def test_a_confidence_tightens_the_deadline_to_what_is_in_time_that_often() -> None:
    pool = published().model_copy(update={"uncertainty": Uncertainty(speed=0.03, updates=0.04)})
    half = plan(FleetWish(pool, "paper", 0.8, 2400, confidence=0.5)).chosen
    careful = FleetWish(pool, "paper", 0.8, 2400, confidence=0.9)
    sure = plan(careful).chosen
    assert half is not None
    assert sure is not None
    assert half.p_deadline == pytest.approx(0.69, abs=0.01)  # Phi(ln(2400 / 2340.7) / 0.05)
    assert sure.p_deadline is not None
    assert sure.p_deadline >= 0.9
    assert sure.dollars > half.dollars
    assert too_much(careful, half).endswith(" s too long to be in time with probability 0.9")


def test_infeasible_wishes_come_back_with_the_nearest_ones_that_are_not() -> None:
    found = plan(wished(0.8, 1900))
    assert found.chosen is None
    assert not found.optimal
    looser = {each.option: each.to for each in found.looser}
    assert looser["deadline"] == "--deadline 1922s"
    assert plan(wished(0.8, 1922)).chosen is not None
    loss = float(looser["loss"].split()[1])
    assert plan(wished(loss, 1900)).chosen is not None
    assert plan(wished(loss - 0.002, 1900)).chosen is None
    name, quota = looser["quota"].split()[1].split("=")
    types = tuple(
        kind.model_copy(update={"quota": int(quota) if kind.name == name else kind.quota})
        for kind in published().types
    )
    more = FleetWish(published().model_copy(update={"types": types}), "paper", 0.8, 1900)
    assert plan(more).chosen is not None


def test_what_no_machine_can_keep_comes_back_with_what_can() -> None:
    slow = published().model_copy(update={"start_seconds": 60.0})
    found = plan(FleetWish(slow, "paper", 0.8, 50))  # starting alone takes longer
    (deadline,) = (each for each in found.looser if each.option == "deadline")
    assert deadline.to == "--deadline 1982s"
    assert "60 of them to start, for $" in deadline.text
    assert plan(FleetWish(slow, "paper", 0.8, 1982)).chosen is not None
    found = plan(wished(0.4, 2400))  # 0.5 is left after any number of updates
    (loss,) = (each for each in found.looser if each.option in ("loss", "deadline"))
    assert "0.5 is left after any number of updates (gamma5)" in loss.text
    assert plan(wished(float(loss.to.split()[1]), 2400)).chosen is not None


def test_nothing_that_is_not_finite_is_proposed() -> None:
    for loss, seconds, budget in ((0.4, 1e-3, None), (0.4, 2400, 1e-9)):
        for each in plan(FleetWish(published(), "paper", loss, seconds, budget_dollars=budget)).looser:
            assert "inf" not in each.to + each.text
            assert "nan" not in each.to + each.text


def test_a_large_pool_names_a_deadline_and_a_loss_too() -> None:
    types = tuple(kind.model_copy(update={"quota": 15}) for kind in published().types)
    large = published().model_copy(update={"types": types})
    found = plan(FleetWish(large, "paper", 0.8, 300))
    assert found.chosen is None
    looser = {each.option: each.to.split()[1] for each in found.looser}
    assert plan(FleetWish(large, "paper", 0.8, float(looser["deadline"].rstrip("s")))).chosen is not None
    assert plan(FleetWish(large, "paper", float(looser["loss"]), 300)).chosen is not None


def test_a_budget_that_is_too_small_is_told_apart_from_a_deadline() -> None:
    found = plan(FleetWish(published(), "paper", 0.8, 2400, budget_dollars=2))
    assert found.chosen is None
    assert found.looser[0].to == "--max-dollars 2.98"
    assert plan(FleetWish(published(), "paper", 0.8, 2400, budget_dollars=2.98)).chosen is not None


def test_on_demand_is_the_cheapest_fleet_at_on_demand_prices() -> None:
    pool = published()
    types = tuple(
        kind.model_copy(update={"on_demand_dollars_per_hour": 3 * kind.dollars_per_hour}) for kind in pool.types
    )
    found = plan(FleetWish(pool.model_copy(update={"types": types}), "paper", 0.8, 2400))
    (beside,) = found.baselines
    on_demand = beside.fleet
    assert on_demand is not None
    (unpriced,) = plan(wished(0.8, 2400)).baselines
    assert "add on_demand_dollars_per_hour" in unpriced.why
    assert found.chosen is not None
    assert on_demand.dollars == pytest.approx(3 * found.chosen.dollars)


def test_servers_start_and_a_quota_of_vcpus_are_paid_and_kept() -> None:
    pool = published()
    dear = pool.model_copy(
        update={
            "server": pool.server.model_copy(update={"dollars_per_hour": 0.2, "count": 2}),
            "start_seconds": 100.0,
            "types": tuple(kind.model_copy(update={"vcpus": 8.0}) for kind in pool.types),
            "most_vcpus": 32.0,
        }
    )
    found = plan(FleetWish(dear, "paper", 0.9, 3000)).chosen
    assert found is not None
    assert sum(found.workers.values()) <= 4
    prices = {kind.name: kind.dollars_per_hour for kind in pool.types}
    hourly = sum(prices[name] * count for name, count in found.workers.items()) + 0.4
    assert found.seconds == pytest.approx(100 + found.updates / found.updates_per_second)
    assert found.dollars == pytest.approx(found.seconds * hourly / 3600)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"confidence": 0.9}, "does not say how wrong its numbers are"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(change: dict[str, float], sentence: str) -> None:
    pool = published().model_copy(update={"start_seconds": 60.0})
    with pytest.raises(UserError, match=sentence):
        plan(replace(FleetWish(pool, "paper", 0.8, 2400), **change))


def test_a_pool_too_large_for_the_queueing_model_is_refused_and_searched_by_the_papers() -> None:
    pool = published()
    types = tuple(kind.model_copy(update={"quota": 15}) for kind in pool.types)
    large = pool.model_copy(update={"types": types})
    with pytest.raises(UserError, match="1,048,575 fleets"):
        plan(FleetWish(large, "queue", 0.8, 2400))
    found = plan(FleetWish(large, "paper", 0.8, 2400))
    assert found.optimal
    assert found.chosen is not None
    assert found.chosen.dollars <= 2.973
