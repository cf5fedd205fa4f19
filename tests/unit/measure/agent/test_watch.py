"""``stash.watch``: nothing outside a profile, a handle inside one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from listening import Recorder
from ranks_in_memory import orders, silence
from torch.utils.data import DataLoader

import stash
from stash.measure.agent import script
from stash.measure.agent.wraps import steps
from stash.measure.agent.wraps.waits import ledger
from stash.measure.protocol import orders as the_orders


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A profile of this process is under way."""
    monkeypatch.setenv(the_orders.VARIABLE, str(orders(tmp_path).write()))
    the_orders.current.cache_clear()
    listener = Recorder()
    script.subscribe(listener)
    yield listener
    silence()
    monkeypatch.undo()
    the_orders.current.cache_clear()


def test_outside_a_profile_the_argument_comes_back():
    batches = [1, 2]
    assert stash.watch(batches) is batches


def test_inside_one_the_loop_is_noticed_and_everything_else_passes_through(listener: Recorder):
    class Batches(list):
        about = "numbers"

    watched = stash.watch(Batches([1, 2]))
    assert (len(watched), watched.about) == (2, "numbers")
    assert list(watched) == [1, 2]
    assert listener.events == ["opened", "next batch", "next batch", "next batch", "closed"]


def test_a_loader_that_stash_sees_anyway_comes_back(listener: Recorder):
    loader = DataLoader([1, 2])
    assert stash.watch(loader) is loader


def test_a_step_can_be_marked_and_outside_a_profile_is_nothing(listener: Recorder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steps, "own_update", steps.OwnUpdate())
    stash.step()
    assert listener.events == ["stepped"]
    monkeypatch.delenv(the_orders.VARIABLE)
    the_orders.current.cache_clear()
    stash.step()
    assert listener.events == ["stepped"]


def test_a_phase_is_counted_in_a_profile_and_nothing_outside_one(listener: Recorder) -> None:
    ledger.begin(on_device=False)
    with stash.phase("rollout"), stash.phase("sampling"):
        pass
    with pytest.raises(KeyError), stash.phase("train"):
        raise KeyError
    ledger.end(steps=1)
    assert set(ledger.phases()) == {"rollout", "train"}
    assert all(seconds > 0 for seconds in ledger.phases().values())
    script.unsubscribe()
    ledger.begin(on_device=False)
    with stash.phase("rollout"):
        pass
    ledger.end(steps=0)
    assert ledger.phases() == {}
