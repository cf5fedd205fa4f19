"""What befalls a run that lasts: ranks that begin again, strangers beside them, full disks, clocks, idle scrapers."""

import os
import socket
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from watched_rings import Run

from stash.measure.agent import script
from stash.measure.agent.runner import watch_duties, watched_run
from stash.measure.agent.runner.watched_run import AwaitedRun, WatchedRun
from stash.measure.protocol import watch_folder
from stash.measure.protocol.stamped import StepRing
from stash.monitor.accounting import STAGES
from stash.monitor.collector import Collector, Cutter, JoinedCycles
from stash.monitor.command import _call_quietly
from stash.monitor.records import Header, RunEvent
from stash.monitor.watch_metrics import MetricsServer
from stash.monitor.watch_state import WatchOptions


def joined(first, count):
    seconds = np.ones((count, 1, len(STAGES)))
    return JoinedCycles(
        (0,), list(range(first, first + count)), seconds, np.zeros((count, 1, 2)), 0.0
    )


def test_steps_that_are_counted_again_begin_a_new_part():
    cutter = Cutter(least_seconds=10.0, least_steps=10)
    assert cutter.add_cycles(joined(4990, 5)) is None
    part = cutter.add_cycles(joined(1, 12))
    assert (part.first_step, part.last_step) == (1, 12)


def test_what_steps_an_optimizer_beside_a_rank_does_not_take_its_place(tmp_path):
    events = []
    collector = Collector(tmp_path, lambda what, text: events.append(what))
    StepRing(tmp_path / f"ring.0.{os.getpid()}", 0, 1, 0, 0)
    collector.find_ranks()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=tmp_path
    ) as other:
        ring = tmp_path / f"ring.0.{other.pid}"
        StepRing(ring, 0, 1, 0, 0)
        memory = bytearray(ring.read_bytes())
        own, theirs = (number.to_bytes(4, "little") for number in (os.getpid(), other.pid))
        ring.write_bytes(bytes(memory).replace(own, theirs, 1))
        collector.find_ranks()
        assert collector.ranks[0].reader.process == os.getpid()
        other.communicate(b"\n")
    collector.find_ranks()
    assert collector.ranks[0].reader.process == os.getpid()
    assert events == []


def test_a_scraper_that_says_nothing_keeps_neither_others_nor_the_end_waiting():
    server = MetricsServer(0, Header(id="x", stash_version="1", began=1e9, job="train.py"))
    port = server._server.server_address[1]
    with socket.create_connection(("127.0.0.1", port)):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert b"stash_run" in answer.read()
        server.close()


@pytest.mark.usefixtures("unix_is_monotonic")
def test_a_clock_that_is_set_forward_is_no_run_that_stands(tmp_path):
    run = Run(tmp_path, WatchOptions(stuck_after=120))
    run.train(30)
    run.now += 3600.0
    for state in run.watcher.collector.ranks.values():
        state.reader.offset -= 3600.0  # as it was when the rank began
    run.train(1)
    run.set_standing(30)
    assert run.record().alerts == []


def test_a_record_that_cannot_be_written_is_told_once(tmp_path):
    seen = []
    listener = SimpleNamespace(receive_line=seen.append, close=lambda: None)
    run = Run(tmp_path, listeners=[listener])
    os.close(run.watcher._record._file)
    run.watcher._record._file = os.open("/dev/full", os.O_WRONLY)
    for _ in range(2):
        run.watcher._record_event("x", "y")
    assert [each.what for each in seen if isinstance(each, RunEvent)] == ["not recorded", "x", "x"]


def test_what_fails_of_a_watch_is_told_and_ends_nothing(capsys):
    def fails():
        raise OSError(28, "No space left on device")

    assert not _call_quietly(fails)
    assert _call_quietly(lambda: None)
    assert "not watched any more ([Errno 28] No space left on device)" in capsys.readouterr().err


class Optimizer:
    """What a script may drop."""


def test_who_waits_for_a_watcher_keeps_no_optimizer(monkeypatch, tmp_path):
    monkeypatch.setattr(watched_run, "attach_file", lambda process: tmp_path / "attach")
    waiting = AwaitedRun()
    first = Optimizer()
    waiting.stepped(first)
    del first
    assert waiting._counted() is None
    other = Optimizer()
    waiting.stepped(other)
    assert waiting.steps == 2
    waiting.stepped(Optimizer())
    assert waiting.steps == 2


@pytest.mark.parametrize("left", ["a pipe", "no text", "a link"])
def test_what_others_leave_under_the_name_of_the_orders_neither_stops_a_job_nor_ends_it(
    monkeypatch, tmp_path, left
):
    path = tmp_path / "attach"
    monkeypatch.setattr(watched_run, "attach_file", lambda process: path)
    if left == "a pipe":
        os.mkfifo(path)
    elif left == "a link":
        (tmp_path / "orders").write_text("x")
        path.symlink_to(tmp_path / "orders")
    else:
        path.write_bytes(b"\xff\xfe")
    waiting = AwaitedRun()
    waiting.stepped(Optimizer())
    assert waiting.steps == 1


def test_once_a_watcher_has_left_another_one_may_come(monkeypatch, tmp_path):
    monkeypatch.setattr(watch_duties, "_LOOKOUT_SECONDS", 0.0)
    folder = tmp_path / "rings"
    folder.mkdir()
    listening = []
    monkeypatch.setattr(script, "subscribe", listening.append)
    awaited = AwaitedRun()
    run = WatchedRun(SimpleNamespace(folder=str(folder)), awaited=awaited)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    run.stepped(optimizer)
    run.stepped(optimizer)
    assert listening == []
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    run.stepped(optimizer)
    assert listening == [awaited]
    assert awaited.steps == 2
    assert not run.listens


def test_rings_go_to_disk_where_memory_has_no_room_for_them(tmp_path, monkeypatch):
    """A pod's 64 MB, full of batches: the job was not even started."""
    monkeypatch.setattr(watch_folder.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(watch_folder.os, "access", lambda path, mode: True)
    monkeypatch.setattr(
        watch_folder.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20)
    )
    assert watch_folder.memory_folder() == str(tmp_path)
    monkeypatch.setattr(
        watch_folder.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 30)
    )
    assert watch_folder.memory_folder() == "/dev/shm"
