"""Pages of fleets and policies: every mark stands within its plane, and every chart has its table."""

from __future__ import annotations

import numpy as np
import pytest
from fleet_pools import published

from stash.report.output import file_of
from stash.spot.choose.fleet_costs import FleetWish
from stash.spot.choose.provision import provision
from stash.spot.pages.fleet_plan import costs_of_fleets
from stash.spot.pages.fleet_plan import page as page_of_plan
from stash.spot.pages.simulated_policies import costs_of_policies, progress, timeline
from stash.spot.pages.simulated_policies import page as page_of_simulation
from stash.spot.policies.simulating import simulate
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.risks import Obtainable, SpotSimulation
from stash.spot.risk.fleet_risk import RiskOptions, with_risk
from stash.spot.risk.lifetimes import ChosenLaw, Memoryless
from stash.ui import html, markdown
from stash.ui.charts.chart import Bar, Blank, Chart, Dot, Trail
from stash.ui.charts.svg import svg


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    pool = published()
    kinds = tuple(
        kind.model_copy(update={"on_demand_dollars_per_hour": 3 * kind.dollars_per_hour}) for kind in pool.types
    )
    wish = FleetWish(pool.model_copy(update={"types": kinds, "start_seconds": 60.0}), 0.7, 5400)
    found = provision(wish, "0", "2026-11-22T00:00:00")
    assert found.chosen is not None
    law = ChosenLaw(Memoryless(1e-4), "stated")
    return with_risk(found, RiskOptions(dict.fromkeys(found.chosen.workers, law)), runs=200)


@pytest.fixture(scope="module")
def simulation(plan: FleetPlan) -> SpotSimulation:
    machines = np.repeat(np.random.default_rng(1).integers(0, 2, 60) * 9, 10)
    trace = Obtainable(gap_seconds=60, machines=tuple(machines.tolist()))
    return simulate(plan, [trace], runs=200, write_seconds=20)


def drawn(found: Chart | Blank) -> Chart:
    assert isinstance(found, Chart)
    return found


def test_every_mark_stands_within_its_plane(plan: FleetPlan, simulation: SpotSimulation) -> None:
    charts = [costs_of_fleets(plan), costs_of_policies(simulation), timeline(simulation), progress(simulation)]
    for chart in map(drawn, charts):
        places = [
            end
            for mark in chart.marks
            for end in (
                *((*mark.x, *mark.y) if isinstance(mark, Bar) else ()),
                *((mark.x, mark.y) if isinstance(mark, Dot) else ()),
                *((end for point in mark.points for end in point) if isinstance(mark, Trail) else ()),
            )
        ]
        assert places
        assert all(-1e-9 <= place <= 1 + 1e-9 for place in places), chart.name
        assert chart.table.rows
        assert svg(chart, 860).startswith("<svg")


def test_the_run_that_is_shown_was_paid_for_what_it_held(plan: FleetPlan, simulation: SpotSimulation) -> None:
    assert plan.chosen is not None
    prices = {kind.name: kind.dollars_per_hour for kind in plan.pool.types}
    hourly = sum(count * prices[name] for name, count in plan.chosen.workers.items())
    for course in simulation.courses:
        paid = sum((s.end - s.begin) * hourly * (3 if s.held == "on-demand" else 1) / 3600 for s in course.spans)
        assert course.dollars == pytest.approx(paid)
        assert course.late == (course.done[-1][1] < 1)
        assert all(0 <= share <= 1 + 1e-9 for _, share in course.done)


def test_pages_are_whole_in_every_renderer(plan: FleetPlan, simulation: SpotSimulation) -> None:
    for page in (page_of_plan(plan, "job.plan.json"), page_of_simulation(simulation, "zone.json")):
        for text in (html.render(page), markdown.render(page)):
            assert page.title.split()[0] in text
            assert "pot" in page.verdict[-1]
    assert page_of_simulation(simulation, "zone.json").charts
    assert page_of_plan(plan, "job.plan.json").charts


def test_what_cannot_be_drawn_says_why(plan: FleetPlan) -> None:
    nothing = plan.model_copy(update={"chosen": None, "risk": None})
    assert isinstance(costs_of_fleets(nothing), Blank)
    assert html.render(page_of_plan(nothing, "job.plan.json"))


def test_a_simulation_is_saved_as_a_picture(simulation: SpotSimulation) -> None:
    assert str(file_of(page_of_simulation(simulation, "zone.json"), ".svg")).startswith("<svg")
