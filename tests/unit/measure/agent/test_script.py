"""What the script does reaches its listener, in this process only and only while that one listens."""

from __future__ import annotations

import os

from listening import Recorder
from ranks_in_memory import silence

from stash.measure.agent import script
from stash.measure.agent.data.feeds import Handle, WatchedFeed, iterate_feed
from stash.measure.agent.thread_events import ThreadEvent


def tell():
    """Tell whoever listens of everything that returns nothing."""
    listener = script.listener()
    listener.world_formed()
    listener.loops.acted()
    listener.loop_ended()
    listener.abandoned()
    listener.beat()
    listener.stepped("optimizer")
    script.publish(ThreadEvent.BACKWARD_ENDED)
    script.note("a note")


def handle_of(batches) -> Handle:
    feed = WatchedFeed(batches)
    return Handle(feed, iterate_feed(feed))


def test_every_event_reaches_the_listener(listener: Recorder):
    tell()
    assert listener.events == [
        "world formed",
        "acted",
        "ended",
        "abandoned",
        "beat",
        "stepped",
        "a note",
    ]
    assert script.active()


def test_without_a_listener_the_script_goes_on_as_if_nothing_were_there():
    silence()
    tell()
    handle = handle_of([1, 2])
    script.listener().loops.opened(handle)
    assert [next(handle), next(handle)] == [1, 2]
    assert not script.active()
    assert not script.refuses_save()


def test_a_listener_that_is_done_gets_nothing_more(listener: Recorder):
    listener.listens = False
    tell()
    assert listener.events == []
    assert not script.active()


def test_an_exit_past_python_tells_that_the_process_ends_where_it_ends_well(
    listener: Recorder, monkeypatch
):
    codes = list[int]()
    monkeypatch.setattr(os, "_exit", os._exit)  # put back afterwards
    monkeypatch.setattr(script, "hard_exit", codes.append)
    script.report_hard_exits()
    os._exit(1)
    assert listener.events == []
    os._exit(0)
    assert listener.events == ["exits"]
    assert codes == [1, 0]


def test_a_forked_worker_is_not_the_job(listener: Recorder):
    child = os.fork()
    if child == 0:
        os._exit(script.active())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert script.active()


def test_replicas_that_drifted_stay_drifted_when_no_listener_is_left(listener: Recorder):
    listener.drifted, listener.listens = True, False
    assert script.refuses_save()
    assert script.drifted()


def test_a_loops_iterator_tells_when_it_is_dropped(listener: Recorder):
    handle = handle_of([1, 2, 3])
    script.listener().loops.opened(handle)
    for batch in handle:
        if batch == 2:
            break
    del handle
    assert listener.events == ["opened", "next batch", "next batch", "closed"]
