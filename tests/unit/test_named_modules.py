"""What is started by name (``python -m stash…``) is there, so that no module moves away from such a name."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTED = re.compile(r"-m[\", ]+(stash(?:\.\w+)+)")
PLACES = (
    "src/**/*.py",
    "bench/**/*.py",
    "tests/**/*.py",
    "docs/**/*.md",
    "examples/*",
    "Makefile",
    "README.md",
)
BEFORE = "docs/decisions/"
"""Tells what modules were called once, too."""


def test_every_module_that_is_started_by_name_is_there():
    named = {
        (name, str(path.relative_to(ROOT)))
        for pattern in PLACES
        for path in ROOT.glob(pattern)
        if path.is_file() and not str(path.relative_to(ROOT)).startswith(BEFORE)
        for name in STARTED.findall(path.read_text(errors="replace"))
    }
    assert len(named) > 10
    assert [each for each in sorted(named) if find_spec(each[0]) is None] == []


OF_SEVERAL = re.compile(
    r"_(command|commands|page|records)(_|$)|^(action|without_torch|other_systems|golden_commands)$"
)
"""Tests of what several modules do together: a command, a page of a feature, or the whole."""


def test_a_unit_test_is_found_by_the_name_of_what_it_tests():
    """``tests/unit/PACKAGE/…/test_MODULE.py``, or ``test_MODULE_what_of_it.py``."""
    unit, package = Path(__file__).parent, ROOT / "src" / "stash"
    lost = []
    for path in sorted(unit.glob("*/**/test_*.py")):
        feature, topic = path.relative_to(unit).parts[0], path.stem.removeprefix("test_")
        modules = {module.stem for module in (package / feature).rglob("*")} | {feature}
        named = any(topic == module or topic.startswith(f"{module}_") for module in modules)
        if feature != "bench" and not named and not OF_SEVERAL.search(topic):
            lost.append(str(path.relative_to(unit)))
    assert lost == []
