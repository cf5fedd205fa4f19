"""The page on architecture describes the house that is there: its rooms, its modules, the files of a launch."""

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


def paths(page):
    found = PATH.findall((ROOT / page).read_text())
    return [path for path in found if not path.startswith((".venv/", "build/", "dist/"))]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_is_there(page):
    named = paths(page)
    assert named
    rooms = {path.name for path in PACKAGE.rglob("*") if path.is_dir()}
    there = [
        p for p in named if (PACKAGE / p).exists() or (ROOT / p).exists() or p.strip("/") in rooms
    ]
    assert sorted(set(named) - set(there)) == []


def test_every_room_is_on_the_page():
    page = (ROOT / "docs/architecture.md").read_text()
    packages = [path.parent for path in PACKAGE.glob("*/*/__init__.py")]
    assert len(packages) > 10
    assert [room.name for room in packages if f"`{room.name}/`" not in page] == []


def test_every_file_of_a_launch_crosses_the_page():
    page = (ROOT / "docs/architecture.md").read_text()
    files = re.findall(r"^    ([a-zA-Z.*]+)\s+\w+ (?:to|and) ", folder.__doc__ or "", re.MULTILINE)
    assert "journal.jsonl" in files
    named = [name for name in files if name != "stop"]
    assert [name for name in named if f"`{name}`" not in page] == []


def test_a_file_name_occurs_once():
    """Besides those that mean the same in every folder."""
    same = {"__init__.py", "records.py", "page.py", "view.py", "contract.py", "command.py"}
    names = Counter(path.name for path in PACKAGE.rglob("*.py"))
    assert {name for name, count in names.items() if count > 1} <= same


@pytest.mark.parametrize(
    ("home", "signs", "others"),
    [
        (
            "core/jsonl.py",
            r'O_APPEND|os\.fsync|"ab?"\)|r(?:find|partition)\(b"\\n"\)',
            {
                "core/files.py": "whole files",
                "measure/agent/data/tally.py": "numbers",
                "measure/agent/guard.py": "how the job opens its own files",
                "measure/agent/runner/ledger_keeper.py": "when the job saves",
                "measure/launcher/process.py": "what the job prints",
                "measure/protocol/file_backup.py": "copies of whole files",
                "lab/testbed/read_rate.py": "a file to read",
            },
        ),
        (
            "core/end_tree.py",
            r"os\.(?:kill|killpg)\(",
            {
                "lab/testbed/bed.py": "any signal to a group",
                "measure/agent/last_words.py": "ranks end each other at once: none may be stopped first",
                "study/programs.py": "a request to a group",
                "mcp_server/tools.py": "a request to a group, and patience without a thread",
            },
        ),
        (
            "core/membership.py",
            r"hmac\.digest|hmac\.new|create_connection\(",
            {"lab/testbed/transfer.py": "loopback on an emulated host"},
        ),
    ],
)
def test_there_is_one_of_each(home, signs, others):
    """``others``: modules that do what looks like it, and what it is."""
    assert f"`{home}`" in (ROOT / "docs/architecture.md").read_text().partition("## One of each")[2]
    pattern = re.compile(signs)
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "zoo" not in path.parts and pattern.search(path.read_text())
    }
    assert found == {home, *others}


def test_what_is_written_for_skypilot_is_written_by_one_module():
    """The other one writes a testbed's file."""
    dumps = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"yaml\.\w*dump", path.read_text())
    }
    assert dumps == {"catalog/sky.py", "lab/testbed/emulation.py"}
