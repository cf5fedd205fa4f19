"""The figures of ``bench/house.py``: counted on a house made for it, and what must hold of this one forever."""

from __future__ import annotations

import ast
import re
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


WORDS = re.compile(
    r"announc|\banew\b|_anew|untold|\bunsaid|muster|farewell|testimon|(?<![a-z])(un)?heard(?![a-z])|climb|\bparked\b"
    r"|\blone \w|\bnobody (can|could|knows|tells|says|said)\b",
    re.IGNORECASE,
)
"""Words that a reader of English trips over, or that mean something else here: CONTRIBUTING.md has what to write."""
NAMES = {"told", "said", "heard", "hear"}
ARTEFACT_FIELDS = {"spot/records/runs.py": {"told", "said"}}
"""Names that files of earlier versions hold."""


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("the head announces a round", True),
        ("def spread_anew():", True),
        ("a lone worker", True),
        ("the rung was not climbed", True),
        ("Nobody can tell.", True),
        ("whoever_heard = 1", True),
        ("lone: tuple[SingleWorker, ...]", False),
        ("a mustang, sheared", False),
        ("the user that Debian calls nobody", False),
    ],
)
def test_words_that_are_refused(line: str, refused: bool) -> None:
    assert bool(WORDS.search(line)) is refused


def test_code_is_written_in_plain_english() -> None:
    this = Path(__file__).resolve()
    root = this.parents[2]
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for folder in ("src", "tests", "bench")
        for path in sorted((root / folder).rglob("*.py"))
        if path != this and not any(part.startswith(".") for part in path.relative_to(root).parts)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if WORDS.search(line)
    ]
    assert found == []


def test_documentation_is_written_in_plain_english() -> None:
    """But for the log and the decisions, which stay as they were written."""
    root = Path(__file__).resolve().parents[2]
    found = [
        f"{page.relative_to(root)}:{number}: {line.strip()}"
        for page in sorted((root / "docs").rglob("*.md"))
        if page.name != "log.md" and page.parent.name != "decisions"
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if WORDS.search(line)
    ]
    assert found == []


def bound_names(tree: ast.Module) -> set[str]:
    """Every name that a module gives to something: variables, fields, parameters, functions, classes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names


def test_names_say_what_a_thing_is() -> None:
    tree = ast.parse("def hear(said): told = said; self.heard = told; a, told = 1, 2\nclass said: ...")
    assert bound_names(tree) & NAMES == NAMES
    house = OWN.parent.parent
    found = {}
    for folder in ("src", "tests", "bench"):
        for path in (house / folder).rglob("*.py"):
            if any(part.startswith(".") for part in path.relative_to(house).parts):
                continue  # environments of other tools
            allowed = next((fields for end, fields in ARTEFACT_FIELDS.items() if str(path).endswith(end)), set())
            names = {name.lower().strip("_") for name in bound_names(ast.parse(path.read_text()))} & NAMES - allowed
            if names:
                found[str(path.relative_to(house))] = names
    assert found == {}
