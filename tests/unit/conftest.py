"""What tests of several rooms need around them."""

from __future__ import annotations

import pytest

from stash.catalog import layers
from stash.core import secrets


@pytest.fixture(autouse=True)
def nothing_hidden():
    """What arguments of one test's job were is masked in none of another."""
    yield
    secrets.hide_masked((), ())


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of the test's own, so that no catalog of the user's is read or written, and 80 columns."""
    monkeypatch.setenv("STASH_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    layers._usual.cache_clear()
    return tmp_path
