"""What is started by name (``python -m stash…``) is there, so that no module moves away from such a name."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTED = re.compile(r"-m[\", ]+(stash(?:\.\w+)+)")
PLACES = ("src/**/*.py", "bench/**/*.py", "tests/**/*.py", "docs/**/*.md", "examples/*", "Makefile", "README.md")
BEFORE = "docs/decisions/"
"""Tells what modules were called once, too."""


def test_every_module_that_is_started_by_name_is_there() -> None:
    named = {
        (name, str(path.relative_to(ROOT)))
        for pattern in PLACES
        for path in ROOT.glob(pattern)
        if path.is_file() and not str(path.relative_to(ROOT)).startswith(BEFORE)
        for name in STARTED.findall(path.read_text(errors="replace"))
    }
    assert len(named) > 10
    assert [each for each in sorted(named) if find_spec(each[0]) is None] == []
