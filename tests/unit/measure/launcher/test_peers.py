"""Launchers that let each other know that they live: who is judged gone, when, and who is told."""

import pickle
import time

import pytest
from stamped_steps import Seconds
from waiting import until

from stash.core.membership import SignedLink, StrangerError, connect, hang_up
from stash.measure.launcher.diagnose import diagnose_lost_nodes
from stash.measure.launcher.peers import LOST_SECONDS, Peers, Silence
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import Invitation, Neighbours

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
        """These nodes' launchers send and receive, node 0 last: until it has a sign of each of the others now."""
        others = [node for node in nodes if node > 0]

        def have_met():
            for node in sorted(nodes, reverse=True):
                self.peers[node].greet()
            alive = [peer.node for peer in self.peers[0]._peers.values() if self.is_now(peer)]
            hears = [any(map(self.is_now, self.peers[node]._peers.values())) for node in others]
            return 0 not in nodes or (set(others) <= set(alive) and all(hears))

        until(have_met)
        time.sleep(0.1)  # for what is still on its way
        for node in nodes:
            self.peers[node].receive_signs()

    def is_now(self, peer):
        return peer.seen == self.clock.now


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


def test_those_still_there_are_told_at_once(job):
    job.greet(0, 1, 2)
    # all of this test's nodes share one address, so another's
    gone = Silence(((7, "10.0.0.8"),), 990.0)
    job.peers[0].tell_peers(gone)
    job.greet(0, 1, 2)
    assert silences(job) == [None, gone, gone]
    # only rank 0's launcher speaks for others
    job.peers[1].tell_peers(Silence(((0, "10.0.0.9"),), 1.0))
    job.greet(0, 1, 2)
    assert job.peers[0].find_silence(None) is None


@pytest.mark.parametrize("leaves", [0, 1])
def test_a_launcher_that_took_leave_is_not_missed(job, leaves):
    job.greet(0, 1)
    job.peers[leaves].close()
    stays = 1 - leaves
    until(lambda: (job.peers[stays].greet(), job.peers[stays].left)[1])
    job.clock.now += 10 * LOST_SECONDS
    assert job.peers[stays].find_silence(None) is None
    assert job.peers[stays].left == (leaves, HOST)


def test_while_own_ranks_step_no_node_is_gone(job):
    job.greet(0, 1)
    job.clock.now += 10 * LOST_SECONDS
    assert job.peers[0].find_silence(job.clock.now - LOST_SECONDS) is None
    assert job.peers[0].find_silence(job.clock.now - LOST_SECONDS - 1) is not None


WHAT_NO_LAUNCHER_SAYS = [
    b"",
    b"[" * 4000,
    b"7",
    b'{"record": "Word"}',
    b'{"record": "Orders", "fields": {}}',
    b'{"record": "Word", "fields": {"sender": "s", "node": "x"}}',
    b'{"record": "Word", "fields": {"sender": "s", "node": 1e999}}',
    pickle.dumps(Exception),
]


@pytest.mark.parametrize("words", WHAT_NO_LAUNCHER_SAYS, ids=range(len(WHAT_NO_LAUNCHER_SAYS)))
def test_who_has_the_key_and_says_what_no_launcher_does_is_hung_up_on(job, words):
    job.greet(0, 1)
    link, member = connect((HOST, job.meeting.port), job.meeting.key.encode(), "signs of life")
    until(lambda: len(job.peers[0]._lines) == 2)
    SignedLink(link, member).send(words)
    until(lambda: (job.greet(0, 1), len(job.peers[0]._lines) == 1)[1])
    assert len(job.peers[0]._peers) == 1


def test_who_does_not_have_the_key_is_not_let_in(job):
    with pytest.raises(StrangerError):
        connect((HOST, job.meeting.port), b"another key", "signs of life")
    assert job.peers[0]._lines == []


def test_a_launcher_that_lost_its_connection_calls_again(job):
    job.greet(0, 1)
    hang_up(job.peers[1]._lines[0].socket)
    job.clock.now += LOST_SECONDS + 1
    job.greet(0, 1)
    assert silences(job) == [None, None, None]


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


def test_a_launcher_that_cannot_listen_where_its_ranks_are_goes_without(tmp_path):
    folder = RunFolder(tmp_path)
    assert Neighbours(0, "192.0.2.1").write(folder)
    alone = Peers(folder)
    alone.greet()
    assert Invitation.load(folder) is None
    alone.close()
