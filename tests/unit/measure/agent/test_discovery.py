"""What the leader makes of the ranks' introductions: rungs, parts of process groups, and what is said of the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ranks_in_memory import Seat, SetClock, Table, orders

from stash.core.jsonl import Tail
from stash.core.measured import Rank, Skipped
from stash.measure.agent import private
from stash.measure.agent.runner import discovery
from stash.measure.agent.runner.control import Place
from stash.measure.agent.runner.discovery import Introduction, Ladder
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.wraps.groups import Membership
from stash.measure.agent.wraps.scope import scope
from stash.measure.agent.wraps.sharding import FirstBatch
from stash.measure.protocol.journal import Journal, new_messages
from stash.measure.protocol.messages import JobFacts, LadderChosen, Noted

EVEN = Membership("1", (0, 2, 4, 6), "gloo")


@pytest.fixture(autouse=True)
def nothing_seen() -> object:
    yield
    scope.forget()
    scope.name, scope.node_ranks = "world", ()


def leader(folder: Path, nodes: int = 2, **changes: object) -> OwnRank:
    """Rank 0 of eight, before the ranks have introduced themselves."""
    given = orders(folder, **changes)
    seat = Seat(Table(1), 0)
    seat.place = Place(0, 8, 0, 0, tuple(range(8 // nodes)), nodes)
    rank = OwnRank(given, SetClock(), seat, Journal(given.files))
    rank.clock.watch([torch.device("cpu")])
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))])
    rank.counted_optimizer = SimpleNamespace(optimizer=lambda: optimizer)
    return rank


def introduced(
    nodes: int = 2,
    batches: int = 8,
    groups: tuple[Membership, ...] = (),
    handed_on: tuple[str, ...] = (),
    beyond_node: tuple[str, ...] = (),
    together: int = 1,
) -> list[Introduction]:
    """Eight ranks that read so many different batches; rank 0 tells of the groups, rank 7 of other collectives."""
    return [
        Introduction(
            Rank(rank, rank * nodes // 8, rank % (8 // nodes), "cpu"),
            None,
            groups if rank == 0 else (),
            handed_on if rank == 7 else (),
            beyond_node if rank == 7 else (),
            FirstBatch(
                rank * batches // 8,
                None,
                tuple(range(rank // together * together, (rank // together + 1) * together))
                if together > 1
                else (),
            ),
            0.2,
        )
        for rank in range(8)
    ]


def chosen(
    rank: OwnRank, reports: list[Introduction]
) -> tuple[Ladder, dict[str, str], list[object]]:
    """The ladder, why rungs were skipped, and everything that was published."""
    ladder = discovery._choose_ladder(rank, reports)
    published = new_messages(Tail(rank.orders.files.journal))
    skipped = next(message.skipped for message in published if isinstance(message, LadderChosen))
    return ladder, skipped, published


def test_ranks_with_different_numbers_of_steps_are_named(tmp_path: Path) -> None:
    reports = [replace(each, epoch=40 if each.rank.rank == 5 else 64) for each in introduced()]
    _, _, published = chosen(leader(tmp_path), reports)
    (note,) = [
        message.text
        for message in published
        if isinstance(message, Noted) and "epoch" in message.text
    ]
    assert note.startswith("an epoch has 40 batches on rank 5 and 64 on rank 7:")
    (even := tmp_path / "even").mkdir()
    _, _, published = chosen(leader(even), [replace(each, epoch=64) for each in introduced()])
    assert not [
        message for message in published if isinstance(message, Noted) and "epoch" in message.text
    ]


def test_every_group_across_nodes_is_cut_for_the_rung_node(tmp_path: Path) -> None:
    world = Membership("0", tuple(range(8)), "gloo")
    ladder, _, _ = chosen(leader(tmp_path), introduced(groups=(world, EVEN)))
    assert ladder.rungs == ("solo", "crowd", "node", "cluster")
    assert [part.ranks for part in ladder.parts] == [(0, 1, 2, 3), (4, 5, 6, 7), (0, 2), (4, 6)]


@pytest.mark.parametrize(("rungs", "sentence"), [(("node", "cluster"), True), (("node",), False)])
def test_where_interconnect_and_network_are_kept_apart_their_sum_is_what_is_certain(
    tmp_path: Path, rungs: tuple[str, ...], sentence: bool
) -> None:
    _, _, published = chosen(leader(tmp_path, rungs=rungs), introduced(groups=(EVEN,)))
    assert (
        any(
            "only the sum of interconnect and network" in m.text
            for m in published
            if isinstance(m, Noted)
        )
        is sentence
    )


def test_where_any_rank_hands_data_on_only_the_whole_step_is_measured(tmp_path: Path) -> None:
    ladder, skipped, _ = chosen(leader(tmp_path), introduced(handed_on=("isend",)))
    assert ladder.rungs == ("cluster",)
    assert ladder.whole_only
    assert all(
        "hand data to each other (isend)" in skipped[name] for name in ("solo", "crowd", "node")
    )


def test_where_a_rank_hands_out_batches_no_rank_trains_alone_and_all_do_without_exchange(
    tmp_path: Path,
) -> None:
    reports = introduced(nodes=1)
    reports[3] = replace(reports[3], handed_out=("broadcast_object_list",))
    ladder, skipped, _ = chosen(leader(tmp_path, nodes=1), reports)
    assert ladder.rungs == ("crowd", "node")
    assert ladder.always_real == ("broadcast_object_list",)
    assert not ladder.whole_only
    assert "what every step needs (broadcast_object_list)" in skipped["solo"]


def test_where_parameters_are_divided_among_ranks_only_the_whole_job_is_measured(
    tmp_path: Path,
) -> None:
    # GIVEN DTensors divided among pairs of ranks, whatever each of them reads
    rank = leader(tmp_path, nodes=1, rungs=("solo", "crowd", "node"))
    ladder, skipped, published = chosen(rank, introduced(nodes=1, together=2))
    # THEN no rank is measured alone, and samples are counted for each pair
    assert ladder.rungs == ("node",)
    assert ladder.whole_only
    why = "the model is divided among ranks (replicas: 4, ranks: 8), so one by itself would do another job"
    assert skipped["solo"] == skipped["crowd"] == why
    assert JobFacts(replicas=4) in published


@pytest.mark.parametrize(("first_round", "noted"), [(0, True), (2, False)])
def test_what_runs_before_the_forward_pass_is_noted_by_the_first_launch_that_measures(
    tmp_path: Path, first_round: int, noted: bool
) -> None:
    rank = leader(tmp_path, first_round=first_round)
    published: list[object] = []
    rank.publish = lambda *messages: published.extend(messages)  # type: ignore[method-assign]
    discovery._note_unseen_input(rank, 0.01, 0.02, True)
    assert JobFacts(before_forward=0.5, inputs_placed=True) in published
    assert (
        any(
            "your code between steps takes 10 ms" in m.text
            for m in published
            if isinstance(m, Noted)
        )
        is noted
    )


def test_what_any_rank_calls_across_nodes_may_forbid_the_rung_node(tmp_path: Path) -> None:
    ladder, skipped, _ = chosen(leader(tmp_path), introduced(beyond_node=("all_to_all_single",)))
    assert ladder.rungs == ("solo", "crowd", "cluster")
    assert (
        skipped["node"] == "the script calls all_to_all_single, which cannot be confined to a node"
    )


def test_ranks_that_share_a_replica_cannot_be_started_alone(tmp_path: Path) -> None:
    ladder, _, published = chosen(leader(tmp_path), introduced(batches=4))
    assert ladder.inseparable == (
        "the model is divided among ranks (replicas: 4, ranks: 8), so one by itself would do another job"
    )
    assert JobFacts(replicas=4) in published


@pytest.mark.parametrize(
    ("counts", "left"), [((5, 5), ("node", "cluster")), ((5, 6), ("cluster",))]
)
def test_the_rung_node_is_given_up_where_something_goes_beyond_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, int], left: tuple[str, ...]
) -> None:
    numbers = iter(counts)
    monkeypatch.setattr(private, "sequence_numbers", lambda among: {"0": next(numbers)})
    rank = leader(tmp_path)
    trial = discovery.try_node(rank, ("node", "cluster"))
    for _ in range(2):
        next(trial)
        assert scope.name == "node"
    with pytest.raises(StopIteration) as ended:
        next(trial)
    assert ended.value.value == left
    assert scope.name == "world"
    published = new_messages(Tail(rank.orders.files.journal))
    assert [m.rung for m in published if isinstance(m, Skipped)] == [
        name for name in ("node",) if name not in left
    ]
