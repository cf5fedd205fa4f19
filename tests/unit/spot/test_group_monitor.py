"""What the head of a rented gang makes of what nodes say, by a clock that is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stash.spot.sync.group_monitor import MISSED_SECONDS, GangOrders, GroupMonitor, GroupPhase
from stash.spot.sync.rendezvous import Noticeboard


class _World:
    """A monitor, its nodes' beats and what it emitted."""

    def __init__(self, least: int = 1, most: int = 2) -> None:
        self.events: list[tuple[str, str]] = []
        self.facts: list[dict[str, Any]] = []
        self.now, self.silent = 100.0, set[str]()
        self.monitor = GroupMonitor(least, most, self._tell, self.now)
        self.meetings = 0

    def _tell(self, what: str, who: str, **facts: Any) -> None:
        self.events.append((what, who))
        self.facts.append({"what": what, **facts})

    def on_message(self, what: str, who: str, **facts: Any) -> None:
        self.monitor.on_message({"what": what, "who": who, **facts}, self.now)

    def up(self, *names: str) -> None:
        for name in names:
            self.on_message("up", name)

    def group(self, *names: str) -> None:
        self.meetings += 1
        for name in names:
            self.on_message(
                "started", name, round=self.monitor.orders.round, meeting=str(self.meetings), size=len(names)
            )

    def ended(self, name: str, code: int = 1, script: bool = True, why: str = "ValueError: no data") -> None:
        self.on_message("ended", name, code=code, script=script, why=why, round=self.monitor.orders.round)

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now += 1.0
            beats = {who: int(self.now) for who in self.monitor.nodes if who not in self.silent}
            self.monitor.look(beats, self.now)

    def last(self) -> dict[str, Any]:
        return self.facts[-1]


@pytest.fixture
def world() -> _World:
    found = _World()
    found.up("worker1", "worker2")
    found.group("worker1", "worker2")
    found.wait(1)
    return found


def test_a_group_is_formed_once_all_of_it_are_there() -> None:
    world = _World()
    world.up("worker1", "worker2")
    world.on_message("started", "worker1", round=1, meeting="1", size=2)
    world.wait(5)
    assert world.events == []
    world.on_message("started", "worker2", round=1, meeting="1", size=2)
    world.wait(1)
    assert world.events == [("joined", "worker1"), ("joined", "worker2"), ("formed", "worker1, worker2")]
    assert world.last()["size"] == 2


def test_who_does_not_beat_is_lost_and_who_comes_joins_the_next_group(world: _World) -> None:
    world.silent = {"worker2"}
    world.wait(MISSED_SECONDS - 2)
    assert "worker2" in world.monitor.nodes
    world.wait(5)
    assert world.events[-1] == ("lost", "worker2")
    world.up("worker3")
    world.group("worker1", "worker3")
    world.wait(1)
    assert world.events[-2:] == [("joined", "worker3"), ("formed", "worker1, worker3")]
    assert world.monitor.orders.round == 1


def test_where_torchrun_puts_no_group_together_all_begin_again_and_at_last_it_is_given_up(world: _World) -> None:
    world.up("worker3")  # which is never let in
    world.monitor.most = 3
    world.wait(115)
    assert world.monitor.orders.round == 1
    world.wait(10)
    assert (world.events[-1], world.monitor.orders.round) == (("restarted", ""), 2)
    world.wait(400)
    assert world.last()["what"] == "failed"
    assert "put no group of worker1, worker2, worker3 together" in world.last()["why"]
    assert world.monitor.orders.over


def test_without_enough_nodes_none_is_blamed() -> None:
    world = _World(least=2)
    world.up("worker1")
    world.wait(600)
    assert world.events == []


def test_a_script_that_fails_though_no_node_left_has_failed_of_itself(world: _World) -> None:
    world.ended("worker1", why="")
    world.ended("worker2")
    world.wait(9)
    assert world.last()["what"] == "formed"
    world.wait(5)
    assert world.last() == {
        "what": "failed",
        "why": "the script failed on worker2, 4 times in a row: ValueError: no data",
        "exit_code": 1,
    }


@pytest.mark.parametrize("excuse", ["saved", "gone"])
def test_a_script_that_saved_or_lost_somebody_is_started_again(world: _World, excuse: str) -> None:
    world.up("worker3")
    if excuse == "saved":
        world.on_message("saved", "worker1", word=None, seconds=1.0)
    else:
        world.on_message("left", "worker2")
    world.ended("worker1")
    world.wait(12)
    assert (world.last()["what"], world.monitor.orders.round) == ("restarted", 2)
    world.ended("worker1")
    world.wait(12)
    assert world.last()["what"] == "failed"  # this time nothing had happened


def test_torchrun_that_fails_by_itself_is_started_again(world: _World) -> None:
    world.ended("worker1", script=False, why="")
    world.wait(12)
    assert world.monitor.orders.round == 2
    world.on_message("ended", "worker2", code=1, script=True, why="late", round=1)  # of the round before
    world.group("worker1", "worker2")
    world.wait(30)
    assert world.last()["what"] == "formed"


