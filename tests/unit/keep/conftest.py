"""Every test of what lasts has a home of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _at_home(home: Path) -> None: ...
