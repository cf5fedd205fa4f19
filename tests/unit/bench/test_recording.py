"""The README's recording begins with content, however long the job takes to start."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyte")

from pyte.screens import Char

from bench.docs.recording import MOST_FRAMES, PICTURE, Frame, thinned


def screen(*lines: str) -> Frame:
    return tuple(tuple(Char(letter) for letter in line) for line in lines)


def test_a_recording_begins_with_the_first_table_and_ends_with_the_answer() -> None:
    starting, tables = screen("starting the job"), [screen(*[f"row {n}"] * 9) for n in range(40)]
    moments = [(0.0, screen("")), (1.0, starting), *((60.0 + n, table) for n, table in enumerate(tables))]
    kept = thinned(moments)
    assert (kept[0], kept[-1]) == (tables[0], tables[-1])
    assert 2 < len(kept) <= MOST_FRAMES


def test_a_screen_that_never_fills_is_shown_as_it_was() -> None:
    moments = [(0.0, screen("a")), (1.0, screen("b"))]
    assert thinned(moments) == [screen("a"), screen("b")]


def test_the_picture_in_the_readme_is_never_an_empty_box() -> None:
    frames = re.findall(r'<g id="f\d+">(.*?)</g>', PICTURE.read_text(encoding="utf-8"), re.DOTALL)
    assert frames
    assert min(frame.count("<text") for frame in frames) >= 15
