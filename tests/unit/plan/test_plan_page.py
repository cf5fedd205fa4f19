"""The page of a plan and its charts: everything stands within its plane, and every chart has its table."""

from __future__ import annotations

from itertools import pairwise

import plan_builder
import pytest

from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.plan.page import page, shown_choices
from stash.plan.plan_charts import cost_against_time, dollars_by_stall
from stash.plan.records import RentalPlan, Risk
from stash.report.output import file_of
from stash.ui.charts.chart import Bar, Blank, Chart, Dot, Rule, Tag
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


def test_cost_against_time_names_the_best_and_draws_the_deadline() -> None:
    chart = drawn(cost_against_time(plan_builder.plan()))
    tags = [mark.text for mark in chart.marks if isinstance(mark, Tag)]
    assert "1 × g5.48xlarge" in tags
    assert "deadline" in tags
    assert [mark.x for mark in chart.marks if isinstance(mark, Rule)] == [pytest.approx(24 / 40)]
    # g4dn.12xlarge takes 62.6 h, more than twice as long as the deadline.
    assert chart.caption == "1 choice far beyond is only in the table."
    assert len(chart.table.rows) == 6
    assert sum(isinstance(mark, Dot) for mark in chart.marks) == 5


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


def test_the_page_has_the_verdict_its_chapters_and_the_derivation() -> None:
    shown = page(plan_builder.plan())
    names = [chapter.name for chapter in shown.chapters]
    assert names == [
        "front", "dollars", "choices", "derivation", "assumed", "unranked", "every-unranked",
    ]  # fmt: skip
    assert dict(shown.numbers)["cost"] == "$338 ± 14"
    assert shown.next_steps[0].startswith("ten minutes of p3.16xlarge settle this")
    html = file_of(page(plan_builder.plan()), ".html")
    assert isinstance(html, str)
    assert "What to rent for resnet50" in html
    nothing = page(plan_builder.nothing_feasible())
    assert nothing.numbers == ()
    assert nothing.next_steps[0].startswith("`--deadline 10h`")


def test_a_plan_without_choices_has_a_page_and_no_picture() -> None:
    empty = plan_builder.plan(choices=(), experiment=None)
    assert isinstance(file_of(page(empty), ".html"), str)
    with pytest.raises(UserError, match="there is nothing to draw, because of no offer"):
        file_of(page(empty), ".svg")


def best_of(plan: RentalPlan, **changes: object) -> RentalPlan:
    """The same with these fields of the chosen one."""
    chosen = plan.choices[0].model_copy(update=changes)
    return plan.model_copy(update={"choices": (chosen, *plan.choices[1:])})


def test_the_verdict_says_how_probably_it_is_the_best_and_what_not_knowing_costs() -> None:
    risk = Risk(best=0.41, regret=Interval(value=4.5, low=0.0, high=31.2), unit="dollars", among=12)
    plan = best_of(plan_builder.plan(risk=risk), best=0.41)
    verdict = page(plan).verdict[0]
    assert "Of 12 types it is the cheapest in 41% of draws; not knowing better costs $4.50 in the mean" in verdict
    assert verdict.endswith("no more than $31.20 in 97.5% of draws.")
    assert dict(page(plan).numbers)["cheapest"] == "41%"
    hours = plan.model_copy(update={"risk": risk.model_copy(update={"unit": "seconds"})})
    assert "costs 4.50 s in the mean" in page(hours).verdict[0]


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


def test_how_nodes_talk_stands_with_where_they_are() -> None:
    assert ", over EFA)" in page(best_of(plan_builder.plan(), transport="EFA")).verdict[0]
