"""Streams between nodes: which, and timed where they arrive."""

from __future__ import annotations

import threading
import time

import pytest

from stash.measure.probe import streams
from stash.measure.probe.repeat import equal_parts


def test_every_node_meets_node_0_both_ways_and_a_slow_node_0_would_show():
    wanted, left = streams.directions(3, 100.0)
    ends = [(one.source, one.target) for one in wanted if one.flows == 1]
    assert ends == [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]
    assert left == []
    wanted, left = streams.directions(3, 1.0)
    assert len(wanted) == 2
    assert left[0].link == "streams from node 1 to node 0, 1 at once"
    assert len(left) == 10


@pytest.mark.parametrize("flows", [1, 8])
def test_a_stream_over_loopback_is_timed_where_it_arrives(flows: int):
    sender: list[threading.Thread] = []

    def connect(place: tuple[str, int]) -> None:
        sender.append(threading.Thread(target=streams.send, args=(place, flows, 0.4)))
        sender[0].start()

    marks = streams.receive("127.0.0.1", flows, 0.4, connect)
    sender[0].join(5)
    assert not sender[0].is_alive()
    assert marks[0][1] > 0  # the first part was left out
    timing = equal_parts(marks, 8)
    assert timing is not None
    assert sum(timing.seconds) > 0.05


def test_a_peer_that_never_connects_ends_a_stream_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "_PATIENCE", 0.2)
    began = time.monotonic()
    with pytest.raises(OSError, match="timed out"):
        streams.receive("127.0.0.1", 1, 0.4, lambda place: None)
    assert time.monotonic() - began < 60  # its own patience, not the default's or forever
