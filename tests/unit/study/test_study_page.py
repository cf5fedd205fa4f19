"""The report of a study: bars as long as the values they say, what is missing is missing, prices by hand."""

from dataclasses import replace

import pytest
from big_studies import grid, many
from profile_builder import build
from studies import FakeWorld as World
from studies import cells_of, reading_of, run, study

from stash.analysis.attribution import attribute
from stash.core.intervals import Interval
from stash.core.units import format_seconds
from stash.study.figures import make_matrix
from stash.study.page import page, whole_table
from stash.study.results import find_twins, make_results
from stash.ui.charts.chart import Grid
from stash.ui.charts.svg import draw_svg
from stash.ui.html import render

GRID = """
workloads: [{zoo: resnet18}, {zoo: vgg11}]
batches: [32]
targets:
- {engine: sky, instance: p3.8xlarge, price: "$12/h", nodes: [1, 2]}
- {engine: sky, instance: p3.2xlarge, price: "$3/h"}
repeats: 2
"""


def found(folder, text=GRID):
    """Steps of 0.3 s, 0.1 s more on two nodes, and 0.02 s more in the second repeat."""
    file = study(text, folder)
    cells = cells_of(file)
    measured = {}
    for cell in cells:
        node = 0.2 + 0.1 * cell.nodes + 0.02 * cell.repeat
        times = {"solo": [0.1] * 3, "crowd": [0.1] * 3, "node": [node] * 3}
        measured[cell.id] = attribute(build(times, ranks=2, batch=32))
    return reading_of(file), make_results(cells, measured)


def test_repeats_become_one_result_with_its_price(tmp_path):
    _, every = found(tmp_path)
    assert len(every) == 6
    first = every[0]
    assert (len(first.cells), first.cell.nodes) == (2, 1)
    assert first.step.value == pytest.approx(0.31)
    assert first.shares["interconnect"] == pytest.approx(0.21 / 0.31)
    assert first.samples_per_second == pytest.approx((64 / 0.3 + 64 / 0.32) / 2)
    assert first.dollars_per_million == pytest.approx(12 / 3600 * 1e6 / first.samples_per_second)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three of the paper's models at two batches everywhere; one cell failed, one is still to run."""
    reading, every, _ = many(
        grid(("resnet18", "resnet50", "vgg11"), (32, 64)),
        tmp_path_factory.mktemp("grid"),
        ("vgg11 batch 64 on p2.8xlarge",),
        ("resnet18 batch 32 on p3.16xlarge",),
    )
    return reading, every


def result_of(every, what, where):
    return next(
        each for each in every if (each.cell.row_name, each.cell.column_name) == (what, where)
    )


def shown(whole, name):
    """What a figure says of every combination, by row and column."""
    grid = make_matrix(*whole, name)
    assert isinstance(grid, Grid)
    return {
        f"{row[0]} on {at}": text
        for row in grid.rows
        for at, text in zip(grid.head, row[1:], strict=True)
    }


def test_every_workload_has_a_chart_whose_bars_are_as_long_as_the_shares(whole):
    _, every = whole
    charts = page(*whole, "grid.yaml", "results").charts
    assert [chart.title for chart in charts] == [
        "Stalls of resnet18",
        "Stalls of resnet50",
        "Stalls of vgg11",
    ]
    own = [each for each in every if each.cell.workload == "resnet18"]
    assert len(charts[0].lanes) == len(own) == 15
    pieces = [piece for row in charts[0].lanes for piece in row.pieces]
    lengths = [piece.end - piece.start for piece in pieces if piece.series == "interconnect"]
    assert lengths == pytest.approx(
        [share for each in own if (share := each.shares.get("interconnect", 0.0)) > 0]
    )
    assert all(
        chart.table.rows and draw_svg(chart, 860) and draw_svg(chart, 350) for chart in charts
    )


def test_of_an_emulated_study_every_picture_says_so(tmp_path):
    text = "workloads: [{zoo: vgg11}]\nbatches: 32\ntargets: [{engine: emulated, instance: p3.8xlarge}]\n"
    reading, every, _ = many(text, tmp_path)
    (chart,) = page(reading, every, "grid.yaml", "results").charts
    assert chart.title == "Stalls of vgg11 (emulated)"


@pytest.mark.parametrize(
    "name", ["interconnect", "network", "twin", "prep", "fetch", "time", "cost"]
)
def test_missing_cells_say_why_in_every_figure(whole, name):
    texts = shown(whole, name)
    assert texts["vgg11 64 on p2.8xlarge"] == "failed"
    assert texts["resnet18 32 on p3.16xlarge"] == "to run"
    failed = page(*whole, "grid.yaml", "results").chapters[-1]
    assert "vgg11 batch 64 on p2.8xlarge: the device has too little memory" in failed.points


