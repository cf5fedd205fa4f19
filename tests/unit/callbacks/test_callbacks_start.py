"""``StashCallback``: the watch that it starts and ends, without a process; real trainers use it in a slow test."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from stash import callbacks
from stash.callbacks import WatchedTraining
from stash.measure.protocol import orders, watch_folder
from stash.monitor import attach, entry


@dataclass
class World:
    """A watcher that answers at once, and what was done with it."""

    folder: Path
    answers: bool = True
    started: list[tuple[tuple[str, ...], dict[str, str]]] = field(default_factory=list)
    entered: list[str] = field(default_factory=list)
    status: int | None = None

    def start(self, command, env, stdin):
        assert stdin == subprocess.DEVNULL
        self.started.append((command, env))
        self.status = None
        if self.answers:
            watch_folder.attach_file(os.getpid()).write_text(str(self.folder / "orders.json"))
        return self

    def poll(self):
        return self.status if self.answers else 2

    def wait(self, seconds):
        assert not watch_folder.attach_file(os.getpid()).exists()
        self.status = 0
        return 0


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path / "watch")
    monkeypatch.setattr(watch_folder, "shared_places", lambda: (str(tmp_path), str(tmp_path)))
    watch_folder.own_folder(str(tmp_path))
    monkeypatch.setattr(callbacks.subprocess, "Popen", made.start)
    monkeypatch.setattr(entry, "enter_process", made.entered.append)
    monkeypatch.setattr(orders, "current_orders", lambda: None)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return made


def test_a_watcher_of_this_process_is_started_and_ended(world):
    watch = WatchedTraining("run.watch.jsonl", "--metrics", "9000")
    watch.begin()
    watch.begin()  # an epoch later
    [(command, environment)] = world.started
    own = str(os.getpid())
    assert command[1:] == (
        *("-m", "stash", "watch", "--quiet", "--attach", own),
        *("--output", "run.watch.jsonl", "--metrics", "9000"),
    )
    assert environment["STASH_ATTACHABLE"] == own
    assert world.entered == [str(world.folder)]
    watch.end()
    watch.end()
    watch.begin()
    assert len(world.started) == 2


@pytest.mark.parametrize("how", ["not the first rank", "watched already"])
def test_nothing_is_started_where_stash_listens_or_another_rank_does(how, world, monkeypatch):
    if how == "not the first rank":
        monkeypatch.setenv("LOCAL_RANK", "1")
    else:
        world.folder.mkdir()
        monkeypatch.setattr(
            orders,
            "current_orders",
            lambda: orders.Orders(str(world.folder), (), 0.0, watched=True),
        )
    watch = WatchedTraining()
    watch.begin()
    watch.end()
    assert world.started == []


def test_training_goes_on_if_the_watcher_fails(world, capsys):
    world.answers = False
    WatchedTraining().begin()
    assert world.entered == []
    assert capsys.readouterr().err == "stash: this run is not watched\n"


def test_a_process_that_asks_itself_needs_no_hook_in_its_environment(world, monkeypatch):
    process = os.getpid()
    assert not attach.enter_job(process, world.folder, None)
    # the watcher's own: Linux shows the one of the start
    monkeypatch.setenv("STASH_ATTACHABLE", str(process))
    assert attach.enter_job(process, world.folder, None)
    assert watch_folder.attach_file(process).read_text() == str(world.folder / "orders.json")


@pytest.mark.parametrize(
    ("framework", "base", "begins"),
    [
        ("transformers", "TrainerCallback", "on_train_begin"),
        ("lightning.pytorch", "Callback", "on_train_start"),
    ],
)
def test_a_frameworks_callback_watches_while_it_trains(framework, base, begins, world, monkeypatch):
    name = f"stash.callbacks.{framework.partition('.')[0]}"
    stub = ModuleType(framework)
    setattr(stub, base, object)
    monkeypatch.setitem(sys.modules, framework, stub)
    monkeypatch.delitem(sys.modules, name, raising=False)
    callback = import_module(name).StashCallback("run.watch.jsonl")
    monkeypatch.delitem(sys.modules, name)
    getattr(callback, begins)("arguments", "state", "control")
    assert world.entered == [str(world.folder)]
    callback.on_train_end("arguments", "state", "control")
    assert not watch_folder.attach_file(os.getpid()).exists()
