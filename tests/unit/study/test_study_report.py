"""The report of a study: bars as long as the shares they say, what is missing is missing, prices by hand."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from big_studies import grid, many
from profile_builder import build
from studies import FakeWorld as World
from studies import cells_of, reading_of, run, study

from stash.analysis.attribution import attribute
from stash.core.units import format_seconds
from stash.study.page import page
from stash.study.paper_figures import placement, stall, time_and_cost, utilisation
from stash.study.place_lines import lines
from stash.study.results import ProfileLook, StudyResult, front, results, twins
from stash.study.sheet import StudySheet, downloads, sheet, whole_table
from stash.study.status import StudyReading
from stash.study.study_charts import cost_against_time, line_grids, models, stalls
from stash.ui.charts.chart import Bar, Blank, Chart, Dot, Tile, Trail
from stash.ui.charts.svg import svg
from stash.ui.html import render

GRID = """
workloads: [{zoo: resnet18}, {zoo: vgg11}]
batches: [32]
targets:
- {engine: sky, instance: p3.8xlarge, price: "$12/h", nodes: [1, 2]}
- {engine: sky, instance: p3.2xlarge, price: "$3/h"}
repeats: 2
"""


def profile(solo: float, node: float):
    times = {"solo": [solo] * 3, "crowd": [solo] * 3, "node": [node] * 3}
    return build(times, ranks=2, batch=32)


def found(folder: Path, missing: str = "") -> tuple[StudyResult, ...]:
    cells = cells_of(study(GRID, folder))
    measured = {
        cell.id: attribute(profile(0.1, 0.2 + 0.1 * cell.nodes + 0.02 * cell.repeat))
        for cell in cells
        if not missing or missing not in cell.title
    }
    return results(cells, measured)


def test_repeats_become_one_result_with_its_price(tmp_path: Path) -> None:
    every = found(tmp_path)
    assert len(every) == 6
    first = every[0]
    assert (first.repeats, first.cell.nodes) == (2, 1)
    assert first.step.value == pytest.approx(0.31)
    assert first.shares["interconnect"] == pytest.approx((0.2 / 0.3 + 0.22 / 0.32) / 2)
    assert first.samples_per_second == pytest.approx((64 / 0.3 + 64 / 0.32) / 2)
    assert first.dollars_per_million == pytest.approx(12 / 3600 * 1e6 / first.samples_per_second)


def test_the_front_is_what_nothing_beats_in_both(tmp_path: Path) -> None:
    own = [each for each in found(tmp_path) if each.cell.workload == "vgg11"]
    assert [each.cell.place.name for each in front(own)] == ["p3.2xlarge"]


def shown_of(folder: Path, missing: str = "") -> StudySheet:
    return sheet(reading_of(study(GRID, folder)), found(folder, missing))


def drawn(chart: Chart | Blank) -> Chart:
    assert isinstance(chart, Chart)
    return chart


def tiles(chart: Chart | Blank) -> dict[str, Tile]:
    """By what they say, up to the colon: row and column."""
    return {mark.tip.split(":")[0]: mark for mark in drawn(chart).marks if isinstance(mark, Tile)}


def words_in(chart: Chart | Blank) -> set[str]:
    return {mark.texts[0] for mark in drawn(chart).marks if isinstance(mark, Tile) and mark.texts}


def test_bars_are_as_long_as_the_shares_and_what_is_missing_is_hatched(tmp_path: Path) -> None:
    (chart,) = stalls(shown_of(tmp_path, missing="vgg11 batch 32 on 2 ×"))
    bars = [mark for mark in drawn(chart).marks if isinstance(mark, Bar)]
    lines = [bar for bar in bars if bar.series == "plain"]
    assert len(lines) == 5
    exchange = [bar for bar in bars if bar.series == "interconnect"]
    whole = lines[0].x[1] - lines[0].x[0]
    for bar in exchange:
        share = re.search(r"([\d.]+)% of the step", bar.tip)
        assert (bar.x[1] - bar.x[0]) / whole == pytest.approx(float(share[1]) / 100, abs=0.001)
    assert [at for at, tile in tiles(chart).items() if tile.missing] == ["vgg11 32 on 2 × p3.8xlarge"]


def test_every_workload_has_a_panel_with_a_dot_for_each_of_its_combinations(tmp_path: Path) -> None:
    chart = drawn(cost_against_time(found(tmp_path)))
    assert sum(isinstance(mark, Dot) for mark in chart.marks) == 6
    assert words_in(chart) >= {"resnet18", "vgg11"}


def test_many_places_are_parted_evenly(tmp_path: Path) -> None:
    text = GRID.replace("nodes: [1, 2]", "nodes: [1, 2, 3, 4, 5, 6, 7, 8, 9]")
    file = study(text, tmp_path)
    cells = cells_of(file)
    every = results(cells, {cell.id: attribute(profile(0.1, 0.2)) for cell in cells})
    charts = stalls(sheet(reading_of(file), every))
    assert [chart.name for chart in charts] == ["stalls", "stalls-2"]
    assert [len(drawn(chart).columns) for chart in charts] == [5, 5]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyReading, tuple[StudyResult, ...]]:
    """Three of the paper's models at two batches everywhere; one cell failed, one is still to run."""
    text = grid(("resnet18", "resnet50", "vgg11"), (32, 64))
    reading, every, _ = many(
        text,
        tmp_path_factory.mktemp("grid"),
        ("vgg11 batch 64 on p2.8xlarge",),
        ("resnet18 batch 32 on p3.16xlarge",),
    )
    return reading, every


