"""Machines on spot for a script that all-reduces: its speed is a forecast's, not that of a queue at servers."""

from __future__ import annotations

from datetime import date

import pytest
from forecast_profiles import gpu_job

from stash.plan.bill import BillFacts
from stash.plan.recommend import recommend
from stash.plan.records import Constraints, Goal, TrainingWork
from stash.predict.changes import Alteration
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of, shipped_catalog, what_if


def test_a_synchronous_job_on_spot_is_planned_with_the_speed_that_whatif_says():
    """Once 1.04 updates/s were planned, by the queue, where `stash whatif` said 3.7."""
    base = base_of(gpu_job(), draws=Draws(64))
    limits = Constraints(clouds=("aws",), quotas={"p3.8xlarge": 2}, spot="allow")
    goal = Goal(work=TrainingWork(samples=1_000_000, text="some"))
    found = recommend(
        [base], goal, limits, shipped_catalog(), BillFacts(), ["x"], date(2026, 11, 22)
    )
    spot = [
        each
        for each in found.choices
        if each.rented.price.paid_as == "spot" and each.rented.devices > 1
    ]
    assert spot
    for choice in spot:
        where, how = choice.rented, choice.setting.model_dump(exclude_none=True)
        wanted = Alteration(instance=f"aws/{where.instance}", nodes=where.nodes, **how)
        assert choice.step.value == pytest.approx(
            what_if(base, wanted).breakdown.step.value, rel=0.03
        )
