"""What tests of the agent share: a profile of this very process, with data on a real disk; the end of a ladder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import data_folder
import pytest
import torch
from ranks_in_memory import silence

from stash.measure.agent.data import reads
from stash.measure.agent.data.tally import Tally, _Own
from stash.measure.agent.wraps.scope import scope
from stash.measure.protocol import orders as the_orders
from stash.measure.protocol.orders import Orders


@pytest.fixture
def tally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tally]:
    """A profile of this process whose data lie in ``data``."""
    (tmp_path / "run").mkdir()
    data = tmp_path / "data"
    data_folder.fill(data)
    given = Orders(str(tmp_path / "run"), ("solo",), 1.0, data_root=str(data))
    monkeypatch.setenv(the_orders.VARIABLE, str(given.write()))
    the_orders.current.cache_clear()
    reads._holds_data.cache_clear()
    own = Tally(str(tmp_path / "run" / "tally"))
    monkeypatch.setattr(_Own, "tally", own)
    monkeypatch.setattr(reads._Seen, "generation", -1)
    monkeypatch.setattr(reads._Seen, "makers", set())
    monkeypatch.setattr(reads._Seen, "shared", set())
    yield own
    monkeypatch.undo()
    the_orders.current.cache_clear()
    reads._holds_data.cache_clear()


@pytest.fixture
def one_process_after_the_other() -> Iterator[None]:
    """What a ladder leaves in this process is gone when its test is."""
    yield
    silence()
    scope.name = "world"
    scope.issued.clear()
    torch.set_flush_denormal(False)