def result_of(every: Sequence[StudyResult], workload: str, batch: int, place: str, nodes: int = 1) -> StudyResult:
    return next(
        each
        for each in every
        if (each.cell.workload, each.cell.batch, each.cell.place.name, each.cell.nodes)
        == (workload, batch, place, nodes)
    )


def test_every_figure_of_the_paper_is_there_and_has_its_table(whole) -> None:
    drawn_page = page(*whole, "grid.yaml", "results")
    names = {chart.name for chart in drawn_page.charts}
    assert names == {
        "stalls", "interconnect", "network", "network-twin", "prep", "fetch", "cost-against-time", "time",
        "cost", "utilisation", "layers", "gradient-bytes",
    }  # fmt: skip
    assert all(chart.table.rows and svg(chart, 860) and svg(chart, 350) for chart in drawn_page.charts)


def test_missing_cells_are_hatched_with_their_reason_in_every_matrix(whole) -> None:
    shown = sheet(*whole)
    for chart in (*stall(shown, "prep"), *time_and_cost(shown), *utilisation(shown)):
        missing = {at: tile for at, tile in tiles(chart).items() if tile.missing}
        assert set(missing) == {"vgg11 64 on p2.8xlarge", "resnet18 32 on p3.16xlarge"}
        failed = missing["vgg11 64 on p2.8xlarge"]
        assert failed.texts == ("failed",)
        assert "too little memory" in failed.tip
        assert not any(tile.bars for tile in missing.values())


def test_utilisation_stands_beside_stalls_and_emulated_gpus_are_busy_while_layers_compute(tmp_path: Path) -> None:
    text = "workloads: [{zoo: vgg11}]\nbatches: 32\ntargets: [{engine: emulated, instance: p3.8xlarge}]\n"
    reading, every, _ = many(text, tmp_path)
    (chart,) = utilisation(sheet(reading, every))
    (tile,) = tiles(chart).values()
    computes = every[0].seconds["compute"] / every[0].step.value
    assert 0.01 < computes < 0.99
    assert tile.texts[0] == f"GPU {computes:.0%} · stalled {1 - computes:.0%}"
    assert [bar.length for bar in tile.bars] == pytest.approx([computes, 1 - computes])
    assert {key.text for key in drawn(chart).keys} == {"GPUs", "stalled"}


def test_a_stall_is_told_by_the_papers_formula_and_in_seconds(whole) -> None:
    reading, every = whole
    one = result_of(every, "resnet50", 32, "p3.8xlarge")
    (chart,) = stall(sheet(reading, every), "interconnect")
    tile = tiles(chart)["resnet50 32 on p3.8xlarge"]
    seconds = one.seconds["contention"] + one.seconds["interconnect"]
    assert tile.texts[0] == f"{one.paper['interconnect']:.0f}% {format_seconds(seconds)}"
    assert tile.bars[0].length == pytest.approx(one.paper["interconnect"] / 100)
    assert tile.link == f"#cell-{one.cell.id}"
    assert "p3.2xlarge" not in drawn(chart).columns
    assert "p2.xlarge, p3.2xlarge (one device a node)" in drawn(chart).how


def test_the_papers_network_stall_is_held_to_one_machine_with_as_many_of_the_same_gpus(whole) -> None:
    _, every = whole
    found_twins = twins(every)
    assert {(twin.many.cell.place.name, twin.one.cell.place.name) for twin in found_twins} == {
        ("p2.8xlarge", "p2.16xlarge"), ("p3.8xlarge", "p3.16xlarge"),
    }  # fmt: skip
    twin = next(twin for twin in found_twins if twin.many.cell.place.name == "p3.8xlarge")
    many_step = sum(twin.many.seconds[name] for name in twin.many.seconds if name not in ("prep", "fetch"))
    one_step = sum(twin.one.seconds[name] for name in twin.one.seconds if name not in ("prep", "fetch"))
    assert twin.share == pytest.approx(many_step / one_step - 1)


