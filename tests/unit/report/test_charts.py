"""Charts as data: where marks stand, what is said of them, and that each has its table."""

import itertools
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_builder import build
from reported import hostile, page_of, probed_whole, whole

from stash.analysis.attribution import attribute
from stash.analysis.step_times import ranks_side_by_side, step_matrix
from stash.report import charts as drawn_charts
from stash.report.charts import ladder_chart, steps_side_by_side
from stash.ui.charts.chart import (
    logarithmic_extent,
    make_axis,
    plain_axis,
    round_extent,
    round_places,
)
from stash.ui.charts.svg import draw_svg

SVG = "{http://www.w3.org/2000/svg}"


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=5), st.booleans())
def test_an_axis_holds_all_its_values_between_round_ends_and_has_a_handful_of_places(values, zero):
    shown = round_extent(values, zero)
    at = [shown.locate(value) for value in values]
    assert all(-1e-6 <= place <= 1 + 1e-6 for place in at)
    assert 2 <= len(round_places(shown)) <= 14


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.0, 107.0, ["0", "20", "40", "60", "80", "100", "120"]),
        (-17.0, 47.0, ["-20", "0", "20", "40", "60"]),
        (0.0, 1.2, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2"]),
    ],
)
def test_places_on_an_axis_are_round_in_its_unit(low, high, texts):
    assert [tick.text for tick in plain_axis(round_extent([low, high]), "ms").ticks] == texts


def test_a_logarithmic_axis_has_a_place_for_each_power_of_ten():
    shown = logarithmic_extent([3e6, 2e9])
    assert [tick.text for tick in make_axis(shown, "", str).ticks] == [
        "1000000.0",
        "10000000.0",
        "100000000.0",
        "1000000000.0",
        "10000000000.0",
    ]
    assert shown.locate(1e8) == pytest.approx(0.5)


def bars(chart):
    return [piece for row in chart.lanes for piece in row.pieces]


def test_bars_of_the_ladder_follow_on_each_other_and_end_with_the_step():
    drawn = bars(ladder_chart(attribute(whole())))
    *stalls, step = drawn
    assert [bar.series for bar in stalls] == [
        "compute",
        "transfer",
        "contention",
        "interconnect",
        "network",
        "prep",
        "fetch",
    ]
    for before, after in itertools.pairwise(stalls):
        assert after.start == before.end
    assert (step.start, step.end) == (0.0, pytest.approx(stalls[-1].end))


def test_a_stall_below_zero_goes_back_and_a_doubtful_one_is_faint():
    chart = ladder_chart(
        attribute(build({"solo": [0.10, 0.11, 0.10], "crowd": [0.09, 0.11, 0.10]}))
    )
    compute, contention, _ = bars(chart)
    assert contention.start == compute.end > contention.end
    assert contention.faint
    assert not compute.faint


def test_an_unknown_stall_has_a_lane_with_its_reason_and_no_bar():
    times = {"solo": [0.1] * 3, "crowd": [0.2] * 3}
    chart = ladder_chart(
        attribute(build(times, skipped={"warm": "no time", "cold": "its pages stayed in memory"}))
    )
    fetch = next(lane for lane in chart.lanes if lane.name == "fetch")
    assert fetch.unknown == "its pages stayed in memory"
    assert ("fetch", "unknown", "", "", "", "its pages stayed in memory") in chart.table.rows
    assert "fetch" not in {bar.series for bar in bars(chart)}


def ranks_of(profile):
    kept = step_matrix(profile)
    return drawn_charts.ranks_chart(attribute(profile), ranks_side_by_side(profile, kept), profile)


def test_ranks_have_a_lane_each_and_the_slow_one_is_named():
    chart = ranks_of(whole())
    assert [lane.name for lane in chart.lanes] == [
        "rank 0, node 0",
        "rank 1, node 0",
        "rank 2, node 1",
        "rank 3, node 1",
    ]
    assert chart.caption.startswith("Rank 3 is ")
    assert chart.table.head == ("crowd", "node", "cluster", "warm", "cold")


def test_very_many_ranks_share_a_lane_for_each_rung():
    chart = ranks_of(build({"solo": [0.1] * 3, "crowd": [0.2] * 3, "node": [0.3] * 3}, ranks=40))
    assert [lane.name for lane in chart.lanes] == ["crowd", "node"]
    assert sum(len(lane.values) for lane in chart.lanes) == 80
    assert len(chart.table.rows) == 40


def test_runs_side_by_side_have_a_lane_each_and_a_row_of_the_table():
    runs = [
        ("a", attribute(whole())),
        ("b", attribute(build({"solo": [0.1] * 3, "crowd": [0.2] * 3}))),
    ]
    chart = steps_side_by_side(runs)
    assert [lane.name for lane in chart.lanes] == ["a", "b"]
    assert chart.table.rows[1][:3] == ("b", "200.0", "± 2.0")
    assert chart.table.rows[1][chart.table.head.index("fetch") + 1] == "unknown"


@pytest.fixture(scope="module")
def charts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    pages = [page_of(probed_whole(), folder=folder), page_of(hostile(), folder=folder)]
    pages += [page_of(whole(), probed_whole(), folder=folder)]
    return tuple(chart for page in pages for chart in page.charts)


def test_all_kinds_of_charts_are_there(charts):
    assert {chart.name for chart in charts} == {
        "ladder",
        "ranks",
        "all-reduce",
        "runs",
    }


def test_every_chart_has_a_table_and_units_on_its_axes(charts):
    for chart in charts:
        assert chart.table.rows, chart.name
        assert all(len(row) == 1 + len(chart.table.head) for row in chart.table.rows), chart.name
        assert chart.x.axis.label, chart.name
        assert chart.lanes or (chart.y is not None and chart.y.axis.label), chart.name
        assert chart.how or chart.caption, chart.name


@pytest.mark.parametrize("width", [350, 860])
@pytest.mark.parametrize("paper", [False, True])
def test_drawings_are_well_formed_keep_to_their_width_and_hold_no_script(charts, width, paper):
    for chart in charts:
        text = draw_svg(chart, width, paper)
        root = ElementTree.fromstring(text)
        assert "\x1b" not in text
        assert not [element for element in root.iter() if element.tag == f"{SVG}script"]
        for element in root.iter():
            x = element.get("x") or element.get("cx")
            assert x is None or -1 <= float(x) <= width + 1, (chart.name, element.attrib)
