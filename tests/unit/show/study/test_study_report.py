"""The report of a study: bars as long as the shares they say, what is missing is missing, prices by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from profile_builder import build
from studies import FakeWorld as World
from studies import cells_of, reading_of, run, study

from stash.derive.stalls import attribute
from stash.derive.study.results import StudyResult, front, results
from stash.show.charts.chart import Bar, Blank, Chart, Dot
from stash.show.report.html import render
from stash.show.study.charts import cost_against_time, stalls, table
from stash.show.study.page import page

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


def test_bars_are_as_long_as_the_shares_and_what_is_missing_has_no_line(tmp_path: Path) -> None:
    (chart,) = stalls(found(tmp_path, missing="vgg11 batch 32 on 2 ×"))
    assert isinstance(chart, Chart)
    bars = [mark for mark in chart.marks if isinstance(mark, Bar)]
    lines = [bar for bar in bars if bar.series == "plain"]
    assert len(lines) == 5
    told = [bar for bar in bars if bar.series == "interconnect"]
    whole = lines[0].x[1] - lines[0].x[0]
    for bar in told:
        share = re.search(r"([\d.]+)% of the step", bar.says)
        assert share is not None
        assert (bar.x[1] - bar.x[0]) / whole == pytest.approx(float(share[1]) / 100, abs=0.001)
    drawn = cost_against_time(found(tmp_path))
    assert isinstance(drawn, Chart)
    assert sum(isinstance(mark, Dot) for mark in drawn.marks) == 6


def test_many_places_are_parted_evenly(tmp_path: Path) -> None:
    text = GRID.replace("nodes: [1, 2]", "nodes: [1, 2, 3, 4, 5]")
    cells = cells_of(study(text, tmp_path))
    every = results(cells, {cell.id: attribute(profile(0.1, 0.2)) for cell in cells})
    charts = stalls(every)
    assert [chart.name for chart in charts] == ["stalls", "stalls-2"]
    assert [len(chart.x.ticks) for chart in charts if isinstance(chart, Chart)] == [3, 3]


def test_the_page_says_what_failed_and_names_every_profile(tmp_path: Path) -> None:
    file = study(GRID, tmp_path)
    run(file, World(), dollars=1000)
    reading = reading_of(file)
    html = render(page(reading, found(tmp_path), "grid.yaml", "results"))
    assert html.count(".stash.json") >= len(reading.cells)
    assert "12 cells: 12 done" in html
    empty = page(reading_of(study(GRID, tmp_path / "new")), (), "grid.yaml", "results")
    assert isinstance(empty.chapters[0].charts[0], Blank)
    assert "no cell is done yet" in render(empty)


def test_five_hundred_cells_stay_small(tmp_path: Path) -> None:
    batches = ", ".join(map(str, range(1, 251)))
    cells = cells_of(study(GRID.replace("[32]", f"[{batches}]").replace("nodes: [1, 2]", "nodes: 1"), tmp_path))
    cells = cells[:1000]
    one = attribute(profile(0.1, 0.2))
    every = results(cells, {cell.id: one for cell in cells})
    assert len(every) == 500
    assert len(table(every).rows) == 500
    text = render(page(reading_of(study(GRID, tmp_path)), every, "grid.yaml", "results"))
    assert len(text) < 8e6
