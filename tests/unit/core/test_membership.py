"""Proof of membership: who knows the secret is let in, by name; who does not is hung up on, in time."""

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from stash.core import membership
from stash.core.membership import (
    Door,
    HungUpError,
    RunMember,
    SignedLink,
    StrangerError,
    admit,
    gather_members,
    join,
)

SECRET, PURPOSE = b"of this run", "a test"


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def _both(ends, secret, purpose):
    """What comes of it at either end: a member, or an error."""

    def outcome(call, *words):
        try:
            return call(*words)
        except OSError as error:
            ends[0].close() if call is admit else None
            return error

    with ThreadPoolExecutor(2) as pool:
        inside = pool.submit(outcome, admit, ends[0], SECRET, PURPOSE)
        outside = pool.submit(outcome, join, ends[1], secret, purpose, "worker1")
        return inside.result(), outside.result()


def test_both_ends_know_each_other_and_can_sign_on_that_connection_alone(
    ends,
):
    inside, outside = _both(ends, SECRET, PURPOSE)
    assert isinstance(inside, RunMember)
    assert isinstance(outside, RunMember)
    assert inside.name == outside.name == "worker1"
    assert inside.is_signed(b"7", outside.sign(b"7"))
    assert not inside.is_signed(b"8", outside.sign(b"7"))
    others = socket.socketpair()
    again, _ = _both(others, SECRET, PURPOSE)
    for other in others:
        other.close()
    assert isinstance(again, RunMember)
    assert not again.is_signed(b"7", outside.sign(b"7"))


@pytest.mark.parametrize(
    ("secret", "purpose"), [(b"of another run", PURPOSE), (SECRET, "something else")]
)
def test_another_secret_or_purpose_is_refused_by_either_end(ends, secret, purpose):
    inside, outside = _both(ends, secret, purpose)
    assert isinstance(inside, StrangerError)
    assert isinstance(outside, HungUpError)


def test_a_listener_that_proves_nothing_is_told_from_one_of_the_run(
    ends,
):
    ends[0].sendall(os.urandom(16 + 32))
    with pytest.raises(StrangerError, match="does not know the secret"):
        join(ends[1], SECRET, PURPOSE)


def test_the_secret_is_in_nothing_that_is_sent(ends):
    ends[0].sendall(bytes(16))
    with pytest.raises(OSError, match="timed out"):
        join(ends[1], SECRET, PURPOSE, seconds=0.1)
    sent = ends[0].recv(1000)
    assert len(sent) == 16 + 32 + 32
    assert SECRET not in sent


def test_a_byte_now_and_then_does_not_make_a_handshake_longer(
    ends,
):
    over = threading.Event()

    def trickle():
        while not over.wait(0.02):
            ends[1].sendall(b"x")

    slow = threading.Thread(target=trickle)
    slow.start()
    try:
        with pytest.raises(TimeoutError):
            admit(ends[0], SECRET, PURPOSE, seconds=0.3)
    finally:
        over.set()
        slow.join()


def test_strangers_that_say_nothing_make_room_for_members(monkeypatch):
    monkeypatch.setattr(membership, "_UNPROVEN", 4)
    listener = socket.create_server(("127.0.0.1", 0))
    met = threading.Event()
    door = Door(listener, SECRET, PURPOSE, lambda link, member: (link.close(), met.set())[0])
    place = listener.getsockname()
    strangers = [socket.create_connection(place) for _ in range(12)]
    with socket.create_connection(place) as link:
        assert join(link, SECRET, PURPOSE).name == ""
    assert met.wait(60)
    assert len(door._unproven) <= 4
    door.close()
    for stranger in strangers:
        stranger.close()
    with pytest.raises(OSError):
        socket.create_connection(place, timeout=1)


def test_as_many_as_have_come_by_the_deadline_are_gathered():
    found = []
    seconds = 0.25
    while not found and seconds < 60:  # on a busy machine one comes late
        seconds *= 2
        listener = socket.create_server(("127.0.0.1", 0))
        with (
            ThreadPoolExecutor(1) as pool,
            socket.create_connection(listener.getsockname()) as link,
        ):
            pool.submit(join, link, SECRET, PURPOSE, "one")
            found = gather_members(listener, SECRET, PURPOSE, 2, time.monotonic() + seconds)
    assert [member.name for _, member in found] == ["one"]
    found[0][0].close()


def test_messages_come_whole_in_order_and_by_their_deadline(
    ends,
):
    here, there = (SignedLink(end, RunMember("", SECRET)) for end in ends)
    long = os.urandom(3 << 20)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(lambda: [there.send(content) for content in (b"", long, b"last")])
        assert [here.receive() for _ in range(3)] == [b"", long, b"last"]
        sent.result()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        here.receive(began + 0.1)
    assert time.monotonic() - began < 60
    there.close()
    with pytest.raises(ConnectionError, match="closed the connection"):
        here.receive()


@pytest.mark.parametrize(
    "foreign",
    [
        lambda first: first,  # once more
        lambda first: first[:4] + first[12:].rjust(len(first) - 4, b"\2"),  # under another number
        lambda first: (
            (1 << 30).to_bytes(4, "big") + (2).to_bytes(8, "big")
        ),  # longer than any message
        lambda first: first[:4] + (2).to_bytes(8, "big") + b"six" + first[15:],  # with other words
    ],
)
def test_what_is_no_message_of_the_connection_is_refused(foreign, ends):
    here = SignedLink(ends[0], RunMember("", SECRET))
    first = b""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        SignedLink(ours, RunMember("", SECRET)).send(b"two")
        first = theirs.recv(4096)
    ends[1].sendall(first)
    assert here.receive() == b"two"
    ends[1].sendall(foreign(first))
    ends[1].shutdown(socket.SHUT_WR)
    with pytest.raises(StrangerError):
        here.receive()
