"""What tests of the agent share: a profile of this process, data on a real disk, a ladder's end, stamped steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import data_folder
import pytest
import torch
import torch._dynamo
from listening import Recorder
from ranks_in_memory import silence
from stamped_steps import Seconds, Step
from torch.utils.data import dataloader

from stash.measure.agent import script
from stash.measure.agent.data import reads
from stash.measure.agent.data import tally as the_tally
from stash.measure.agent.data.tally import Tally, _own
from stash.measure.agent.runner.ledger_keeper import LedgerKeeper
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import loader
from stash.measure.agent.wraps.scope import scope
from stash.measure.protocol import orders as the_orders
from stash.measure.protocol.orders import Orders
from stash.measure.protocol.stamped import StampedStep


@pytest.fixture
def tally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tally]:
    """A profile of this process whose data lie in ``data``."""
    (tmp_path / "run").mkdir()
    data = tmp_path / "data"
    data_folder.fill(data)
    given = Orders(str(tmp_path / "run"), ("solo",), 1.0, data_root=str(data))
    monkeypatch.setenv(the_orders.VARIABLE, str(given.write()))
    the_orders.current_orders.cache_clear()
    reads._holds_data.cache_clear()
    own = Tally(str(tmp_path / "run" / "tally"))
    monkeypatch.setattr(_own, "tally", own)
    monkeypatch.setattr(reads, "_files", reads._OpenedFiles())
    yield own
    monkeypatch.undo()
    the_orders.current_orders.cache_clear()
    reads._holds_data.cache_clear()


@pytest.fixture
def one_process_after_the_other(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A ladder finds nothing that another left in this process, and what it leaves is gone when its test is."""
    monkeypatch.setattr(_own, "tally", None)
    monkeypatch.setattr(_own, "maker", None)
    monkeypatch.delenv(the_tally.VARIABLE, raising=False)
    monkeypatch.setattr(reads.mappings, "held_files", list)  # of files that another has mapped
    yield
    if LedgerKeeper._hooked is not None:
        LedgerKeeper._hooked.stop()
    silence()
    scope.name = "world"
    scope.issued.clear()
    torch.set_flush_denormal(False)


@pytest.fixture
def tapped_loaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders' iterators are given their taps by the wrap, for the time of a test."""
    base = dataloader._BaseDataLoaderIter
    for name in ("__init__", "_reset"):
        monkeypatch.setattr(base, name, script.surrounded(loader._tap_indices, getattr(base, name)))


@pytest.fixture
def listener() -> Iterator[Recorder]:
    """Hears what the script does, and notes it."""
    listener = Recorder()
    script.subscribe(listener)
    yield listener
    silence()


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def stamps(clock: Seconds) -> Iterator[Stamps]:
    """Those of a script that is listened to."""
    listener = script.Listener()
    stamps = Stamps(clock)
    listener.listens, listener.handle = True, stamps.tell
    script.subscribe(listener)
    yield stamps
    script.unsubscribe()


@pytest.fixture
def step(clock: Seconds, stamps: Stamps) -> Step:
    def step(act: Callable[[], object]) -> StampedStep:
        stamps.tell(ThreadEvent.STEP_BEGINS)
        act()
        stamps.tell(ThreadEvent.STEP_ENDED)
        return stamps.block_steps()[-1]

    return step


@pytest.fixture
def compiled() -> Iterator[Any]:
    """What Dynamo counts; afterwards nothing, for Stash asks it whether a job is compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """Whatever ran before in this process, no script has compiled anything yet."""
    torch._dynamo.utils.counters.clear()
