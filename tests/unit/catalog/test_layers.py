"""Where files of the user's are."""

from pathlib import Path

from stash.catalog import facts


def test_places_follow_the_environment(monkeypatch):
    monkeypatch.setenv("STASH_HOME", "/s")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert facts.snapshot_file() == Path("/s/catalog.json")
    monkeypatch.delenv("STASH_HOME")
    assert facts.snapshot_file() == Path("/c/stash/catalog.json")
    assert facts.own_file() == Path.home() / ".config/stash/instances.yaml"
