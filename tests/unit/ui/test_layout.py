"""What both reports share: ASCII through a whole view, and a renderer's bounds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from rich.text import Text

from stash.ui.layout import each_text, paragraph, plain_text, terminal_renderer


@dataclass(frozen=True)
class Leaf:
    text: str
    share: float
    why: str | None = None
    columns: frozenset[int] = frozenset({1})


@dataclass(frozen=True)
class Tree:
    title: str
    leaves: tuple[Leaf, ...]
    facts: tuple[tuple[str, str], ...]


def test_every_text_of_a_view_becomes_ascii_and_nothing_else_changes():
    tree = Tree("4 × V100", (Leaf("± 3 µs", 0.5), Leaf("−1 …", -0.5, why="5 – 6")), (("a·b", "ü"),))
    assert each_text(plain_text, tree) == Tree(
        "4 x V100", (Leaf("+/- 3 us", 0.5), Leaf("-1 ...", -0.5, why="5 - 6")), (("a|b", "?"),)
    )


@pytest.mark.parametrize(("asked", "given"), [(10, 40), (40, 40), (55, 55), (500, 60)])
def test_a_renderer_bounds_its_width_and_translates_before_it_lays_out(asked, given):
    seen = []

    def arrange(view: str, width: int, colour: bool) -> list[Text]:
        seen.append((view, width, colour))
        return [Text(view + " ·")]

    render = terminal_renderer(arrange, narrowest=40, widest=60)
    assert render("±", asked) == "+/- |\n"
    assert "± ·" in render("±", asked, colour=True)
    assert seen == [("+/-", given, False), ("±", given, True)]


def test_a_label_that_is_wider_than_the_screen_leaves_its_text_some_room() -> None:
    lines = paragraph("one two three four five six", 40, "x" * 90, "")
    assert [line.plain.strip() for line in lines][1:] == ["five six"]
