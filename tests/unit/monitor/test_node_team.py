"""Watchers of several nodes by hand: what is merged, what crosses, who is let in, and who is waited for."""

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stash.core.membership import StrangerError
from stash.measure.protocol import stamped
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import Invitation, Neighbours
from stash.measure.protocol.stamped import StepRing, StepStage
from stash.monitor import watcher
from stash.monitor.accounting import STAGES, account_cycles
from stash.monitor.collector import Collector, JoinedCycles
from stash.monitor.command import WatchCommandOptions
from stash.monitor.node_team import (
    NodeGuest,
    NodeHost,
    NodeMerge,
    NodeNews,
    NodeTeam,
    pack_news,
    unpack_news,
)
from stash.monitor.records import Header, MachineState, RecordWriter, load_record
from stash.monitor.strangers import CoreUse
from stash.monitor.watch_start import begin_watch
from stash.monitor.watch_state import WatchOptions
from stash.monitor.watcher import NodeWatcher


def joined(ranks, numbers, seconds):
    """Forward passes of that length, and an exchange of one second."""
    each = np.zeros((len(numbers), len(ranks), len(STAGES)))
    each[:, :, STAGES.index(StepStage.FORWARD)], each[:, :, STAGES.index(StepStage.EXCHANGE)] = (
        seconds,
        1.0,
    )
    return JoinedCycles(
        ranks, numbers, each, np.zeros((len(numbers), len(ranks), 3)), float(numbers[-1])
    )


def test_steps_that_all_nodes_have_are_merged_once_whatever_order_they_come_in():
    merge = NodeMerge()
    merge.add_cycles(1, joined((2, 3), [2, 3], 5.0))
    assert merge.merge_cycles().numbers == [2, 3]
    merge.add_cycles(0, joined((0, 1), [4, 5, 6], 2.0))
    assert merge.merge_cycles() is None
    merge.add_cycles(1, joined((2, 3), [4, 5], 5.0))
    both = merge.merge_cycles()
    assert (both.ranks, both.numbers) == ((0, 1, 2, 3), [4, 5])
    found = account_cycles(both.ranks, both.seconds, both.delays[:, :, 0])
    assert found.seconds["compute"] == 2.0  # of ranks 0 and 1, the faster of the two in the middle
    assert found.seconds["contention"] == 3.0
    merge.add_cycles(1, joined((2, 3), [6], 5.0))
    assert merge.merge_cycles().numbers == [6]
    merge.add_cycles(0, joined((0, 1), [7], 2.0))
    merge.drop_node(1)
    assert merge.merge_cycles().ranks == (0, 1)


def test_a_node_that_counts_from_the_start_again_discards_what_was_held():
    merge = NodeMerge()
    merge.add_cycles(0, joined((0,), [100, 101], 1.0))
    merge.add_cycles(1, joined((1,), [90], 1.0))
    merge.add_cycles(0, joined((0,), [1, 2], 1.0))
    merge.add_cycles(1, joined((1,), [2, 3], 1.0))
    assert merge.merge_cycles().numbers == [2]


def test_news_cross_as_they_are():
    news = NodeNews(
        node=1,
        stages={2: 8, 3: 4},
        ranks=2,
        events=(("note", "a"),),
        uses={3: CoreUse(1, 2.0, 0.5, 0.25, 0.0, 1.0, (0.1, 0.2))},
        ended=True,
    )
    sent = joined((2, 3), [7, 8], 0.25)
    back, cycles = unpack_news(pack_news(news, sent))
    assert back == news
    assert (cycles.ranks, cycles.numbers, cycles.ended) == ((2, 3), [7, 8], 8.0)
    np.testing.assert_array_equal(cycles.seconds, sent.seconds)
    assert unpack_news(pack_news(news, None)) == (news, None)
    with pytest.raises((ValueError, TypeError)):
        unpack_news(b'{"node": 1}\n')


def test_only_who_knows_the_key_is_let_in_and_a_torn_link_is_a_lost_node():
    host = NodeHost("127.0.0.1")
    invitation = host.invitation
    try:
        with pytest.raises(StrangerError):
            NodeGuest(replace(invitation, key="another"), 1)
        guest = NodeGuest(invitation, 1)
        guest.send(NodeNews(node=1, ranks=2))
        assert host.news.get(timeout=10) == (NodeNews(node=1, ranks=2), None)
        host.send_to_all(b"pause")
        assert guest.requests.get(timeout=10) == b"pause"
        guest.close()
        assert host.news.get(timeout=10) == (NodeNews(node=1, ended=True, lost=True), None)
    finally:
        host.close()


