"""The page of a plan and its charts: everything stands within its plane, and every chart has its table."""

import plan_builder
import pytest

from stash.core.intervals import Interval
from stash.plan.page import page
from stash.plan.plan_charts import cost_against_time
from stash.ui.charts.builders import Chart
from stash.ui.charts.svg import draw_svg


@pytest.mark.parametrize(
    "plan", [plan_builder.plan(), plan_builder.nothing_feasible()], ids=["plan", "nothing"]
)
def test_every_mark_stands_within_its_plane(plan):
    chart = cost_against_time(plan)
    assert isinstance(chart, Chart)
    places = [chart.x.locate(point.x) for curve in chart.curves for point in curve.points]
    assert places
    assert all(0 <= place <= 1 for place in places)
    assert chart.table.rows
    assert draw_svg(chart, 860).startswith("<svg")


def best_of(plan, **changes):
    """The same with these fields of the chosen one."""
    chosen = plan.choices[0].model_copy(update=changes)
    return plan.model_copy(update={"choices": (chosen, *plan.choices[1:])})


def test_a_median_stands_beside_a_mean_that_a_heavy_tail_moves():
    plan = plan_builder.plan()
    mean = plan.choices[0].seconds.value
    assert "median" not in page(best_of(plan, median_seconds=0.97 * mean)).verdict[0]
    assert "(median " in page(best_of(plan, median_seconds=0.8 * mean)).verdict[0]


def test_a_number_without_an_interval_says_why_and_what_gives_it_one():
    plan = plan_builder.plan()
    seconds = Interval(value=plan.choices[0].seconds.value)
    stalls = tuple(
        stall.model_copy(update={"facts": (plan_builder.NETWORK,)})
        for stall in plan.choices[0].stalls
    )
    (table,) = page(best_of(plan, seconds=seconds, stalls=stalls)).grids[:1]
    assert (
        "no interval, as what a node's interface carries was published without a spread ("
        in table.rows[0][-1]
    )
    assert table.rows[0][-1].endswith("): profile there")
    assert "no interval" not in page(plan).grids[0].rows[0][-1]
