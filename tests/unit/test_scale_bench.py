"""The benchmark of large jobs still runs a whole climb: it stands in for code that nobody here can run."""

from __future__ import annotations

import pytest

from bench import scale
from stash.measure.agent.wraps.scope import scope


@pytest.fixture(autouse=True)
def ordinary_scope() -> object:
    yield
    scope.forget()
    scope.name, scope.node_ranks, scope.parts = "world", (), {}


def test_a_leader_of_two_nodes_climbs_every_rung() -> None:
    seconds, followed = scale.led(2 * scale.PER_NODE, rounds=1)  # which counts the blocks itself
    assert len(seconds) == 1
    assert seconds[0] > 0
    assert followed > 0
