"""This rank: what it agrees on, what it tells, and how far its exchange reaches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from ranks_in_memory import Seat, SetClock, Table, orders

from stash.core.jsonl import Tail
from stash.core.measured import Skipped
from stash.measure.agent.runner import control
from stash.measure.agent.runner.control import Control, Place
from stash.measure.agent.runner.discovery import drop_switching
from stash.measure.agent.runner.rank import LoopEnded, LoopEndedError, OwnRank
from stash.measure.agent.wraps.scope import scope
from stash.measure.protocol.journal import Journal, new_messages
from stash.measure.protocol.messages import Noted


def rank_of(tmp_path: Path, seat: Control | None = None) -> OwnRank:
    given = orders(tmp_path)
    return OwnRank(given, SetClock(), seat or Control(given.files), Journal(given.files))


def placed(tmp_path: Path, place: Place) -> OwnRank:
    """A rank at a place of a larger job, of which only its own part is here."""
    rank = rank_of(tmp_path)
    rank.control.place = place
    return rank


def test_a_job_of_one_agrees_with_itself(tmp_path: Path) -> None:
    assert rank_of(tmp_path).agree(3, lambda reports: sum(reports) + 1) == 4


def test_everybody_leaves_where_one_loop_has_ended(tmp_path: Path) -> None:
    with pytest.raises(LoopEndedError):
        rank_of(tmp_path).agree(LoopEnded(), lambda reports: "never asked")


def test_only_the_leader_writes_and_a_note_is_published_once(tmp_path: Path) -> None:
    follower = rank_of(tmp_path, Seat(Table(2), 1))
    follower.note("of a follower")
    leader = rank_of(tmp_path, Seat(Table(2), 0))
    leader.note("once")
    leader.note("once")
    assert new_messages(Tail(leader.orders.files.journal)) == [Noted("once")]


def meeting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[OwnRank]:
    """Both ranks of a job, which share a store."""
    store = torch.distributed.HashStore()
    monkeypatch.setattr(control.private, "default_store", lambda: store)
    return [placed(tmp_path, Place(rank, 2, 0, rank, (0, 1), 1)) for rank in range(2)]


def test_ranks_that_all_take_a_step_go_on_together(tmp_path, monkeypatch) -> None:
    ranks = meeting(tmp_path, monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rank: rank.control.await_others(60.0), ranks))
    assert [(rank.control.stands_apart, rank.place.rank) for rank in ranks] == [
        (False, 0),
        (False, 1),
    ]


def test_a_rank_whose_others_never_step_is_measured_alone_and_who_comes_late_is_not(
    tmp_path, monkeypatch
) -> None:
    # GIVEN a server that steps, and a worker that first does once the server goes on
    server, worker = reversed(meeting(tmp_path, monkeypatch))
    for rank in (server, worker):
        rank.control.await_others(0.0)
        assert rank.control.stands_apart
    # THEN the first of them leads a job of one, and the other is no trainer besides it
    assert server.claim()
    assert server.leads
    assert not worker.claim()
    assert not server.orders.files.list_marked("extra")


def test_work_for_stash_is_no_time_of_the_row_that_the_thread_is_in(tmp_path: Path) -> None:
    rank, seen = rank_of(tmp_path), list[float]()
    rank.ledger.discount = seen.append  # type: ignore[method-assign]
    rank.work_since(rank.clock.now())
    assert seen == [rank.own_seconds]


@pytest.mark.parametrize(
    ("nodes", "asked", "reached"), [(1, "node", "world"), (2, "node", "node"), (2, "self", "self")]
)
def test_the_node_is_the_world_on_one_node(
    tmp_path: Path, nodes: int, asked: str, reached: str
) -> None:
    try:
        placed(tmp_path, Place(0, 2, 0, 0, (0,), nodes)).set_scope(asked)
        assert scope.name == reached
    finally:
        scope.name = "world"


def test_collectives_are_counted_per_step_of_the_whole_world() -> None:
    scope.reset_counts()
    assert scope.per_step(scope.issued) == {}
    for _ in range(4):
        scope.issued["all_reduce"] += 1
        scope.sent["all_reduce"] += 100
        scope.count_step()
    scope.name = "self"
    scope.count_step()
    scope.name = "world"
    assert scope.per_step(scope.issued) == {"all_reduce": 1.0}
    assert scope.per_step(scope.sent) == {"all_reduce": 100.0}
    scope.reset_counts()
    assert scope.per_step(scope.issued) == {}


@pytest.mark.parametrize(("nodes", "top"), [(1, "node"), (2, "cluster")])
def test_without_switching_the_top_of_the_ladder_is_left(
    tmp_path: Path, nodes: int, top: str
) -> None:
    rank = placed(tmp_path, Place(0, 4, 0, 0, (0, 1), nodes))
    left = drop_switching(rank, ("solo", "crowd", top, "warm", "cold"), "it shards")
    assert left == (top, "warm", "cold")
    assert not rank.known.switches
    published = new_messages(Tail(rank.orders.files.journal))
    assert [m.rung for m in published if isinstance(m, Skipped)] == ["solo", "crowd"]
    assert all(
        m.why == "it shards, and this job cannot be started in other sizes" for m in published
    )