def test_a_stall_is_told_by_the_papers_formula_and_in_seconds(whole):
    one = result_of(whole[1], "resnet50 32", "p3.8xlarge")
    texts = shown(whole, "interconnect")
    seconds = one.seconds["contention"] + one.seconds["interconnect"]
    assert (
        texts["resnet50 32 on p3.8xlarge"]
        == f"{one.paper['interconnect']:.0f}% {format_seconds(seconds)}"
    )
    # one device: nothing is known of any model there
    assert "resnet50 32 on p3.2xlarge" not in texts


def test_the_papers_network_stall_is_held_to_one_machine_with_as_many_of_the_same_gpus(
    whole,
):
    pairs = {
        (twin.many.cell.place.name, twin.one.cell.place.name): twin
        for twin in find_twins(whole[1]).values()
    }
    assert set(pairs) == {("p2.8xlarge", "p2.16xlarge"), ("p3.8xlarge", "p3.16xlarge")}
    twin = pairs["p3.8xlarge", "p3.16xlarge"]
    many_step = sum(
        twin.many.seconds[name] for name in twin.many.seconds if name not in ("prep", "fetch")
    )
    one_step = sum(
        twin.one.seconds[name] for name in twin.one.seconds if name not in ("prep", "fetch")
    )
    assert twin.share == pytest.approx(many_step / one_step - 1)
    at = f"{twin.many.cell.row_name} on {twin.many.cell.column_name}"
    assert shown(whole, "twin")[at] == f"{twin.share:.0%} of p3.16xlarge"


def test_cost_is_told_warm_and_cold(whole):
    one = result_of(whole[1], "vgg11 32", "p2.xlarge")
    cold = one.dollars_per_million or 0.0
    warm = cold * (1 - one.seconds["fetch"] / one.step.value)
    assert shown(whole, "cost")["vgg11 32 on p2.xlarge"] == f"${warm:.2f} → ${cold:.2f}"


def test_a_stall_that_no_cell_knows_is_said_to_be_unknown_with_the_reason(tmp_path):
    assert make_matrix(*found(tmp_path), "fetch") == "Fetch stall: not asked for (--rungs)."


def test_the_verdict_names_the_longest_stall_and_where_it_is_longest(tmp_path):
    reading, every = found(tmp_path)
    step = Interval(value=1.0)
    seconds = {"compute": 0.5, "network": 0.4, "prep": 0.1}
    other = {**seconds, "network": 0.2, "prep": 0.3}
    two = (
        replace(every[0], step=step, seconds=seconds),
        replace(every[1], step=step, seconds=other),
    )
    verdict = page(reading, two, "grid.yaml", "results").verdict
    worst = f"{every[0].cell.row_name} on {every[0].cell.column_name}"
    assert (
        verdict[-1]
        == f"The largest stall is network: 30% of a step in the mean, at its worst 40%, {worst}."
    )
    assert page(reading, every, "grid.yaml", "results").verdict[:2] == (
        "Fastest: p3.8xlarge for 2 of 2 workloads.",
        "Cheapest: p3.2xlarge for 2 of 2 workloads.",
    )


def test_the_page_says_how_many_cells_are_done_and_that_none_is(tmp_path):
    file = study(GRID, tmp_path)
    run(file, World(), dollars=1000)
    html = render(page(reading_of(file), found(tmp_path)[1], "grid.yaml", "results"))
    assert "12 cells: 12 done" in html
    empty = page(reading_of(study(GRID, tmp_path / "new")), (), "grid.yaml", "results")
    assert (empty.charts, empty.verdict) == ((), ())
    assert "Cost: no cell that is done has it." in render(empty)


def test_the_table_has_every_combination_and_links_each_to_its_profile(whole):
    reading, every = whole
    first = every[0].cell
    rows = whole_table(
        reading, every, {first.id: f"grid.study/cells/{first.id}/profile.stash.json"}
    )
    assert len(rows.rows) == 48
    assert {row[4] for row in rows.rows} == {"done", "failed", "to run"}
    failed = next(row for row in rows.rows if row[4] == "failed")
    assert set(failed[5:]) == {"–"}
    html = render(page(reading, every, "grid.yaml", "results", {first.id: "beside.stash.json"}))
    assert f'<a href="beside.stash.json">{first.id}</a>' in html