def test_one_script_that_ends_is_the_end_whoever_waits_to_be_let_in(world: _World) -> None:
    world.up("worker3")
    world.ended("worker3", script=False)
    world.ended("worker1", code=0)
    world.wait(3)
    assert world.monitor.phase is not GroupPhase.OVER
    world.ended("worker2", code=0)
    world.wait(1)
    assert world.last() == {"what": "ended", "reason": "the script ended"}


def test_a_notice_asks_all_nodes_for_a_checkpoint_and_its_answer_reaches_all(world: _World) -> None:
    world.on_message("listens", "worker1")
    world.on_message("notice", "worker2", seconds=120.0, word="w1")
    assert world.monitor.orders == GangOrders(listens=True, wanted="w1")
    world.on_message("saved", "worker1", word="w1", seconds=2.0)
    assert world.monitor.orders.saved == ("w1", 2.0)
    world.on_message("left", "worker2")
    world.wait(1)
    assert [what for what, _ in world.events[-3:]] == ["notice", "saved", "left"]
    assert world.monitor.nodes == ("worker1",)


def test_who_has_notice_and_ends_is_no_failure(world: _World) -> None:
    world.on_message("notice", "worker2", seconds=120.0, word="w1")
    world.ended("worker2")
    world.wait(20)
    assert world.monitor.orders.round == 1


def test_a_wish_to_stop_is_a_checkpoint_and_then_the_end(world: _World) -> None:
    world.on_message("listens", "worker1")
    world.monitor.stop(world.now)
    word = world.monitor.orders.wanted
    world.wait(5)
    assert world.monitor.phase is not GroupPhase.OVER
    world.on_message("saved", "worker1", word=word, seconds=2.0)
    assert world.last() == {"what": "ended", "reason": "interrupted"}
    assert world.monitor.orders.over


@pytest.mark.parametrize("listens", [True, False])
def test_a_wish_to_stop_is_not_waited_for_without_end(world: _World, listens: bool) -> None:
    if listens:
        world.on_message("listens", "worker1")
    world.monitor.stop(world.now)
    assert (world.monitor.phase is GroupPhase.OVER) is not listens
    world.wait(92)
    assert world.monitor.phase is GroupPhase.OVER


def test_a_head_that_no_node_joins_ends() -> None:
    world = _World()
    world.wait(1799)
    assert world.events == []
    world.wait(3)
    assert world.last() == {"what": "ended", "reason": "no node was there for 30 min"}


class _Store(dict[str, bytes]):
    def add(self, key: str, amount: int) -> int:
        self[key] = str(int(self.get(key, b"0")) + amount).encode()
        return int(self[key])

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)


def _boards() -> tuple[_Store, Noticeboard, Noticeboard]:
    store = _Store()
    return store, Noticeboard(store, "a"), Noticeboard(store, "a")  # type: ignore[arg-type]


def test_the_board_brings_messages_once_orders_whole_and_leaves_out_what_is_none() -> None:
    store, head, node = _boards()
    stranger = Noticeboard(store, "b")  # type: ignore[arg-type]
    assert node.orders() == GangOrders()
    node.post("up", "worker1")
    stranger.post("ended", "worker1", code=0)
    store.add("stash/messages", 1)
    assert head.news() == [{"what": "up", "who": "worker1"}]  # the third is numbered, and not written yet
    store.set("stash/messages/3", json.dumps({"what": "left", "who": "worker1"}))
    node.post("left", "worker1")
    assert head.news() == [{"what": "left", "who": "worker1"}]
    orders = GangOrders(round=2, listens=True, wanted="w", saved=(None, 1.5), over=True)
    head.order(orders)
    stranger.order(GangOrders())
    assert node.orders() == GangOrders()
    head.order(orders)
    assert node.orders() == orders
    assert (head.pulse("worker1"), head.pulse("worker2")) == (0, 0)
    node.beat("worker1")
    assert head.pulse("worker1") > 0


def test_what_was_on_the_board_before_counts_for_nothing_when_it_is_put_back_there_or_elsewhere() -> None:
    store, head, node = _boards()
    head.order(GangOrders(round=1, over=True))
    node.beat("worker1")
    old = dict(store)
    head.order(GangOrders(round=2))
    node.beat("worker1")
    node.post("up", "worker1")
    assert node.orders() == GangOrders(round=2)
    beat = head.pulse("worker1")
    store.update(old)
    store["stash/pulse/worker2"] = old["stash/pulse/worker1"]
    assert node.orders() == GangOrders(round=2)
    assert (head.pulse("worker1"), head.pulse("worker2")) == (beat, 0)
    assert len(head.news()) == 1
    store.add("stash/messages", 1)
    store["stash/messages/2"] = store["stash/messages/1"]
    assert head.news() == []


def test_the_secret_is_nowhere_in_the_store() -> None:
    store = _Store()
    board = Noticeboard(store, "0123456789abcdef")  # type: ignore[arg-type]
    board.post("up", "worker1")
    board.beat("worker1")
    board.order(GangOrders())
    assert store
    assert not any("0123456789abcdef" in key or b"0123456789abcdef" in value for key, value in store.items())
