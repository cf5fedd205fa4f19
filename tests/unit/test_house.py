"""The figures of ``bench/house.py``: counted on a house made for it, and what must hold of this one forever."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from bench.house import OWN, circles, figures, main, meanings, read

HOUSE = {
    "house/__init__.py": "",
    "house/base.py": "class Row:\n    pass\nSay = dict[str, int]\n",
    "house/top/__init__.py": "from house.top.left import one\n",
    "house/top/left.py": """
        from typing import TYPE_CHECKING, Any
        from house.base import Row
        if TYPE_CHECKING:
            from house.top.right import two
        Say = dict[str, int]
        def one(row: Row) -> Any:
            global count
            count = 1
    """,
    "house/top/right.py": """
        class Row:
            pass
        def two():
            from . import left
            return left.one(
                Row())
    """,
    "house/cli/show.py": "def show():\n    import house.base\n",
    "house/agent/clock.py": "",
    "house/agent/climber.py": "",
}
UNIT_TESTS = {"tests/unit/agent/test_clock.py": "from house.agent import clock\n"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in HOUSE.items() | UNIT_TESTS.items():
        path = tmp_path / (name if name in UNIT_TESTS else f"src/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path / "src" / "house"


def test_figures_of_a_house_counted_by_hand(tree: Path) -> None:
    found = figures(read(tree))
    assert {what: figure for what, (figure, _) in found.items()} == {
        "import circles": "1",
        "modules in circles": "2",
        "lazy imports of own modules": "2: cli 1, top 1",
        "… outside cli and the agent's edge": "1",
        "`global` statements": "1",
        "uses of `Any` outside wraps/": "1: top 1",
        "names with more than one meaning": "1",
        "median function": "3 lines",
        "longest function": "4 lines (top.right.two)",
        "files over 400 lines": "0",
        "modules under 40 lines": "6",
        "modules": "8, 22 lines",
        "agent and launch: modules no unit test imports": "1 of 2",
    }
    assert found["import circles"][1] == ["top.left, top.right"]
    assert found["… outside cli and the agent's edge"][1] == ["top.right ← top.left"]
    assert found["`global` statements"][1] == ["top.left: count"]
    assert found["names with more than one meaning"][1] == ["Row: base, top.right"]
    assert found["agent and launch: modules no unit test imports"][1] == ["agent.climber"]


def test_two_trees_are_shown_side_by_side(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tree), "--against", str(tree)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"| what | {tree} | {tree} |"
    assert "| median function | 3 lines | 3 lines |" in lines


def test_this_house_has_no_circles_and_one_meaning_per_name() -> None:
    house = read(OWN)
    assert house.package == "stash"
    assert len(house.trees) > 100
    assert house.unit_tests
    assert circles(house) == []
    assert meanings(house) == {}