class Node:
    """A watcher of one rank, whose steps a test writes."""

    def __init__(self, folder, node, clock):
        folder.mkdir()
        self.folder = folder
        self.path = folder / "run.watch.jsonl"
        self.ring = StepRing(folder / f"ring.{node}.{os.getpid()}", node, 2, 0, node)
        header = Header(id="x", stash_version="1", began=clock(), job="train.py")
        self.watcher = NodeWatcher(
            folder, RecordWriter(self.path, header), header, WatchOptions(), clock=clock
        )
        self.node = node
        self._number = 0
        Neighbours(node, "127.0.0.1").write(RunFolder(folder))

    def train(self, steps, forward, ended):
        for _ in range(steps):
            self._number += 1
            row = [0.0] * stamped.FIELDS
            row[stamped.NUMBER], row[stamped.ENDED] = self._number, ended
            row[StepStage.FORWARD], row[StepStage.EXCHANGE] = forward, 1.0 - forward
            self.ring.write(row)
        self.watcher.poll()


def test_two_watchers_write_one_record(tmp_path, monkeypatch):
    monkeypatch.setattr(stamped.time, "time", lambda: 0.0)
    monkeypatch.setattr(stamped.time, "monotonic", lambda: 0.0)
    now = [1e9]
    first, second = (Node(tmp_path / str(node), node, lambda: now[0]) for node in (0, 1))
    first.watcher.poll()
    invitation = Invitation.load(RunFolder(first.folder))
    second.watcher.poll()
    assert invitation.write_meeting(RunFolder(second.folder))  # as the ranks do
    monkeypatch.undo()
    for _ in range(4):
        now[0] += 10.0
        second.train(20, 0.7, now[0])
        time.sleep(0.05)
        first.train(20, 0.5, now[0])
    second.watcher.finish(0)
    first.watcher.finish(0)
    record = load_record(first.path)
    assert record.header.ranks == 2
    assert record.windows[0].ranks.keys() == {0, 1}
    assert record.windows[0].stalls["contention"] == pytest.approx(0.2)
    assert record.windows[0].step_seconds == pytest.approx(1.0)
    assert [(late.rank, late.stage) for late in record.windows[0].stragglers] == [(1, "forward")]
    assert not second.path.exists()


def test_a_node_whose_first_is_not_watched_has_a_record_of_its_own(tmp_path):
    now = [1e9]
    alone = Node(tmp_path / "1", 1, lambda: now[0])
    for _ in range(40):
        now[0] += 10.0
        alone.train(20, 0.5, now[0])
    alone.watcher.finish(0)
    record = load_record(alone.path)
    assert [event.what for event in record.events] == ["alone", "end"]
    assert record.windows


def test_nothing_listens_on_a_single_node(tmp_path):
    header = Header(id="x", stash_version="1", began=1e9, job="train.py")
    watcher = NodeWatcher(
        tmp_path, RecordWriter(tmp_path / "r.watch.jsonl", header), header, WatchOptions()
    )
    watcher.poll()
    assert not list(tmp_path.glob("invitation*"))


def test_a_node_that_ends_after_node_0_leaves_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr(watcher, "_ENDS_SECONDS", 0.1)
    now = [1e9]
    first, second = (Node(tmp_path / str(node), node, lambda: now[0]) for node in (0, 1))
    first.watcher.poll()
    second.watcher.poll()
    invitation = Invitation.load(RunFolder(first.folder))
    assert invitation.write_meeting(RunFolder(second.folder))
    second.train(20, 0.7, now[0])
    time.sleep(0.05)
    first.train(20, 0.5, now[0])
    first.watcher.finish(0)
    time.sleep(0.05)
    for _ in range(3):
        second.train(20, 0.7, now[0])
    second.watcher.finish(0)
    assert not second.path.exists()


def test_what_the_machine_of_a_node_did_that_is_gone_is_in_no_later_window(tmp_path):
    team = NodeTeam(tmp_path, Collector(tmp_path), lambda what, text: None, lambda: 0.0)
    team._handle_news(NodeNews(node=1, machine=MachineState(node=1, others_cores=3.0)))
    assert [each.others_cores for each in team.machines.values()] == [3.0]
    team._handle_news(NodeNews(node=1, ended=True))
    assert team.machines == {}


def test_nodes_that_begin_at_once_in_one_folder_each_have_a_record(tmp_path, monkeypatch):
    """As under ``srun`` in a home on NFS: to both the name seemed free, and one's ranks were never started."""
    monkeypatch.chdir(tmp_path)
    names = iter([Path("train.watch.jsonl"), Path("train-2.watch.jsonl")])
    RecordWriter(
        tmp_path / "train.watch.jsonl", Header(id="a", stash_version="1", began=1e9, job="train.py")
    )
    monkeypatch.setattr("stash.monitor.watch_start.output_file", lambda *given: next(names))
    _, target = begin_watch(tmp_path, "train.py", (), 2, WatchCommandOptions())
    assert target == Path("train-2.watch.jsonl")