def test_warm_is_a_solid_bar_and_what_cold_adds_a_faint_one(whole) -> None:
    reading, every = whole
    one = result_of(every, "vgg11", 32, "p2.xlarge")
    time, cost = time_and_cost(sheet(reading, every))
    cold, warm = tiles(time)["vgg11 32 on p2.xlarge"].bars
    assert (cold.faint, warm.faint) == (True, False)
    assert warm.length / cold.length == pytest.approx((one.warm_seconds or 0.0) / one.step.value)
    dollars = tiles(cost)["vgg11 32 on p2.xlarge"]
    assert f"cold ${one.dollars_per_million:.2f}" in dollars.tip


def test_slow_down_is_the_step_over_one_devices_own(whole) -> None:
    one = result_of(whole[1], "resnet50", 32, "p3.8xlarge")
    assert one.slow_down == pytest.approx(one.step.value / (one.seconds["compute"] + one.seconds["transfer"]))


def test_a_stall_that_no_cell_knows_is_said_to_be_unknown_with_the_reason(tmp_path: Path) -> None:
    (blank,) = stall(shown_of(tmp_path), "fetch")
    assert isinstance(blank, Blank)
    assert "--rungs" in blank.why


def test_models_are_placed_by_their_own_bytes_whatever_an_emulation_shrinks_them_by(tmp_path: Path) -> None:
    text = """
workloads: [{zoo: resnet18}, {zoo: vgg11}]
targets: [{engine: emulated, instance: p3.8xlarge}]
"""
    _, every, _ = many(text, tmp_path)
    read_as = ProfileLook({}, 62, 46_800_000 * every[0].cell.emulated.scale)
    cell = every[0].cell
    (again,) = results([cell], {cell.id: attribute(profile(0.1, 0.2))}, {cell.id: read_as})
    assert again.gradient_bytes == pytest.approx(46_800_000)
    layers, sizes = models(every)
    assert sum(isinstance(mark, Dot) for mark in drawn(layers).marks) == 2
    assert "p3.8xlarge" in words_in(sizes)


def test_the_papers_line_goes_through_the_models_of_each_place(tmp_path: Path) -> None:
    text = """
workloads: [{zoo: resnet18}, {zoo: resnet50}, {zoo: resnet34_nobn}, {zoo: vgg11}, {zoo: vgg16_bn}]
batches: 32
targets: [{engine: emulated, instance: p3.8xlarge}, {engine: emulated, instance: p3.2xlarge}]
"""
    _, every, _ = many(text, tmp_path)
    (one,) = lines(every)
    by_hand = 3 / 60e9  # seconds a byte that `profile_of` lets four devices wait
    assert one.line.terms[2].value == pytest.approx(by_hand, rel=0.02)
    (table_of_lines,) = line_grids(every)
    (row,) = table_of_lines.rows
    assert row[:3] == ("p3.8xlarge", "32", "5")
    assert row[5].startswith("50.")  # µs for a megabyte
    assert line_grids(every[:6]) == ()
    off = f"off {one.line.error:.0%}"
    _, by_bytes = models(every)
    assert f"p3.8xlarge, {off}" in words_in(by_bytes)
    (trail,) = [mark for mark in drawn(by_bytes).marks if isinstance(mark, Trail)]
    assert len(trail.points) > 5
    assert not [mark for mark in drawn(models(every[:6])[1]).marks if isinstance(mark, Trail)]


def test_the_verdict_names_the_stall_that_costs_most(tmp_path: Path) -> None:
    file = study(GRID, tmp_path)
    reading, every = reading_of(file), found(tmp_path)
    # a step waits longest for network where an hour is cheap, and for prep where it is dear
    shares = {"compute": 0.5, "network": 0.4, "prep": 0.1}
    cheap = replace(every[0], shares=shares, dollars_per_hour=1.0, samples_per_second=1000.0)
    dear = replace(
        every[1], shares={**shares, "network": 0.1, "prep": 0.4}, dollars_per_hour=36.0, samples_per_second=1000.0
    )
    # $0.28 and $10 of a million samples: prep takes 0.03 and 4.00 of them
    verdict = page(reading, (cheap, dear), "grid.yaml", "results").verdict
    assert verdict[-1].startswith(
        "The largest stall is prep: $2.01 of a million samples in the mean, at its worst $4.00"
    )
    # without prices the longest counts
    unpriced = [replace(each, dollars_per_hour=None) for each in (cheap, replace(dear, shares=shares))]
    verdict = page(reading, unpriced, "grid.yaml", "results").verdict
    assert verdict[-1].startswith("The largest stall is network: 40% of a step in the mean")


