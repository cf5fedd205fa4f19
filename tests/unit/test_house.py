"""Imports and words: counted on a house made for it, and what must hold of this one forever."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

from bench.import_graph import OWN, circles, meanings, read

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


def test_circles_and_meanings_found_by_hand(tree: Path) -> None:
    house = read(tree)
    assert circles(house) == [["top.left", "top.right"]]
    assert meanings(house) == {"Row": ["base", "top.right"]}


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
ARTEFACT_FIELDS = {"spot/run_records.py": {"told", "said"}}
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
            text = path.read_text()
            if not any(name in text.lower() for name in NAMES):
                continue
            allowed = next((fields for end, fields in ARTEFACT_FIELDS.items() if str(path).endswith(end)), set())
            names = {name.lower().strip("_") for name in bound_names(ast.parse(text))} & NAMES - allowed
            if names:
                found[str(path.relative_to(house))] = names
    assert found == {}
