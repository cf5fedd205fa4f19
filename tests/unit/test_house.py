"""The figures of ``bench/house.py``: counted on a house made for it, and what must hold of this one forever."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from bench.house import OWN, circles, figures, main, meanings, read, sizes

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
    "house/top/show_command.py": "def show():\n    import house.base\n",
    "house/cli/main.py": "def show():\n    import house.base\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in HOUSE.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path / "src" / "house"


def test_figures_of_a_house_counted_by_hand(tree: Path) -> None:
    found = figures(read(tree))
    assert {what: figure for what, (figure, _) in found.items()} == {
        "import circles": "1",
        "lazy imports of own modules": "3: cli 1, top 2",
        "… outside commands and the agent's edge": "1",
        "`global` statements": "1",
        "uses of `Any`": "1: top 1",
        "names with more than one meaning": "1",
        "longest function": "4 lines (top.right.two)",
    }
    assert found["import circles"][1] == ["top.left, top.right"]
    assert found["… outside commands and the agent's edge"][1] == ["top.right ← top.left"]
    assert found["`global` statements"][1] == ["top.left: count"]
    assert found["names with more than one meaning"][1] == ["Row: base, top.right"]


def test_sizes_counted_by_hand(tree: Path) -> None:
    # 24 lines in 7 files, two of them blank; functions of 3, 4, 2 and 2 lines; 7 imports.
    assert sizes(tree) == ["7", "24", "2", "6.0", "2.5", "29.2%", "8.3%"]


def test_sources_tests_and_benchmarks_have_a_line_each(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree.parents[1] / "tests").mkdir()
    main([str(tree)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| src | 7 | 24 | 2 | 6.0 | 2.5 | 29.2% | 8.3% |"
    assert lines[3].startswith("| tests | 0 |")
    assert "| import circles | 1 |" in lines


def test_this_house_has_no_circles_and_one_meaning_per_name() -> None:
    house = read(OWN)
    assert house.package == "stash"
    assert len(house.trees) > 100
    assert circles(house) == []
    assert meanings(house) == {}
