"""What holds of every recommendation, on markets that hypothesis draws."""

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
from stash.plan.records import Constraints, Goal, TrainingWork
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of

BASE = base_of(jobs()[0], draws=Draws(16))
FEW = settings(max_examples=20, deadline=None)
PRICES = st.lists(
    st.tuples(st.sampled_from(range(len(POOL))), st.floats(0.1, 40)),
    min_size=2,
    max_size=4,
    unique_by=lambda each: each[0],
)
DEADLINES = st.one_of(st.none(), st.floats(300, 30_000))
BUDGETS = st.one_of(st.none(), st.floats(1, 60))


@pytest.fixture(scope="module", autouse=True)
def forecasts_are_made_once():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evaluation, "stall_draws", remembering([BASE]))
        yield


def plan_of(
    prices,
    deadline,
    budget,
    **constraints,
):
    types = [POOL[number] for number, _ in prices]
    offered = tuple(
        Price("here", each.name, "r", "on-demand", dollars, "2026-11-20", "drawn", "")
        for each, (_, dollars) in zip(types, prices, strict=True)
    )
    goal = Goal(
        work=TrainingWork(samples=SAMPLES, text="some"),
        deadline_seconds=deadline,
        budget_dollars=budget,
    )
    limits = Constraints(**{"most_nodes": 3, **constraints})  # type: ignore[arg-type]
    return recommend(
        [BASE],
        goal,
        limits,
        Catalog(GPUS, tuple(types), offered),
        BillFacts(),
        ["x"],
        date(2026, 11, 22),
    )


@FEW
@given(PRICES, DEADLINES, BUDGETS)
def test_a_relaxation_makes_something_feasible(prices, deadline, budget):
    for each in plan_of(prices, deadline, budget).relaxations:
        if each.option == "deadline":
            unit = {"h": 3600, "m": 60}[each.to[-1]]
            assert plan_of(prices, float(each.to[:-1]) * unit, budget).chosen_choice is not None
        if each.option == "budget":
            assert plan_of(prices, deadline, float(each.to)).chosen_choice is not None
        if each.option == "max-nodes":
            assert (
                plan_of(prices, deadline, budget, most_nodes=int(each.to)).chosen_choice is not None
            )
