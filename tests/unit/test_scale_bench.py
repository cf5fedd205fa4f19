"""The benchmark of large jobs still runs a whole ladder: it stands in for code that cannot run here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from bench import scale
from stash.measure.agent.wraps.scope import scope
from stash.measure.linux import mappings


@pytest.fixture(autouse=True)
def ordinary_scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What earlier tests left open is no data of the made-up job, which has no orders to know it by."""
    monkeypatch.setattr(mappings, "held_files", list)
    yield
    torch.set_flush_denormal(False)
    scope.forget()
    scope.name, scope.node_ranks, scope.parts = "world", (), {}


def test_a_leader_of_two_nodes_measures_every_rung() -> None:
    seconds, followed = scale.led(2 * scale.PER_NODE, rounds=1)  # which counts the blocks itself
    assert len(seconds) == 1
    assert seconds[0] > 0
    assert followed > 0
