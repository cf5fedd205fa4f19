"""Launchers that let each other know that they live: who is judged gone, when, and who is told."""

import hmac
import json
import pickle
import socket
import time

import pytest
from stamped_steps import Seconds

from stash.measure.launcher import peers as module
from stash.measure.launcher.diagnose import diagnose_lost_nodes
from stash.measure.launcher.peers import LOST_SECONDS, Peers, Silence, Word
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import Invitation, Neighbours
from stash.measure.protocol.wire import pack_value

HOST = "127.0.0.1"


class Job:
    """Launchers on one machine, each with a folder of its own; node 0 has rank 0."""

    def __init__(self, folder, nodes):
        self.clock = Seconds()
        self.clock.now = 1000.0
        self.folders = [RunFolder(folder / str(node)) for node in range(nodes)]
        for own in self.folders:
            own.path.mkdir()
        self.peers = [Peers(own, self.clock) for own in self.folders]
        for node, (own, peers) in enumerate(zip(self.folders, self.peers, strict=True)):
            peers.open_socket()  # no message yet that there are others
            assert Invitation.load(own) is None
            assert Neighbours(node, HOST).write(own)
            peers.open_socket()
        invitation = Invitation.load(self.folders[0])
        assert invitation is not None
        self.meeting = invitation
        for own in self.folders:
            assert self.meeting.write_meeting(own)

    def greet(self, *nodes):
        """These nodes' launchers send and hear, twice, node 0 last: it answers who spoke to it."""
        for _ in range(2):
            for node in sorted(nodes, reverse=True):
                self.peers[node].greet()


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path, 3)
    yield job
    for peers in job.peers:
        peers.close()


def silences(job, last_step=None):
    return [peers.find_silence(last_step) for peers in job.peers]


def test_a_node_that_falls_silent_is_named_by_the_leader_who_tells_the_others(job):
    job.greet(0, 1, 2)
    since = job.clock.now
    job.clock.now += LOST_SECONDS - 1
    job.greet(0, 2)
    assert silences(job)[0] is None
    job.clock.now += 2
    job.greet(0, 2)
    silence = job.peers[0].find_silence(None)
    assert silence == Silence(((1, HOST),), since)
    assert job.peers[2].find_silence(None) is None  # it talks to the leader only, and hears it


def test_those_still_there_are_told_at_once(job, monkeypatch):
    job.greet(0, 1, 2)
    # all of this test's nodes share one address, so another's
    gone = Silence(((7, "10.0.0.8"),), 990.0)
    job.peers[0].tell_peers(gone)
    job.peers[1].greet()
    job.peers[2].greet()
    assert silences(job) == [None, gone, gone]
    # only rank 0's launcher speaks for others
    job.peers[1].tell_peers(Silence(((0, "10.0.0.9"),), 1.0))
    job.peers[0].greet()
    assert job.peers[0].find_silence(None) is None


@pytest.mark.parametrize("leaves", [0, 1])
def test_a_launcher_that_took_leave_is_not_missed(job, leaves):
    job.greet(0, 1)
    job.peers[leaves].close()
    job.clock.now += 1
    stays = 1 - leaves
    job.greet(stays)
    job.clock.now += 10 * LOST_SECONDS
    assert job.peers[stays].find_silence(None) is None
    assert job.peers[stays].left == (leaves, HOST)


def test_while_own_ranks_step_no_node_is_gone(job):
    job.greet(0, 1)
    job.clock.now += 10 * LOST_SECONDS
    assert job.peers[0].find_silence(job.clock.now - LOST_SECONDS) is None
    assert job.peers[0].find_silence(job.clock.now - LOST_SECONDS - 1) is not None


def signed(key, words):
    return hmac.digest(key.encode(), words, "sha256") + words


def greeting(node):
    return json.dumps({"record": "Word", "fields": ["stranger", node, False, None]}).encode()


def unsigned(key):
    """What a stranger might say that does not have the key."""
    return [
        b"",
        b"\xff",
        b"[" * 4000,
        b"7",
        greeting(7),
        signed("another key", greeting(7)),
        pickle.dumps(Exception),
    ]


def nonsense(key):
    """What no launcher says, signed with the right key all the same."""
    gone = '{"record": "Silence", "fields": [{"tuple": []}, 1e999]}'
    datagrams = [
        b"",
        b"[" * 4000,
        b"9" * 5000,
        b'{"record": "Word"}',
        b'{"record": "Orders", "fields": []}',
    ]
    datagrams += [greeting(node) for node in (None, "x", [1], 1.5, True)]
    datagrams += [
        b'{"record": "Word", "fields": ["s", %s, false, null]}' % number
        for number in (b"Infinity", b"1e999")
    ]
    datagrams += [f'{{"record": "Word", "fields": ["s", 1, false, {gone}]}}'.encode()]
    return [signed(key, each) for each in datagrams]


@pytest.mark.parametrize("datagrams", [unsigned, nonsense])
def test_words_of_strangers_are_passed_over(job, datagrams):
    job.greet(0, 1)
    words = datagrams(job.meeting.key)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for word in words:
            stranger.sendto(word, (HOST, job.meeting.port))
    job.greet(0, 1)
    job.clock.now += LOST_SECONDS + 1
    silence = job.peers[0].find_silence(None)
    assert silence.nodes == ((1, HOST),)


@pytest.mark.parametrize("sender", [1, 0])
def test_a_word_that_arrives_again_or_is_ones_own_counts_for_nothing(job, sender):
    job.greet(0, 1)
    says = job.peers[sender]
    old = signed(job.meeting.key, pack_value(Word(says._own, 7 - sender, number=says._sent)))
    job.clock.now += LOST_SECONDS + 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(old, (HOST, job.meeting.port))
    job.peers[0].greet()
    silence = job.peers[0].find_silence(None)
    assert silence.nodes == ((1, HOST),)
    assert len(job.peers[0]._peers) == 1


def test_the_sentence_says_who_when_and_after_how_many_steps():
    noon = time.mktime((2026, 1, 2, 12, 34, 56, 0, 0, -1))
    assert diagnose_lost_nodes([(1, "10.0.0.2")], noon, 312).sentence == (
        "node 1 (10.0.0.2) stopped answering at 12:34:56, after 312 training steps: "
        "that node, or the link to it, is down"
    )
    assert diagnose_lost_nodes([(1, "a"), (2, "b"), (3, "c")], noon, 5).sentence == (
        "node 1 (a), node 2 (b) and node 3 (c) stopped answering at 12:34:56, after 5 training steps: "
        "those nodes, or the links to them, are down"
    )


def test_a_flood_of_strange_words_holds_no_other_up(job, monkeypatch):
    monkeypatch.setattr(module, "_MAX_DATAGRAMS", 5)
    job.greet(0, 1)
    job.clock.now += LOST_SECONDS + 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for _ in range(50):
            stranger.sendto(b"x", (HOST, job.meeting.port))
    for _ in range(12):
        job.greet(0, 1)
    assert job.peers[0].find_silence(None) is None


def test_a_launcher_that_cannot_listen_where_its_ranks_are_goes_without(tmp_path):
    folder = RunFolder(tmp_path)
    assert Neighbours(0, "192.0.2.1").write(folder)
    alone = Peers(folder)
    alone.greet()
    assert Invitation.load(folder) is None
    alone.close()
