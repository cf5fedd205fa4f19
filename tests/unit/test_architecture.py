"""The page on architecture describes the house that is there: its rooms, its modules, the files of a launch."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import stash
from stash.measure.protocol import folder

PACKAGE = Path(stash.__file__).parent
ROOT = PACKAGE.parents[1]
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")
PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+\.\w+)?)`")
"""Something in backticks that looks like a folder or a file in one."""


def paths(page: str) -> list[str]:
    found = PATH.findall((ROOT / page).read_text())
    return [path for path in found if not path.startswith((".venv/", "build/", "dist/"))]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_is_there(page: str) -> None:
    named = paths(page)
    assert named
    rooms = {path.name for path in PACKAGE.rglob("*") if path.is_dir()}
    there = [p for p in named if (PACKAGE / p).exists() or (ROOT / p).exists() or p.strip("/") in rooms]
    assert sorted(set(named) - set(there)) == []


def test_every_room_is_on_the_page() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    packages = [path.parent for path in PACKAGE.glob("*/*/__init__.py")]
    assert len(packages) > 10
    assert [room.name for room in packages if f"`{room.name}/`" not in page] == []


def test_every_file_of_a_launch_crosses_the_page() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    files = re.findall(r"^    ([a-zA-Z.*]+)\s+\w+ (?:to|and) ", folder.__doc__ or "", re.MULTILINE)
    assert "journal.jsonl" in files
    named = [name for name in files if name != "stop"]
    assert [name for name in named if f"`{name}`" not in page] == []


def test_a_file_name_occurs_once() -> None:
    """Besides those that mean the same in every folder."""
    same = {"__init__.py", "records.py", "page.py", "view.py", "contract.py", "command.py"}
    names = Counter(path.name for path in PACKAGE.rglob("*.py"))
    assert {name for name, count in names.items() if count > 1} <= same


def test_what_is_written_for_skypilot_is_written_by_one_module() -> None:
    """The two others write a testbed's file, and Kueue's objects."""
    dumps = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"yaml\.\w*dump", path.read_text())
    }
    assert dumps == {"catalog/sky.py", "lab/testbed/emulation.py", "schedule/kueue.py"}
