"""A probe that cannot be is refused before anything is started."""

from __future__ import annotations

import pytest

from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.probe_launch import probe


def test_a_budget_of_nothing_is_the_users_mistake():
    with pytest.raises(Exception, match="--budget 45"):
        probe(Cluster(1), budget=0, data=None, kind=None, instance=None)
