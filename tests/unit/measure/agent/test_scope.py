"""Collectives under each scope: real, counted, or what a group of one would do."""

from __future__ import annotations

import types

import pytest
import torch

from stash.measure.agent.wraps import scope as scope_module
from stash.measure.agent.wraps.scope import _wrap_collective, payload_bytes, scope
from stash.measure.agent.wraps.waits import ledger


class Group:
    """A process group of four of which this is rank 1."""

    group_name = "four"

    def rank(self):
        return 1

    def size(self):
        return 4


@pytest.fixture
def reached():
    """Names of the real collectives that were called."""
    return []


@pytest.fixture
def c10d(monkeypatch, reached):
    """A stand-in for ``distributed_c10d``, wrapped."""

    def all_reduce(tensor, op=None, group=None, async_op=False):
        reached.append("all_reduce")

    def scatter(tensor, scatter_list=None, src=0, group=None, async_op=False):
        reached.append("scatter")

    def broadcast(tensor, src=0, group=None, async_op=False):
        reached.append("broadcast")

    def broadcast_object_list(object_list, src=0, group=None):
        reached.append("broadcast_object_list")

    module = types.ModuleType("c10d")
    for function in (all_reduce, scatter, broadcast, broadcast_object_list):
        setattr(module, function.__name__, _wrap_collective(function, function.__name__))
    monkeypatch.setattr("stash.measure.agent.wraps.scope.ranks_of", lambda group: (0, 1, 2, 3))
    scope.forget()  # what other tests have counted
    scope.name = "self"
    yield module
    scope.name = "world"
    scope.node_ranks = ()
    scope.forget()


def test_what_a_rank_hands_to_all_others_is_real_under_every_scope_and_weights_are_not(
    c10d, reached
):
    # GIVEN steps that broadcast a batch and the weights
    batch, weights = torch.ones(2), torch.ones(2)
    scope.name, scope.weights = "world", frozenset({scope_module.storage_of(weights)})
    for tensor in (batch, weights):
        c10d.broadcast(tensor, group=Group())
    scope.count_step()
    scope.always_real = frozenset(scope.hands_out_data())
    assert scope.always_real == {"broadcast"}
    # WHEN exchange is switched off THEN the batch still comes, as none of Stash's own collectives, and weights do not
    scope.name = "self"
    reached.clear()
    stood_in = scope.standing_in
    c10d.broadcast(batch, group=Group())
    assert scope.standing_in == stood_in
    c10d.broadcast(weights, group=Group())
    c10d.all_reduce(torch.ones(2), group=Group())
    assert scope.standing_in > stood_in  # which is work of Stash's
    assert reached == ["broadcast"]
    scope.weights = scope.always_real = frozenset()


@pytest.mark.parametrize(
    ("name", "value", "steps", "found"),
    [
        ("broadcast", torch.ones(2), 2, True),
        (
            "broadcast",
            torch.ones(2),
            20,
            False,
        ),  # once an epoch, as states of random generators are
        ("broadcast_object_list", [None], 20, True),
    ],
)
def test_tensors_that_are_synchronised_now_and_then_are_no_batches(c10d, name, value, steps, found):
    scope.name = "world"
    getattr(c10d, name)(value, group=Group())
    for _ in range(steps):
        scope.count_step()
    assert scope.hands_out_data() == ([name] if found else [])


def test_collectives_are_counted_by_name_but_not_stashs_own(c10d, reached):
    scope.name = "world"
    for _ in range(2):
        c10d.all_reduce(torch.ones(1), group=Group())
    with scope.bypass():
        c10d.scatter(torch.ones(1), group=Group())
    assert reached == ["all_reduce", "all_reduce", "scatter"]
    assert scope.issued == {"all_reduce": 2}
    assert scope.sent == {"all_reduce": 8}
    assert set(scope.used) == {"four"}


@pytest.mark.parametrize(("node", "beyond"), [((0, 1), ["scatter"]), ((0, 1, 2, 3), [])])
def test_what_cannot_be_confined_matters_only_to_groups_that_reach_beyond_the_node(
    c10d, node, beyond
):
    scope.name, scope.node_ranks = "world", node
    for collective in (c10d.all_reduce, c10d.scatter):
        collective(torch.ones(1), group=Group())
    assert scope.list_beyond_node() == beyond


def test_ranks_of_a_group_that_spans_jobs_are_not_taken_for_this_jobs(c10d, reached, monkeypatch):
    # GIVEN a group of ranks 0 to 3, of which another job has some; this job's 0 to 3 are on this node
    notes = []
    monkeypatch.setattr("stash.measure.agent.private.spans_several_jobs", lambda group: True)
    monkeypatch.setattr("stash.measure.agent.script.note", notes.append)
    scope.name, scope.node_ranks = "world", (0, 1, 2, 3)
    for _ in range(2):
        c10d.all_reduce(torch.ones(1), group=Group())
    # THEN it is said once, it may lie anywhere, and nothing of it is left under scope node
    assert notes == [scope_module._SEVERAL_JOBS.format(name="four", size=4)]
    assert scope.reaches(Group())
    assert scope.list_beyond_node() == []
    scope.name = "node"
    reached.clear()
    c10d.all_reduce(torch.ones(1), group=Group())
    assert not reached
    scope.of_several_jobs.clear()


def test_reset_counts_forget_numbers_and_not_what_was_seen(c10d):
    scope.name = "world"
    c10d.scatter(torch.ones(1), group=Group())
    scope.reset_counts()
    assert not scope.issued
    assert scope.list_beyond_node() == ["scatter"]
    scope.forget()
    assert scope.list_beyond_node() == []


def test_a_collective_is_as_large_as_the_largest_thing_it_is_given():
    part, whole = torch.zeros(2), torch.zeros(8)
    operation = types.SimpleNamespace(tensor=whole)
    assert payload_bytes([part, None, 0]) == 8
    assert payload_bytes([part, whole]) == 32
    assert payload_bytes([[part] * 4, part]) == 32
    assert payload_bytes([[[part, part], [part]], part]) == 24
    assert payload_bytes([[operation, operation]]) == 64
    assert payload_bytes([]) == 0


def test_split_sizes_are_handed_on_as_rows_of_experts(monkeypatch):
    # this rank, of four, sends 2 rows to each and gets 9, which go back: its experts compute 9
    def all_to_all_single(
        output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False
    ):
        return None

    monkeypatch.setattr("stash.measure.agent.wraps.scope.ranks_of", lambda group: (0, 1, 2, 3))
    call = _wrap_collective(all_to_all_single, "all_to_all_single")
    ledger.begin()
    try:
        sizes, got = [2, 2, 2, 2], [1, 5, 0, 3]
        call(torch.empty(9), torch.ones(8), got, sizes, group=Group())
        call(torch.empty(8), torch.ones(9), sizes, got, group=Group())
        # as many for each: nothing is known to be uneven
        call(torch.empty(8), torch.ones(8), group=Group())
        ledger.end(steps=1)
        assert ledger.last_block.rows == {"four": 9}
        assert ledger.last_block.uses["four", "all_to_all_single"].calls == 3
    finally:
        ledger.counts = False
        scope.forget()
        ledger.totals.clear()
        ledger.steps = 0
