"""The terminal's renderer of any page: widths, plain text, and which columns go where there is no room."""

from __future__ import annotations

import re
import string
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.ui.charts.chart import Blank, Grid
from stash.ui.page import Chapter, Page, Row
from stash.ui.terminal import make_listing, render

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
RANKED = Grid(
    title="",
    head=("time", "95%", "share", "remark"),
    rows=(
        ("compute", "50.0 ms", "± 1.0", "55%", ""),
        ("network", "30.0 ms", "± 1.0", "33%", "slower"),
    ),
    texts=frozenset({0, 2, 4}),
    first="stall",
    ranks=(0, 0, 2, 1, 0),
)
SENTENCES = Grid(
    title="",
    head=("cost", "why"),
    rows=(
        (
            "greedy",
            "$4.05",
            "spot, and idle without; on-demand to the end once that is the last moment " * 2,
        ),
    ),
    texts=frozenset({0, 2}),
    first="policy",
    prose=True,
)
words = st.text(string.ascii_letters + "±×µ–…· ", min_size=1, max_size=30)


@st.composite
def pages(draw: st.DrawFn) -> Page:
    columns = draw(st.integers(1, 9))
    rows = tuple(draw(st.lists(st.tuples(*[words] * (columns + 1)), min_size=1, max_size=4)))
    head = tuple(draw(st.lists(words, min_size=columns, max_size=columns)))
    grid = Grid(
        draw(words),
        head,
        rows,
        frozenset(draw(st.sets(st.integers(0, columns)))),
        prose=draw(st.booleans()),
        total=draw(st.booleans()),
        upright=draw(st.booleans()),
    )
    stall = Row(
        "network",
        time="30.00 ms",
        interval="± 1.02",
        share="33.3%",
        fraction=draw(st.floats(-0.2, 1)),
    )
    return Page(
        title=draw(words),
        subtitle=tuple(draw(st.lists(words, max_size=3))),
        verdict=(draw(words) * 5,),
        bar=(stall,),
        rows=draw(
            st.sampled_from([(), (stall, Row("fetch", why="none " * 9), Row("step", "9 ms"))])
        ),
        grids=(grid,),
        next_steps=(draw(words) * 4,),
        warnings=(draw(words) * 4,),
        chapters=(
            Chapter(
                "c",
                draw(words),
                facts=((draw(words), draw(words)),),
                points=(draw(words),),
                brief=True,
            ),
        ),
    )


