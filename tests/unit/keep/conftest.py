"""Every test of what lasts has a home of its own, so that no catalog of the user's is read or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.keep import catalog


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STASH_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    catalog._usual.cache_clear()
    return tmp_path
