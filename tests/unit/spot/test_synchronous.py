"""What a synchronous rehearsal does about nodes that go, on agents that are only a list of what was asked of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from stash.core.errors import JobError, StashError
from stash.lab.testbed.revoke import Revocation, moments
from stash.spot.emulate.hosts import MARK, ThisMachine, leftovers
from stash.spot.records.runs import SpotEvent
from stash.spot.sync import checkpoint_request
from stash.spot.sync import rehearse_sync as module
from stash.spot.sync.agents import NODE, SyncOrders, TorchrunAgents, TrainingGroup, torchrun
from stash.spot.sync.rehearse_sync import Listeners, SyncRehearsal


class _Agents:
    """torchrun as it should be, or as ``sees`` has it until all begin again: an entry a look, the last for ever."""

    def __init__(self, *sees: set[str]) -> None:
        self.sees, self.asked, self.codes = list(sees), list[tuple[str, str]](), dict[str, int]()
        self.meeting, self.broken = 0, True

    def start(self) -> None:
        self.asked.append(("start", ""))

    def begin(self) -> None:
        self.asked.append(("begin", ""))
        if self.sees != [set()]:
            self.sees, self.codes = [], {}

    def launch(self, name: str) -> None:
        self.asked.append(("launch", name))
        self.meeting += 1

    def ask(self, name: str) -> None:
        self.asked.append(("ask", name))
        self.meeting += 1

    def end(self, name: str) -> None:
        self.asked.append(("end", name))

    def vanish(self, name: str) -> None:
        self.asked.append(("vanish", name))

    def ended(self) -> dict[str, int]:
        return self.codes

    def group(self, present: Collection[str]) -> TrainingGroup | None:
        names = (
            frozenset(present) if not self.sees else frozenset(self.sees.pop(0) if self.sees[1:] else self.sees[0])
        )
        return TrainingGroup(names, (str(self.meeting),)) if names and names <= set(present) else None

    def printed(self) -> list[tuple[str, str]]:
        return [("worker1", "epoch 1")]

    def script_failed(self, name: str) -> bool:
        return self.broken

    def complaint(self, name: str) -> str:
        return "ValueError: no data"

    def close(self) -> None:
        self.asked.append(("close", ""))


class _Saving(_Agents):
    """Their script saves a while after it is asked to."""

    def __init__(self, folder: Path, after: float) -> None:
        super().__init__()
        self.folder, self.after, self.asked_at = folder, after, 0.0

    def printed(self) -> list[tuple[str, str]]:
        word = checkpoint_request.asked(self.folder)
        if word is not None:
            self.asked_at = self.asked_at or time.monotonic()
            if time.monotonic() - self.asked_at >= self.after:
                (self.folder / "shard0-00000000.ckpt").touch()
                checkpoint_request.saved(self.folder, checkpoint_request.SavedNote(word, 0.0))
        return []


def _orders(folder: Path, *nodes: str, least: int = 1) -> SyncOrders:
    return SyncOrders(("train.py",), nodes, least, 2, folder, 5.0)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL", 0.005)
    monkeypatch.setattr(module, "_SETTLE", 0.01)
    monkeypatch.setattr(module, "_PATIENCE_EACH", 0.0)


def _rehearsal(folder: Path, agents: _Agents, *taken: Revocation, patience: float = 60.0) -> SyncRehearsal:
    orders = _orders(folder, "worker1", "worker2")
    events: list[SpotEvent] = []
    listeners = Listeners(events.append, lambda name, line: None)
    types = {"worker1": "a", "worker2": "b"}
    return SyncRehearsal(orders, agents, types, moments(taken), listeners, patience)


def _pairs(rehearsal: SyncRehearsal) -> list[tuple[str, str]]:
    return [(each.what, each.who) for each in rehearsal.events]


def test_a_noticed_node_is_asked_to_go_and_replaced_when_it_is_gone(tmp_path: Path) -> None:
    agents = _Agents()
    rehearsal = _rehearsal(tmp_path, agents, Revocation("worker2", 0.0, 0.05))
    rehearsal.run(0.2)
    assert agents.asked == [
        ("start", ""), ("launch", "worker1"), ("launch", "worker2"), ("ask", "worker2"), ("vanish", "worker2"),
        ("launch", "worker3"), ("close", ""),
    ]  # fmt: skip
    assert _pairs(rehearsal) == [
        ("formed", "worker1, worker2"), ("notice", "worker2"), ("not saved", "worker2"), ("formed", "worker1"),
        ("vanished", "worker2"), ("wanted", "worker3"), ("formed", "worker1, worker3"),
    ]  # fmt: skip
    (setback,) = rehearsal.setbacks
    assert (setback.gone, setback.notice, setback.successor) == ("worker2", 0.05, "worker3")
    assert setback.again_seconds is not None
    assert setback.whole_seconds is not None
    assert setback.again_seconds < 0.05 <= setback.whole_seconds
    assert setback.checkpoint is not None
    assert setback.checkpoint.seconds is None
    assert setback.checkpoint.why == "the script saves nothing there with stash.spot.checkpoint"
    assert rehearsal.reason == "time is up"


def test_all_of_a_type_vanish_at_once(tmp_path: Path) -> None:
    agents = _Agents()
    rehearsal = _rehearsal(tmp_path, agents, Revocation("b", 0.0))
    rehearsal.run(0.1)
    assert agents.asked[3:5] == [("vanish", "worker2"), ("launch", "worker3")]
    assert (rehearsal.setbacks[0].notice, rehearsal.setbacks[0].checkpoint) == (None, None)


def test_a_noticed_node_trains_until_the_checkpoint_it_asks_for_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_request, "SHUTDOWN_SECONDS", 0.0)
    checkpoint_request.listen(tmp_path)
    agents = _Saving(tmp_path, 0.1)
    rehearsal = _rehearsal(tmp_path, agents, Revocation("worker2", 0.0, 60.0))
    rehearsal.run(0.3)
    assert _pairs(rehearsal)[:4] == [
        ("formed", "worker1, worker2"), ("notice", "worker2"), ("saved", "worker2"), ("formed", "worker1"),
    ]  # fmt: skip
    (setback,) = rehearsal.setbacks
    assert setback.checkpoint is not None
    assert setback.checkpoint.seconds is not None
    assert 0.1 <= setback.checkpoint.seconds <= setback.at
    assert setback.lost_seconds < setback.at


def test_a_node_that_vanishes_while_it_is_asked_is_gone_once(tmp_path: Path) -> None:
    checkpoint_request.listen(tmp_path)
    agents = _Agents()
    with_notice = Revocation("worker2", 0.0, 0.2), Revocation("worker2", 0.05)
    rehearsal = _rehearsal(tmp_path, agents, *with_notice)
    rehearsal.run(0.4)
    assert agents.asked.count(("vanish", "worker2")) == 1
    assert [each.gone for each in rehearsal.setbacks] == ["worker2"]


def test_only_work_since_the_newest_checkpoint_is_done_again(tmp_path: Path) -> None:
    written = tmp_path / "shard0-00000000.ckpt"
    written.touch()
    os.utime(written, (time.time() - 1000, time.time() - 1000))
    rehearsal = _rehearsal(tmp_path, _Agents(), Revocation("worker2", 0.1))
    rehearsal.run(0.2)
    assert 0.1 <= rehearsal.setbacks[0].lost_seconds < 10  # since the group was started: the rest was lost before
    written.touch()
    rehearsal = _rehearsal(tmp_path, _Agents(), Revocation("worker2", 0.1))
    os.utime(written, (time.time() + 1000, time.time() + 1000))
    rehearsal.run(0.2)
    assert rehearsal.setbacks[0].lost_seconds == 0


def test_a_group_that_torchrun_leaves_apart_is_started_again(tmp_path: Path) -> None:
    agents = _Agents({"worker1", "worker2"}, {"worker1"})
    rehearsal = _rehearsal(tmp_path, agents, patience=0.05)
    rehearsal.run(0.3)
    assert agents.asked[3:8] == [
        ("end", "worker1"), ("end", "worker2"), ("begin", ""), ("launch", "worker1"), ("launch", "worker2"),
    ]  # fmt: skip
    assert rehearsal.restarts == 1
    assert _pairs(rehearsal)[-1] == ("formed", "worker1, worker2")


def test_agents_that_fail_by_themselves_are_started_again(tmp_path: Path) -> None:
    agents = _Agents({"worker1", "worker2"}, {"worker1"})
    agents.codes, agents.broken = {"worker1": 1}, False
    rehearsal = _rehearsal(tmp_path, agents)
    rehearsal.run(0.1)
    assert rehearsal.restarts == 1
    assert rehearsal.reason == "time is up"


def test_a_group_that_never_comes_together_is_said_so(tmp_path: Path) -> None:
    agents = _Agents(set())
    rehearsal = _rehearsal(tmp_path, agents, patience=0.01)
    with pytest.raises(StashError, match="no group of worker1, worker2 together, 4 times in a row"):
        rehearsal.run(60)
    assert agents.asked[-1] == ("close", "")
    assert rehearsal.began is None


def test_the_end_of_the_script_is_the_end(tmp_path: Path) -> None:
    agents = _Agents()
    agents.codes = {"worker2": 1, "worker1": 0}  # worker2 waited to be let in
    rehearsal = _rehearsal(tmp_path, agents)
    rehearsal.run(60)
    assert rehearsal.reason == "the script ended"


def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    agents = _Agents()
    agents.codes = {"worker2": 1}
    with pytest.raises(JobError, match="the script failed on worker2: ValueError: no data"):
        _rehearsal(tmp_path, agents).run(60)


def test_torchrun_is_asked_for_a_range_of_nodes(tmp_path: Path) -> None:
    words = torchrun(_orders(tmp_path, "worker1", "worker2", "worker3", least=2), "head:1", "x")
    assert "--nnodes=2:3" in words
    assert "--max-restarts=2" in words
    assert words[-1] == "train.py"


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[TorchrunAgents]:
    made = TorchrunAgents(_orders(tmp_path, "worker1", "worker2"), tmp_path, ThisMachine(tmp_path))
    yield made
    made.close()
    assert leftovers(tmp_path) == []


def _rank(folder: Path, node: str, nodes: int, port: str) -> subprocess.Popen[bytes]:
    variables = {MARK: str(folder), NODE: node, "GROUP_WORLD_SIZE": str(nodes), "MASTER_PORT": port}
    rank = subprocess.Popen((sys.executable, "-c", "import time; time.sleep(60)"), env={**os.environ, **variables})
    # The kernel has a program's environment to show a moment after it began the program.
    while not Path(f"/proc/{rank.pid}/environ").read_bytes():
        time.sleep(0.001)
    return rank


def test_who_trains_together_is_read_from_what_torchrun_started(tmp_path: Path, agents: TorchrunAgents) -> None:
    ranks = [_rank(tmp_path, "worker1", 2, "1")]
    assert agents.group({"worker1", "worker2"}) is None
    ranks.append(_rank(tmp_path, "worker2", 2, "1"))
    found = agents.group({"worker1", "worker2"})
    assert found is not None
    assert found.nodes == {"worker1", "worker2"}
    assert agents.group({"worker1"}) is None
    ranks.append(_rank(tmp_path, "worker3", 1, "2"))
    again = agents.group({"worker1", "worker3"})
    assert again is not None
    assert again.nodes == {"worker3"}
    assert again.meeting != found.meeting
    agents.close()
    assert [each.wait() for each in ranks] == [-9, -9, -9]


def test_lines_come_whole_and_once_and_the_error_is_the_scripts(tmp_path: Path, agents: TorchrunAgents) -> None:
    (tmp_path / "worker1.out").write_text("epoch 1\nepo")
    assert agents.printed() == [("worker1", "epoch 1")]
    (tmp_path / "worker1.out").write_text("epoch 1\nepoch 2\n")
    assert agents.printed() == [("worker1", "epoch 2")]
    (tmp_path / "worker1.err").write_text(
        "[rank0]: Traceback\n[rank0]: ValueError: no data\ntorch.distributed.elastic.x.ChildFailedError: \n======\n"
    )
    assert agents.complaint("worker1") == "ValueError: no data"
    assert agents.script_failed("worker1")
    (tmp_path / "worker1.err").write_text("torch.distributed.DistStoreError: wait timeout after 60000ms\n")
    assert not agents.script_failed("worker1")