@given(pages(), st.sampled_from([60, 80, 120]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_no_line_is_wider_than_the_screen_and_without_colour_all_is_ascii(page, width, colour):
    text = render(page, width, colour)
    short = [
        line
        for line in ESCAPE.sub("", text).splitlines()
        if max(map(len, line.split() or [""])) < width // 2
    ]
    assert max(map(len, short)) <= width
    assert colour or (text.isascii() and "\x1b" not in text)


def test_control_characters_reach_no_terminal():
    page = Page(
        "evil\x1b[31m", warnings=("\x1b]0;owned\x07",), grids=(replace(RANKED, title="\x1b[2J"),)
    )
    assert "\x1b" not in render(page)


def test_the_least_important_columns_go_first_and_are_named():
    def heads(width):
        return make_listing(RANKED, width).text.plain.splitlines()[0].split()

    assert heads(None) == ["stall", "time", "95%", "share", "remark"]
    assert heads(34) == ["stall", "time", "share", "remark"]
    assert heads(26) == ["stall", "time", "remark"]
    assert make_listing(RANKED, 20).left_out == ("95%", "share")


def test_columns_that_must_stay_go_on_below():
    many = tuple(f"place number {n}" for n in range(9))
    grid = Grid("", many, (("resnet18", *("to run",) * 9),), frozenset(range(10)))
    lines = render(Page("study", grids=(grid,)), 80).splitlines()
    assert sum("resnet18" in line for line in lines) == 3
    assert all(any(place in line for line in lines) for place in many)


def test_sentences_stand_beside_their_row_or_below_it_with_what_did_not_fit():
    wide = render(Page("p", grids=(SENTENCES,)), 120).splitlines()
    assert any(line.startswith("  greedy  $4.05  spot, and idle") for line in wide)
    crowded = replace(
        SENTENCES,
        head=("x" * 40, "late", "why"),
        ranks=(0, 0, 1, 0),
        texts=frozenset({0, 3}),
        rows=(("greedy", "$4.05", "3%", "it is cheap"),),
    )
    text = render(Page("p", grids=(crowded,)), 60)
    assert "late: 3%" in " ".join(text.split()) or "3%" in text


@pytest.mark.parametrize("why", ["slower", ""])
def test_a_first_column_without_room_beside_the_numbers_is_wrapped(why):
    change = "samples kept, 6.58 GB in memory, which pays from the second epoch on"
    grid = replace(
        SENTENCES, rows=((change, "+3.3 ± 18.7 ms", why), ("fused", "-0.28 ± 3.1 ms", why))
    )
    lines = render(Page("p", grids=(grid,)), 60).splitlines()
    assert max(map(len, lines)) <= 60
    first = next(number for number, line in enumerate(lines) if "+3.3" in line)
    assert lines[first].startswith("  samples kept")
    assert lines[first + 1].endswith("epoch on")


def test_a_column_of_facts_without_room_follows_the_one_before():
    grid = Grid(
        "",
        ("node 0", "node 1"),
        (("CPU", "Xeon " * 12, "EPYC " * 12),),
        frozenset({0, 1, 2}),
        upright=True,
    )
    lines = render(Page("machines", grids=(grid,)), 80).splitlines()
    assert [line.strip() for line in lines if "node" in line] == ["node 0", "node 1"]


def test_only_brief_chapters_are_shown_and_as_many_points_as_they_say():
    page = Page(
        "p",
        chapters=(
            Chapter("long", "Hidden"),
            Chapter(
                "brief",
                "Shown",
                points=("one", "two", "three"),
                charts=(Blank("b", "Loss", "no run"),),
                brief=True,
            ),
            Chapter("few", "Few", points=("one", "two", "three"), brief=True, most=2),
        ),
    )
    text = render(page)
    assert "Hidden" not in text
    assert "- Loss: unknown, because no run." in text
    assert "- three" in text.partition("Few")[0]
    assert "and 1 more" in text.partition("Few")[2]


def test_a_total_has_a_rule_above_it_and_an_empty_table_is_left_out():
    lines = render(
        Page("p", grids=(replace(RANKED, total=True), replace(RANKED, rows=())))
    ).splitlines()
    assert set(lines[-2].strip()) == {"-"}


def test_a_name_is_never_broken_in_two():
    name = "TorchBindOpOverload.__call__"
    grid = replace(
        SENTENCES, rows=(("train.py:40", "2.06 ms a step", f"for x in loader: (in {name})"),)
    )
    for width in range(44, 90):
        assert name in render(Page("p", grids=(grid,)), width)


def test_a_table_says_how_wide_it_has_to_be_for_what_it_leaves_out():
    wide = replace(RANKED, rows=(("network", "30.0 ms", "± 1.0", "33%", "slower " * 6),))
    text = " ".join(render(Page("p", grids=(wide,)), 60).split())
    needed = re.search(r"Left out: .* \(needs (\d+) columns; in a pipe, COLUMNS=\1\)", text)
    assert needed is not None
    assert "Left out" not in render(Page("p", grids=(wide,)), int(needed[1]))
    assert "Left out" in render(Page("p", grids=(wide,)), int(needed[1]) - 1)


def test_a_title_without_a_subtitle_leaves_one_blank_line_however_long():
    assert "\n\n\n" not in render(Page("a title " * 20, verdict=("Well.",)), 60)
