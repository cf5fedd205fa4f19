"""What the script does reaches its listener, in this process only and only while that one listens."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from climbing import silence
from listening import Heard

from stash.measure.agent import script
from stash.measure.agent.data.feeds import Handle, Served, WatchedFeed

TELL = (script.world_formed, script.acted, script.ended, script.abandoned, script.alive)


def handle_of(batches: list[int]) -> Handle:
    feed = WatchedFeed(batches)
    return Handle(feed, Served(feed))


@pytest.fixture
def heard() -> Iterator[Heard]:
    listener = Heard()
    script.subscribe(listener)
    yield listener
    silence()


def test_every_word_is_heard(heard: Heard):
    for tell in TELL:
        tell()
    script.stepped("optimizer")
    script.note("a note")
    assert heard.words == ["world formed", "acted", "ended", "abandoned", "beat", "stepped", "a note"]
    assert script.active()


def test_backward_passes_are_counted():
    before = script.passes()
    script.passed()
    assert script.passes() == before + 1


def test_without_a_listener_the_script_goes_on_as_if_nothing_were_there():
    silence()
    for tell in TELL:
        tell()
    script.note("nobody hears")
    handle = handle_of([1, 2])
    assert script.opened(handle) is handle
    assert [next(handle), next(handle)] == [1, 2]
    assert not script.active()
    assert not script.saves_drifted()


def test_a_listener_that_has_had_enough_hears_nothing_more(heard: Heard):
    heard.listens = False
    script.acted()
    assert heard.words == []
    assert not script.active()


def test_a_forked_worker_is_not_the_job(heard: Heard):
    child = os.fork()
    if child == 0:
        os._exit(script.active())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert script.active()


def test_saving_is_heard_whatever_is_saved(heard: Heard):
    assert not script.saves_drifted()
    heard.drifted = True
    assert script.saves_drifted()
    assert heard.words == ["saved", "saved"]


def test_replicas_that_drifted_stay_drifted_when_nobody_listens_any_more(heard: Heard):
    heard.drifted, heard.listens = True, False
    assert script.saves_drifted()
    assert script.drifted()


def test_a_loops_iterator_tells_when_it_is_dropped(heard: Heard):
    for batch in script.opened(handle_of([1, 2, 3])):
        if batch == 2:
            break
    assert heard.words == ["opened", "served", "served", "closed"]
