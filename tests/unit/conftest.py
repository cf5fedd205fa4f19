"""What tests of several rooms need around them."""

from __future__ import annotations

import pytest
from commands import run

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


@pytest.fixture
def run_stash(monkeypatch, capsys):
    """Calls ``stash WORDS`` in the test's own process, which must end with ``code``; what it printed since the last."""

    def run_words(*words: str, code: int = 0):
        capsys.readouterr()
        assert run(monkeypatch, *words) == code
        return capsys.readouterr()

    return run_words
