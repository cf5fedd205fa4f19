"""What is asked of a watched run, over rings that a test writes; and what may go wrong beside it."""

import errno
import os

import pytest
from watched_rings import Run

from stash.core.errors import UserError
from stash.measure.protocol.orders import TraceRequest, WatchRequest
from stash.monitor import command, records, watcher
from stash.monitor.records import load_record
from stash.monitor.run_requests import RunRequest, leave_request, parse_capture, take_request
from stash.monitor.watch_state import WatchOptions

pytestmark = pytest.mark.usefixtures("unix_is_monotonic")


def asked(run):
    return [ring.live[2] for ring in run.rings]


def test_a_run_that_is_paused_does_not_stand_and_goes_on(tmp_path):
    run = Run(tmp_path, WatchOptions(stuck_after=20))
    run.train(15)
    leave_request(run.path, RunRequest(paused=True))
    run.set_standing(100)
    assert asked(run) == [1.0, 1.0]
    assert WatchRequest.load(tmp_path) == WatchRequest(1, paused=True)
    assert take_request(run.path) is None
    leave_request(run.path, RunRequest(paused=False))
    run.train(15)
    record = run.record()
    assert [event.what for event in record.events] == ["paused", "resumed"]
    assert record.alerts == []
    assert WatchRequest.load(tmp_path) == WatchRequest(2, paused=False)


def test_an_alert_has_the_late_rank_traced_at_most_once_an_hour(tmp_path):
    run = Run(tmp_path, WatchOptions(capture=4))
    run.train(40)
    for _ in range(2):
        run.train(30, late=lambda rank: 0.05 * rank)
        run.train(30)
    assert len(run.record().alerts) == 2
    assert [event.what for event in run.record().events] == ["capture"]
    assert WatchRequest.load(tmp_path) == WatchRequest(2, lines=(1,))
    run.now += 3600
    run.train(30)
    run.train(30, late=lambda rank: 0.05 * rank)
    assert [event.what for event in run.record().events] == ["capture", "capture"]
    assert WatchRequest.load(tmp_path).trace == TraceRequest(
        4, (0, 1), str(tmp_path / "run.traces")
    )


@pytest.mark.parametrize("text", ["0", "-3", "a", "3:x", "3:-1", "100000"])
def test_steps_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="ranks if you like"):
        parse_capture(text)


def test_steps_and_ranks():
    assert parse_capture("5") == (5, ())
    assert parse_capture("5:0,3") == (5, (0, 3))


def test_a_folder_that_is_gone_takes_no_request(tmp_path):
    with pytest.raises(UserError, match="cannot write a request beside it"):
        leave_request(tmp_path / "gone" / "run.watch.jsonl", RunRequest(paused=True))


def test_a_second_watch_of_a_job_has_a_record_of_its_own(tmp_path):
    run = Run(tmp_path)
    run.train(12)
    with pytest.raises(UserError, match="is going to write"):
        Run(tmp_path)
    # another one reads the same rings, and neither takes steps from the other
    other = records.RecordWriter(tmp_path / "other.watch.jsonl", run.record().header)
    second = watcher.NodeWatcher(
        tmp_path, other, run.record().header, WatchOptions(), clock=lambda: run.now
    )
    second.poll()
    run.watcher.finish(0)
    second.finish(0)
    whole = [
        sum(window.steps for window in load_record(path).windows) for path in (run.path, other.path)
    ]
    assert whole[0] == whole[1] > 0


def test_a_full_disk_loses_lines_and_never_what_was_there(tmp_path, monkeypatch):
    run = Run(tmp_path)
    run.train(25)
    before = run.path.read_bytes()
    real = os.write

    def full(descriptor, content):
        if content.startswith(b'{"kind"'):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, content)

    monkeypatch.setattr(records.os, "write", full)
    run.train(25)
    assert run.path.read_bytes() == before
    monkeypatch.undo()
    monkeypatch.setattr(watcher.time, "sleep", lambda seconds: None)
    windows = len(load_record(run.path).windows)
    run.watcher.finish(0)
    assert len(load_record(run.path).windows) >= windows


def request_file(run):
    return run.path.with_name("run.watch.request")


def test_a_pipe_in_the_place_of_a_request_does_not_stop_the_watcher(tmp_path):
    run = Run(tmp_path)
    os.mkfifo(request_file(run))
    run.train(15)
    assert run.record().windows != []
    assert request_file(run).exists()  # it is not a request, and somebody else's


@pytest.mark.parametrize(
    "content",
    [
        "[" * 60_000,
        '{"steps": 1e400}',
        '{"steps": ' + "9" * 4000 + "}",
        '{"steps": -5}',
        "[1]",
        '{"steps": 3, "ranks": [99999999999999999999]}',
        '{"steps": 3, "ranks": 5}',
        '{"paused": "x"}',
        '{"steps": 2, "folder": "a\\u0000b"}',
        '{"steps": 100000000000}',
        '{"x": 1}',
        "\0" * 100,
        '"steps"',
        "",
        '{"paused": true, "more": 1}',
    ],
)
def test_what_is_no_request_is_removed_and_the_run_stays_watched(tmp_path, content):
    run = Run(tmp_path)
    run.train(15)
    request_file(run).write_text(content)
    run.train(15)
    record = run.record()
    assert [event.what for event in record.events] == []
    assert len(record.windows) > 1
    assert not request_file(run).exists()


def test_a_request_to_an_earlier_run_of_that_name_is_not_followed(tmp_path):
    leave_request(tmp_path / "run.watch.jsonl", RunRequest(paused=True))
    run = Run(tmp_path)
    run.train(15)
    assert run.record().events == []


def test_a_request_never_follows_a_link_that_another_one_left(tmp_path):
    victim = tmp_path / "thesis.txt"
    victim.write_text("years of work")
    record = tmp_path / "run.watch.jsonl"
    for name in (f"run.watch.request.{os.getpid()}", "run.watch.request"):
        (tmp_path / name).symlink_to(victim)
    leave_request(record, RunRequest(paused=True))
    assert victim.read_text() == "years of work"
    assert take_request(record) == RunRequest(paused=True)


def test_who_asks_a_run_whose_watcher_was_killed_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    run = Run(tmp_path)
    run.train(15)
    monkeypatch.setattr(command, "_LOOKS", 2)
    with pytest.raises(UserError, match="nobody watches that run any more"):
        command.ask_run(run.path, command.WatchCommandOptions(pause=True, join=run.path))
    assert not request_file(run).exists()
