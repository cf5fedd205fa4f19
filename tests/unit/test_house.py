"""Names and words: what must hold of this house forever."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

OWN = Path(__file__).resolve().parents[2] / "src" / "stash"


@dataclass(frozen=True)
class ModuleNames:
    """What a module names, read once for all tests: the tree itself would be twenty times as large."""

    classes: frozenset[str]
    aliases: tuple[tuple[str, str], ...]
    bound: frozenset[str]


@cache
def read_names(path):
    tree = ast.parse(path.read_text())
    aliases = []
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=alias)], value=ast.Subscript() | ast.BinOp() as value
            ):
                if alias[:1].isupper() and not alias.isupper():
                    aliases.append((alias, ast.unparse(value)))
    classes, bound = bound_names(tree)
    return ModuleNames(frozenset(classes), tuple(aliases), frozenset(bound))


def bound_names(tree):
    """Classes, and every name that a module gives to something: variables, fields, parameters, functions, classes."""
    classes: set[str] = set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.ClassDef):
            classes.add(node.name)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
    return classes, names | classes


def find_meanings(folder):
    """Public class names and type aliases that mean different things in different modules, and where."""
    homes: dict[str, dict[str, str]] = defaultdict(dict)
    for path in folder.rglob("*.py"):
        name, module = str(path.relative_to(folder)), read_names(path)
        homes_here = dict.fromkeys(module.classes, f"class of {name}") | dict(module.aliases)
        for each, meaning in homes_here.items():
            homes[each][name] = meaning
    return {
        name: sorted(places)
        for name, places in homes.items()
        if len(set(places.values())) > 1 and not name.startswith("_")
    }


def test_a_name_with_two_meanings_is_found_and_one_that_is_said_twice_is_not(
    tmp_path,
):
    (tmp_path / "base.py").write_text("class Row:\n    pass\nSay = dict[str, int]\n")
    (tmp_path / "left.py").write_text("Say = dict[str, int]\n")
    (tmp_path / "right.py").write_text("def two():\n    class Row:\n        pass\n")
    assert find_meanings(tmp_path) == {"Row": ["base.py", "right.py"]}


def test_this_house_has_one_meaning_per_name():
    one_for_each_framework = {
        "StashCallback": ["callbacks/lightning.py", "callbacks/transformers.py"]
    }
    assert find_meanings(OWN) == one_for_each_framework


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
def test_words_that_are_refused(line, refused):
    assert bool(WORDS.search(line)) is refused


def test_code_is_written_in_plain_english():
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


def test_documentation_is_written_in_plain_english():
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


def test_names_say_what_a_thing_is():
    tree = ast.parse(
        "def hear(said): told = said; self.heard = told; a, told = 1, 2\nclass said: ..."
    )
    assert bound_names(tree)[1] & NAMES == NAMES
    house = OWN.parent.parent
    found = {}
    for folder in ("src", "tests", "bench"):
        for path in (house / folder).rglob("*.py"):
            if any(part.startswith(".") for part in path.relative_to(house).parts):
                continue  # environments of other tools
            text = path.read_text()
            if not any(name in text.lower() for name in NAMES):
                continue
            allowed = next(
                (fields for end, fields in ARTEFACT_FIELDS.items() if str(path).endswith(end)),
                set(),
            )
            names = {name.lower().strip("_") for name in read_names(path).bound} & NAMES - allowed
            if names:
                found[str(path.relative_to(house))] = names
    assert found == {}
