"""Where files of the user's are."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.catalog import facts

pytestmark = pytest.mark.usefixtures("home")


def test_places_follow_the_environment(tmp_path: Path) -> None:
    assert facts.snapshot_file({"STASH_HOME": "/s", "XDG_CACHE_HOME": "/c"}) == Path("/s/catalog.json")
    assert facts.snapshot_file({"XDG_CACHE_HOME": "/c"}) == Path("/c/stash/catalog.json")
    assert facts.own_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/stash/instances.yaml")
    assert facts.own_file({}) == Path.home() / ".config/stash/instances.yaml"
