"""Where files of the user's are."""

from __future__ import annotations

from pathlib import Path

from stash.keep.catalog import places


def test_places_follow_the_environment(tmp_path: Path) -> None:
    assert places.snapshot_file({"STASH_HOME": "/s", "XDG_CACHE_HOME": "/c"}) == Path("/s/catalog.json")
    assert places.snapshot_file({"XDG_CACHE_HOME": "/c"}) == Path("/c/stash/catalog.json")
    assert places.own_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/stash/instances.yaml")
    assert places.own_file({}) == Path.home() / ".config/stash/instances.yaml"
