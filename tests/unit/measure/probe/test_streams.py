"""Streams between nodes: which, and timed where they arrive."""

import math
import threading
import time

import pytest

from stash.core.membership import StrangerError
from stash.measure.probe import streams
from stash.measure.probe.exchanges import equal_parts


def test_two_nodes_send_one_way_at_a_time_and_what_does_not_fit_is_said():
    wanted, left = streams.plan_slots(2, 100.0)
    assert [(each.source, each.target, each.flows) for (each,) in wanted] == [
        (0, 1, 1),
        (0, 1, 8),
        (1, 0, 1),
        (1, 0, 8),
    ]
    assert left == []
    wanted, left = streams.plan_slots(3, 1.0)
    assert len(wanted) == 2
    assert left[0].link == "streams from node 2 to node 1, 1 at once"
    assert len(left) == 10


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 16, 33])
def test_pairs_of_a_round_share_no_node_and_every_node_meets_others_in_log2_rounds(nodes):
    rounds = streams.pair_rounds(nodes)
    assert len(rounds) <= math.ceil(math.log2(nodes)) + 1
    for pairs in rounds:
        ends = [node for pair in pairs for node in pair]
        assert len(ends) == len(set(ends)) >= nodes - 1
    met = [{pair for pairs in rounds for pair in pairs if node in pair} for node in range(nodes)]
    assert min(map(len, met)) >= min(2, nodes - 1)
    # no pair twice
    assert len({pair for pairs in rounds for pair in pairs}) == sum(map(len, rounds))


@pytest.mark.parametrize("flows", [1, 8])
def test_a_stream_over_loopback_is_timed_where_it_arrives(flows):
    sender = []

    def connect(place):
        sender.append(threading.Thread(target=streams.send, args=(place, flows, 0.4)))
        sender[0].start()

    marks = streams.receive("127.0.0.1", flows, 0.4, connect)
    sender[0].join(60)
    assert not sender[0].is_alive()
    assert marks[0][1] > 0  # the first part was left out
    timing = equal_parts(marks, 8)
    assert sum(timing.seconds) > 0.05


def test_what_arrives_before_all_connections_flow_and_after_the_first_has_ended_is_not_counted():
    marks = []
    for at in range(16):
        streams._mark(marks, 10.0 + at / 10, at, began=10.0, seconds=1.0)
    assert [round(10 * (moment - 10)) for moment, _ in marks] == [3, 4, 5, 6, 7, 8, 9]
    slow = []
    for at in (2, 3, 4):
        streams._mark(slow, 10.0 + at, at, began=10.0, seconds=1.0)
    assert slow == [(12.0, 2), (13.0, 3)]


def test_a_peer_that_never_connects_ends_a_stream_in_time(monkeypatch):
    monkeypatch.setattr(streams, "_PATIENCE", 0.2)
    began = time.monotonic()
    with pytest.raises(OSError, match="timed out"):
        streams.receive("127.0.0.1", 1, 0.4, lambda place: None)
    assert time.monotonic() - began < 60  # its own patience, not the default's or forever


@pytest.mark.parametrize(
    "text", ["10.0.0.9 80", "80", "0 " + "a" * 32, "99999 " + "a" * 32, "80 short", "x " + "a" * 32]
)
def test_no_peer_is_sent_bytes_because_of_what_stands_in_the_store(text):
    with pytest.raises(OSError, match="published what this version"):
        streams._parse_inlet(text, "10.0.0.2")


def test_who_knows_the_word_of_a_transfer_and_not_the_secret_sends_nothing(monkeypatch):
    refused = []

    def connect(place):
        try:
            streams.send(place, 1, 0.4, secret="another")
        except OSError as error:
            refused.append(error)

    for patience in (1.0, 10.0, 60.0):  # on a busy machine one comes late
        monkeypatch.setattr(streams, "_PATIENCE", patience)
        begun = []

        def begin(place, begun=begun):
            begun.append(threading.Thread(target=connect, args=(place,)))
            begun[0].start()

        with pytest.raises(OSError, match="timed out"):
            streams.receive("127.0.0.1", 1, 0.4, begin, "s")
        begun[0].join()
        if isinstance(refused[-1], StrangerError):
            break
    assert isinstance(refused[-1], StrangerError)
