"""The page of a plan and its charts: everything stands within its plane, and every chart has its table."""

from __future__ import annotations

from itertools import pairwise

import plan_builder
import pytest

from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.plan.page import page, shown_choices
from stash.plan.plan_charts import cost_against_time, dollars_by_stall
from stash.plan.records import RentalPlan
from stash.report.output import file_of
from stash.ui.charts.chart import Bar, Blank, Chart, Dot
from stash.ui.charts.svg import svg


def drawn(found: Chart | Blank) -> Chart:
    assert isinstance(found, Chart)
    return found


@pytest.mark.parametrize("plan", [plan_builder.plan(), plan_builder.nothing_feasible()], ids=["plan", "nothing"])
def test_every_mark_stands_within_its_plane(plan: RentalPlan) -> None:
    for chart in (drawn(cost_against_time(plan)), drawn(dollars_by_stall(plan, shown_choices(plan)))):
        places = [
            end
            for mark in chart.marks
            for end in (*(mark.x if isinstance(mark, Bar) else ()), *((mark.x,) if isinstance(mark, Dot) else ()))
        ]
        assert places
        assert all(0 <= place <= 1 for place in places)
        assert chart.table.rows
        assert svg(chart, 860).startswith("<svg")


def test_bars_of_a_bill_follow_each_other_and_end_at_its_total() -> None:
    plan = plan_builder.plan()
    chart = drawn(dollars_by_stall(plan, shown_choices(plan)))
    first = [mark for mark in chart.marks if isinstance(mark, Bar)][: len(plan.choices[0].stalls) + 1]
    assert [mark.series for mark in first][-2:] == ["fetch", "plain"]
    for before, after in pairwise(first):
        assert after.x[0] == pytest.approx(before.x[1])
    assert first[-1].x[1] == pytest.approx(plan.choices[0].dollars.value / 600)
    assert chart.table.rows[0][0] == "1 × g5.48xlarge"


def test_an_item_that_was_not_counted_is_no_zero() -> None:
    whole, without = plan_builder.chosen(), plan_builder.tied()
    bare = without.model_copy(update={"items": without.items[:1]})
    plan = plan_builder.plan(choices=(whole, bare))
    chart = drawn(dollars_by_stall(plan, plan.choices))
    assert chart.table.rows[1][-1] == "not counted"


def test_a_plan_without_choices_has_a_page_and_no_picture() -> None:
    empty = plan_builder.plan(choices=(), experiment=None)
    assert isinstance(file_of(page(empty), ".html"), str)
    with pytest.raises(UserError, match="there is nothing to draw, because of no offer"):
        file_of(page(empty), ".svg")


def best_of(plan: RentalPlan, **changes: object) -> RentalPlan:
    """The same with these fields of the chosen one."""
    chosen = plan.choices[0].model_copy(update=changes)
    return plan.model_copy(update={"choices": (chosen, *plan.choices[1:])})


def test_a_median_stands_beside_a_mean_that_a_heavy_tail_moves() -> None:
    plan = plan_builder.plan()
    mean = plan.choices[0].seconds.value
    assert "median" not in page(best_of(plan, median_seconds=0.97 * mean)).verdict[0]
    assert "(median " in page(best_of(plan, median_seconds=0.8 * mean)).verdict[0]


def test_a_number_without_an_interval_says_why_and_what_gives_it_one() -> None:
    plan = plan_builder.plan()
    seconds = Interval(value=plan.choices[0].seconds.value)
    stalls = tuple(stall.model_copy(update={"facts": (plan_builder.NETWORK,)}) for stall in plan.choices[0].stalls)
    (table,) = page(best_of(plan, seconds=seconds, stalls=stalls)).grids[:1]
    assert "no interval, as what a node's interface carries was published without a spread (" in table.rows[0][-1]
    assert table.rows[0][-1].endswith("): profile there")
    assert "no interval" not in page(plan).grids[0].rows[0][-1]
