"""Cells of a matrix: words that fit, hatches that stay inside, columns whose names are level or upright."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.ui.charts.chart import Axis, Chart, Grid, Lane, Tile, TileBar
from stash.ui.charts.svg import svg
from stash.ui.charts.tiles import column_heads, head_room, length_of, tile

EVERYWHERE = ((0.0, 1.0), (0.0, 1.0))
sizes = st.floats(12, 400)


def drawn(mark: Tile, width: float = 80.0, height: float = 34.0) -> ElementTree.Element:
    return ElementTree.fromstring(f"<svg>{tile(mark, 10.0, 20.0, 10.0 + width, 20.0 + height)}</svg>")


@given(sizes, sizes)
def test_a_hatch_stays_inside_its_tile(width: float, height: float) -> None:
    (path,) = drawn(Tile(*EVERYWHERE, missing=True), width, height).iter("path")
    points = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.attrib["d"])
    assert len(points) >= 3
    for x, y in points:
        assert 10 <= float(x) <= 10 + width
        assert 20 <= float(y) <= 20 + height


@given(sizes, st.lists(st.text("0123456789%ms", min_size=1, max_size=30), min_size=1, max_size=4))
def test_the_longest_words_that_fit_are_written_and_none_that_do_not(width: float, texts: list[str]) -> None:
    written = [text.text or "" for text in drawn(Tile(*EVERYWHERE, tuple(texts)), width).iter("text")]
    fitting = [text for text in texts if length_of(len(text)) <= width - 7]
    assert written == fitting[:1]


def test_a_bar_is_as_long_as_its_fraction_of_the_track_and_one_below_zero_is_none() -> None:
    bars = (TileBar(0.25, "prep"), TileBar(-0.1, "fetch", line=1), TileBar(3.0, "compute", line=2))
    rects = [rect.attrib for rect in drawn(Tile(*EVERYWHERE, bars=bars)).iter("rect")]
    wide = {rect.get("class"): float(rect["width"]) for rect in rects if rect.get("class")}
    assert wide["s-prep"] == pytest.approx(0.25 * wide["track"], abs=0.1)
    assert wide["s-compute"] == wide["track"]
    assert "s-fetch" not in wide


def test_a_tile_leads_somewhere_and_says_what_it_is_only_to_those_who_can_point() -> None:
    mark = Tile(*EVERYWHERE, ("12%",), "resnet18: 12%", link="#cell-1")
    (link,) = drawn(mark).iter("a")
    assert (link.attrib["href"], link.attrib["tabindex"]) == ("#cell-1", "-1")
    assert [title.text for title in link.iter("title")] == ["resnet18: 12%"]
    assert "title" not in tile(mark, 0, 0, 80, 30, pointed_at=False)


def test_names_of_columns_wrap_where_words_fit_and_stand_upright_where_they_do_not() -> None:
    names = ("p3.8xlarge", "2 × p3.8xlarge")
    level = "".join(column_heads(names, 0.0, 180.0, 50.0))
    assert re.findall(r">([^<]+)</text>", level) == ["p3.8xlarge", "p3.8xlarge", "2 ×"]
    assert head_room(names, 180.0) < head_room(names, 60.0)
    assert "".join(column_heads(names, 0.0, 60.0, 150.0)).count("rotate(-90)") == 2


@pytest.mark.parametrize("width", [350, 860])
def test_every_tile_of_a_matrix_stands_in_its_own_row_and_column(width: int) -> None:
    marks = tuple(
        Tile((c / 3, (c + 1) / 3), (1 - (r + 0.998) / 4, 1 - (r + 0.002) / 4), (f"{r}{c}",))
        for r in range(4)
        for c in range(3)
    )
    chart = Chart(
        "m", "M", "", "", Axis("", ()), marks, Grid("", (), (), frozenset()),
        lanes=tuple(Lane(f"row {n}") for n in range(4)), columns=("a", "b", "c"),
    )  # fmt: skip
    found = ElementTree.fromstring(svg(chart, width))
    at = {
        text.text: (float(text.attrib["x"]), float(text.attrib["y"]))
        for text in found.iter("{http://www.w3.org/2000/svg}text")
    }
    for r in range(4):
        assert len({round(at[f"{r}{c}"][1]) for c in range(3)}) == 1
    for c in range(3):
        assert len({round(at[f"{r}{c}"][0]) for r in range(4)}) == 1
        assert sorted(at[f"{r}{c}"][1] for r in range(4)) == [at[f"{r}{c}"][1] for r in range(4)]