def test_the_page_says_how_many_cells_are_done_and_that_none_is(tmp_path: Path) -> None:
    file = study(GRID, tmp_path)
    run(file, World(), dollars=1000)
    reading = reading_of(file)
    html = render(page(reading, found(tmp_path), "grid.yaml", "results"))
    assert "12 cells: 12 done" in html
    empty = page(reading_of(study(GRID, tmp_path / "new")), (), "grid.yaml", "results")
    assert isinstance(empty.chapters[0].charts[0], Blank)
    assert "no cell is done yet" in render(empty)


def test_the_table_has_every_combination_and_links_each_to_its_profile(whole) -> None:
    reading, every = whole
    first = every[0].cell
    rows = whole_table(reading, every, {first.id: f"grid.study/cells/{first.id}/profile.stash.json"})
    assert len(rows.rows) == 48
    assert {row[4] for row in rows.rows} == {"done", "failed", "to run"}
    failed = next(row for row in rows.rows if row[4] == "failed")
    assert set(failed[5:]) == {"–"}
    html = render(page(reading, every, "grid.yaml", "results", {first.id: "beside.stash.json"}))
    assert f'<a href="beside.stash.json">{first.id}</a>' in html
    assert f'id="cell-{first.id}"' in html
    assert html.count('href="#cell-') > 400


def test_what_is_downloaded_holds_every_number_unrounded_and_null_where_nothing_is_known(whole) -> None:
    reading, every = whole
    as_csv, as_json = downloads(reading, every)
    document = json.loads(as_json.text)
    assert document["schema"] == 1
    rows = {(row["workload"], row["batch"], row["place"], row["nodes"]): row for row in document["combinations"]}
    one = result_of(every, "vgg11", 32, "p3.8xlarge", 2)
    row = rows["vgg11", 32, "p3.8xlarge", 2]
    assert row["network_seconds"] == one.seconds["network"]
    assert row["paper_network_pct"] == one.paper["network"]
    assert row["cells"] == one.cell.id
    failed = rows["vgg11", 64, "p2.8xlarge", 1]
    assert (failed["state"], failed["step_seconds"]) == ("failed", None)
    assert "memory" in failed["why"]
    table_rows = list(csv.DictReader(io.StringIO(as_csv.text)))
    assert len(table_rows) == 48
    assert float(next(each for each in table_rows if each["cells"] == one.cell.id)["step_seconds"]) == one.step.value


def test_what_is_downloaded_cannot_end_its_element_early(tmp_path: Path) -> None:
    reading, every, _ = many(grid(("resnet18",), (32,)), tmp_path, failed=("p2.xlarge",))
    cell = next(cell for cell in reading.cells if reading.standings[cell.id].state == "failed")
    trap = replace(reading.standings[cell.id], why="</script><script>alert(1)</script>")
    html = render(page(replace(reading, standings={**reading.standings, cell.id: trap}), every, "g", "r"))
    assert "</script><script>" not in html


def test_placements_are_held_against_the_fastest_of_the_same_machine(tmp_path: Path) -> None:
    """By hand: 0.3 s and 0.2 s, 1.5 times; what is of another kind, or names no GPUs, is not compared."""
    (of_grid,) = placement(shown_of(tmp_path))
    assert isinstance(of_grid, Blank)
    text = """
workloads: [{zoo: resnet50}]
batches: 32
targets:
- {engine: emulated, instance: p3.8xlarge, name: one half, gpus: [0, 1, 2, 3], time_scale: 1}
- {engine: emulated, instance: p3.8xlarge, name: apart, gpus: [0, 1, 4, 5], time_scale: 1}
- {engine: emulated, instance: p3.8xlarge, name: unnamed, time_scale: 1}
"""
    file = study(text, tmp_path)
    cells = cells_of(file)
    every = results(cells, {cell.id: attribute(profile(0.1, 0.2 + 0.1 * at)) for at, cell in enumerate(cells)})
    (chart,) = placement(sheet(reading_of(file), every))
    shown = {at: tile.tip.split(": ")[1] for at, tile in tiles(chart).items()}
    assert shown["resnet50 32 on one half"].startswith("1.00 times the step on one half")
    assert shown["resnet50 32 on apart"].startswith("1.50 times the step on one half, 200 ms of it exchange")
    assert "unnamed" not in drawn(chart).columns
