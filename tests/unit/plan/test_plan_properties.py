"""What holds of every recommendation, on markets that hypothesis draws."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import GPUS, POOL, SAMPLES, jobs, remembering

from stash.catalog.facts import Price
from stash.catalog.offers import Catalog
from stash.plan import evaluation
from stash.plan.bill import BillFacts
from stash.plan.recommend import recommend
from stash.plan.records import Constraints, Goal, RentalPlan, TrainingWork
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of

BASE = base_of(jobs()[0], draws=Draws(16))
FEW = settings(max_examples=20, deadline=None)
PRICES = st.lists(st.tuples(st.sampled_from(range(len(POOL))), st.floats(0.1, 40)), min_size=2, max_size=4,
                  unique_by=lambda each: each[0])  # fmt: skip
DEADLINES = st.one_of(st.none(), st.floats(300, 30_000))
BUDGETS = st.one_of(st.none(), st.floats(1, 60))


@pytest.fixture(scope="module", autouse=True)
def forecasts_are_made_once():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evaluation, "stall_draws", remembering([BASE]))
        yield


def plan_of(
    prices: list[tuple[int, float]], deadline: float | None, budget: float | None, **constraints: object
) -> RentalPlan:
    types = [POOL[number] for number, _ in prices]
    offered = tuple(
        Price("here", each.name, "r", "on-demand", dollars, "2026-11-20", "drawn", "")
        for each, (_, dollars) in zip(types, prices, strict=True)
    )
    goal = Goal(work=TrainingWork(samples=SAMPLES, text="some"), deadline_seconds=deadline, budget_dollars=budget)
    limits = Constraints(**{"most_nodes": 3, **constraints})  # type: ignore[arg-type]
    return recommend(
        [BASE], goal, limits, Catalog(GPUS, tuple(types), offered), BillFacts(), ["x"], date(2026, 11, 22)
    )


def least(plan: RentalPlan) -> float:
    """What the plan makes as small as it can: seconds with a budget alone, dollars else; infinite if nothing does."""
    if plan.chosen is None:
        return float("inf")
    fastest = plan.goal.budget_dollars is not None and plan.goal.deadline_seconds is None
    return plan.chosen.seconds.value if fastest else plan.chosen.dollars.value


@FEW
@given(PRICES, DEADLINES, BUDGETS)
def test_nothing_shown_that_is_feasible_is_both_cheaper_and_sooner_than_the_chosen_one(prices, deadline, budget):
    plan = plan_of(prices, deadline, budget)
    for choice in plan.choices:
        if plan.chosen is not None and choice.standing != "infeasible":
            better = (
                choice.dollars.value < plan.chosen.dollars.value,
                choice.seconds.value < plan.chosen.seconds.value,
            )
            assert better != (True, True)


@FEW
@given(PRICES, DEADLINES, BUDGETS, st.floats(0.05, 1))
def test_a_cheaper_price_never_raises_the_bill(prices, deadline, budget, factor):
    cheaper = [(prices[0][0], prices[0][1] * factor), *prices[1:]]
    assert least(plan_of(cheaper, deadline, budget)) <= least(plan_of(prices, deadline, budget)) * (1 + 1e-9)


@FEW
@given(PRICES, DEADLINES, BUDGETS, st.floats(1, 4))
def test_a_later_deadline_and_a_larger_budget_never_worsen(prices, deadline, budget, factor):
    before = least(plan_of(prices, deadline, budget))
    assert least(plan_of(prices, None if deadline is None else deadline * factor, budget)) <= before
    assert least(plan_of(prices, deadline, None if budget is None else budget * factor)) <= before


@FEW
@given(PRICES, DEADLINES, BUDGETS)
def test_lifting_a_constraint_never_worsens(prices, deadline, budget):
    tight = plan_of(prices, deadline, budget, most_nodes=1, quotas={POOL[prices[0][0]].name: 1})
    assert least(plan_of(prices, deadline, budget)) <= least(tight)


@FEW
@given(PRICES, DEADLINES, BUDGETS)
def test_what_is_offered_besides_never_worsens(prices, deadline, budget):
    assert least(plan_of(prices, deadline, budget)) <= least(plan_of(prices[:-1], deadline, budget))


@FEW
@given(PRICES, DEADLINES, BUDGETS)
def test_a_relaxation_makes_something_feasible(prices, deadline, budget):
    for each in plan_of(prices, deadline, budget).relaxations:
        if each.option == "deadline":
            unit = {"h": 3600, "m": 60}[each.to[-1]]
            assert plan_of(prices, float(each.to[:-1]) * unit, budget).chosen is not None
        if each.option == "budget":
            assert plan_of(prices, deadline, float(each.to)).chosen is not None
        if each.option == "max-nodes":
            assert plan_of(prices, deadline, budget, most_nodes=int(each.to)).chosen is not None
