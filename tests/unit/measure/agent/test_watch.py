"""``stash.loader``: nothing outside a profile, a handle inside one."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from listening import Recorder
from ranks_in_memory import orders, silence
from torch.utils.data import DataLoader

import stash
from stash.measure.agent import script
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.runner.watched_run import WatchedLoops, WatchedRun
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import steps
from stash.measure.agent.wraps.waits import ledger
from stash.measure.protocol import orders as the_orders
from stash.measure.protocol.stamped import RingReader, StepRing, StepStage


@pytest.fixture
def listener(tmp_path, monkeypatch) -> Iterator[Recorder]:
    """A profile of this process is under way."""
    monkeypatch.setenv(the_orders.VARIABLE, str(orders(tmp_path).write()))
    the_orders.current_orders.cache_clear()
    listener = Recorder()
    script.subscribe(listener)
    yield listener
    silence()
    monkeypatch.undo()
    the_orders.current_orders.cache_clear()


def test_outside_a_profile_the_argument_comes_back():
    batches = [1, 2]
    assert stash.loader(batches) is batches


def test_inside_one_the_loop_is_noticed_and_everything_else_passes_through(listener: Recorder):
    class Batches(list):
        about = "numbers"

    watched = stash.loader(Batches([1, 2]))
    assert (len(watched), watched.about) == (2, "numbers")
    assert list(watched) == [1, 2]
    assert listener.events == ["opened", "next batch", "next batch", "next batch", "closed"]


def test_where_nothing_is_measured_any_more_every_epoch_is_whole(listener: Recorder):
    watched = stash.loader([1, 2])
    assert list(watched) == [1, 2]
    listener.listens = False  # as of a trainer that is not the one measured
    assert [list(watched), list(watched)] == [[1, 2], [1, 2]]
    assert list(copy.copy(watched)) == [1, 2]


def test_a_loader_that_stash_sees_anyway_comes_back(listener: Recorder):
    loader = DataLoader([1, 2])
    assert stash.loader(loader) is loader


def test_in_a_watched_run_batches_of_ones_own_are_waited_for_by_name_and_the_same(
    tmp_path, monkeypatch
):
    class Batches:
        def __iter__(self):
            for number in range(3):
                time.sleep(0.01)
                yield number

    given = the_orders.Orders(str(tmp_path), (), 0.0, watched=True)
    monkeypatch.setenv(the_orders.VARIABLE, str(given.write()))
    the_orders.current_orders.cache_clear()
    run, ring = WatchedRun(given), StepRing(tmp_path / "ring.0.1")
    run.note_in(Stamps(time.perf_counter, ring))
    script.subscribe(run)
    assert list(stash.loader(Batches())) == [0, 1, 2]
    run.handle(ThreadEvent.STEP_ENDED)
    script.unsubscribe()
    the_orders.current_orders.cache_clear()
    (found,) = ring.rows(0)
    assert found.inputs[0] == found.seconds_in(StepStage.INPUT) >= 0.03
    assert RingReader(tmp_path / "ring.0.1").loaders == ["Batches"]


def test_a_loader_that_is_made_again_is_no_other_one(tmp_path):
    # GIVEN a script that has another data set in every epoch, as RL's have of every rollout, beside one that stays
    class Rollout:
        pass

    loops, stays = WatchedLoops(), Rollout()
    loops.stamps = Stamps(time.perf_counter, StepRing(tmp_path / "ring.0.1"))
    for _ in range(10):
        for source in (stays, Rollout()):
            loops.waited(source, lambda: None)
        del source
    loops.waited([1, 2], lambda: None)
    assert RingReader(tmp_path / "ring.0.1").loaders == ["Rollout", "Rollout 2", "list 3"]
    assert len(loops._numbers) == 2


def test_a_step_can_be_marked_and_outside_a_profile_is_nothing(listener: Recorder, monkeypatch):
    monkeypatch.setattr(steps, "own_update", steps.OwnUpdate())
    stash.step()
    assert listener.events == ["stepped"]
    monkeypatch.delenv(the_orders.VARIABLE)
    the_orders.current_orders.cache_clear()
    stash.step()
    assert listener.events == ["stepped"]


def test_a_phase_is_counted_in_a_profile_and_nothing_outside_one(listener: Recorder):
    ledger.begin()
    with stash.phase("rollout"), stash.phase("sampling"):
        pass
    with pytest.raises(KeyError), stash.phase("train"):
        raise KeyError
    ledger.end(steps=1)
    assert set(ledger.phase_seconds()) == {"rollout", "train"}
    assert all(seconds > 0 for seconds in ledger.phase_seconds().values())
    script.unsubscribe()
    ledger.begin()
    with stash.phase("rollout"):
        pass
    ledger.end(steps=0)
    assert ledger.phase_seconds() == {}


FORKS = """
import multiprocessing, sys, torch
from stash.measure.agent.runner import watched_run
watched_run.attach_file = lambda process: sys.argv[2]
getattr(watched_run, sys.argv[1])(sys.modules["torch.optim.optimizer"])
def train():
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(3):
        weight.sum().backward()
        optimizer.step()
for daemon in (False, True):
    process = multiprocessing.get_context("fork").Process(target=train, daemon=daemon)
    process.start()
    process.join()
"""


@pytest.mark.parametrize(("begins", "numbers"), [("start", [1, 2]), ("wait_for_watcher", [2])])
def test_a_rank_that_a_script_forks_is_watched_and_a_loaders_worker_is_not(
    tmp_path, begins, numbers
):
    # GIVEN orders from the start, or left for a run that has begun, which are found after its first step
    given = the_orders.Orders(str(tmp_path), (), 0.0, watched=True)
    written, left = str(given.write()), tmp_path / "attached"
    left.write_text(written)
    environment = {**os.environ, the_orders.VARIABLE: written if begins == "start" else ""}
    subprocess.run(
        [sys.executable, "-c", FORKS, begins, left], env=environment, check=True, cwd=tmp_path
    )
    (ring,) = map(RingReader, tmp_path.glob("ring.*"))
    assert [
        step.number for step in ring.read_new()
    ] == numbers  # the first step begins what is counted
    assert ring.read_state()[1]
