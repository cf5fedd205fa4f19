"""Pages of fleets: every mark stands within its plane, and every chart has its table."""

from __future__ import annotations

import pytest
from fleet_pools import published

from stash.spot.choose.fleet_costs import FleetWish
from stash.spot.choose.provision import provision
from stash.spot.pages.fleet_plan import costs_of_fleets
from stash.spot.pages.fleet_plan import page as page_of_plan
from stash.spot.records.fleets import FleetPlan
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


def drawn(found: Chart | Blank) -> Chart:
    assert isinstance(found, Chart)
    return found


def test_every_mark_stands_within_its_plane(plan: FleetPlan) -> None:
    chart = drawn(costs_of_fleets(plan))
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


def test_pages_are_whole_in_every_renderer(plan: FleetPlan) -> None:
    page = page_of_plan(plan, "job.plan.json")
    for text in (html.render(page), markdown.render(page)):
        assert page.title.split()[0] in text
        assert "pot" in page.verdict[-1]
    assert page.charts


def test_what_cannot_be_drawn_says_why(plan: FleetPlan) -> None:
    nothing = plan.model_copy(update={"chosen": None, "risk": None})
    assert isinstance(costs_of_fleets(nothing), Blank)
    assert html.render(page_of_plan(nothing, "job.plan.json"))
