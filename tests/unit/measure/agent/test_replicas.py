"""DistributedDataParallel under each scope, in a world of one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from stash.measure.agent import private
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.groups import NodePart
from stash.measure.agent.wraps.scope import scope


@pytest.fixture(scope="module")
def world():
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def wrapped(world) -> Iterator[type[DistributedDataParallel]]:
    """A class of its own with the wrap, so that PyTorch's stays as it is."""

    class Wrapped(DistributedDataParallel):
        pass

    replicas.wrap_ddp(SimpleNamespace(DistributedDataParallel=Wrapped))
    before = list(replicas._made)
    yield Wrapped
    replicas._made[:] = before
    scope.name = "world"


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


def test_under_scope_self_nothing_is_exchanged_and_afterwards_all_is_as_before(wrapped):
    ddp = wrapped(model())
    assert replicas.list_modules() == [ddp]
    replicas.set_scope("self")
    assert not ddp.require_backward_grad_sync
    assert not ddp.broadcast_buffers
    with ddp.no_sync():
        pass
    replicas.set_scope("world")
    assert ddp.require_backward_grad_sync
    assert ddp.broadcast_buffers


def test_a_script_that_accumulates_keeps_its_own_choice_under_scope_world(wrapped):
    ddp = wrapped(model())
    with ddp.no_sync():
        assert not ddp.require_backward_grad_sync
    assert ddp.require_backward_grad_sync


@pytest.fixture
def elsewhere(monkeypatch):
    """This rank's node holds none of the group: all of it reaches beyond."""
    monkeypatch.setattr(scope, "node_ranks", (7,))


def test_scope_node_exchanges_over_what_of_the_group_lies_there_and_no_hook_is_left_on(
    wrapped, elsewhere, monkeypatch
):
    ddp, part = wrapped(model()), dist.new_group([0])
    whole = ddp.process_group
    monkeypatch.setattr(scope, "parts", {whole.group_name: NodePart(part, (0,))})
    assert replicas.obstacle_to_node_scope() is None
    reached = []
    for name in ("node", "world"):
        replicas.set_scope(name)
        before = private.sequence_numbers()
        ddp(torch.randn(5, 4)).sum().backward()
        after = private.sequence_numbers()
        reached.append({group for group, count in after.items() if count != before[group]})
    assert reached == [{part.group_name}, {whole.group_name}]
    assert ddp.process_group is whole
    ddp.register_comm_hook(None, lambda state, bucket: None)  # fails if there was one
    dist.destroy_process_group(part)


def test_a_rank_that_is_its_groups_only_one_on_a_node_exchanges_nothing(wrapped, elsewhere):
    ddp = wrapped(model())
    replicas.set_scope("node")
    assert not ddp.require_backward_grad_sync
    assert not ddp.broadcast_buffers
    replicas.set_scope("world")
    assert ddp.require_backward_grad_sync
    assert ddp.broadcast_buffers


def test_a_group_inside_the_node_is_exchanged_over_whole(wrapped, monkeypatch):
    monkeypatch.setattr(scope, "node_ranks", (0, 1))
    ddp = wrapped(model())
    whole = ddp.process_group
    replicas.set_scope("node")
    assert ddp.require_backward_grad_sync
    assert ddp.process_group is whole
    replicas.set_scope("world")


def test_a_builtin_hook_cannot_be_confined(wrapped):
    ddp = wrapped(model())
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    assert "built-in C++ communication hook" in (replicas.obstacle_to_node_scope() or "")


def test_gradients_are_told_bucket_by_bucket(wrapped):
    ddp = wrapped(model())
    ddp(torch.randn(5, 4)).sum().backward()
    sizes, named = replicas.gradient_facts()
    assert sum(sizes) == sum(p.numel() * 4 for p in ddp.parameters())
    assert [name for name, _ in named] == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_what_is_sent_beside_gradients_and_how_is_known_whatever_the_scope(wrapped, monkeypatch):
    replicas._made.clear()
    assert replicas.exchange_facts() == {}
    ddp = wrapped(torch.nn.BatchNorm1d(4))

    def known(name):
        return replicas.exchange_facts()[name]

    assert (known("buffer_bytes"), known("finds_unused"), known("bucket_view")) == (0, False, False)
    monkeypatch.setattr(replicas, "_whole_group", lambda ddp: SimpleNamespace(size=lambda: 2))
    sent = 2 * 4 * 4 + 8  # mean and variance of four, and how many batches were seen
    assert known("buffer_bytes") == sent
    monkeypatch.setitem(replicas._ordinary, ddp, (True, True, ddp.process_group))
    ddp.broadcast_buffers = False  # as under scope self
    assert known("buffer_bytes") == sent
    monkeypatch.setitem(replicas._ordinary, ddp, (True, False, ddp.process_group))
    assert known("buffer_bytes") == 0
    ddp.find_unused_parameters = ddp.gradient_as_bucket_view = True
    assert (known("finds_unused"), known("bucket_view")) == (True, True)
    ddp.static_graph = True
    assert not known("finds_unused")


def test_a_model_that_is_gone_is_forgotten(wrapped):
    wrapped(model())
    assert replicas.list_modules() == []


def test_what_a_group_has_started_is_counted(world):
    before = private.sequence_numbers()
    dist.all_reduce(torch.ones(1))
    assert sum(private.sequence_numbers().values()) == sum(before.values()) + 1


def test_what_the_job_does_about_its_exchange_is_known_and_what_stash_does_is_not_counted(wrapped):
    replicas._made.clear()
    ddp = wrapped(model())

    def known():
        facts = replicas.exchange_facts()
        return facts["exchange_hook"], facts["skips_exchanges"]

    assert known() == ("", False)
    replicas.set_scope("self")
    with ddp.no_sync():  # nothing is exchanged here anyway, and leaving it restores a False
        pass
    replicas.set_scope("world")
    assert known() == ("", False)
    with ddp.no_sync():
        pass
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    assert known() == ("fp16_compress_hook", True)


def test_a_built_in_hook_is_the_jobs_own_too(wrapped):
    ddp = wrapped(model())
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    assert "FP16_COMPRESS" in replicas.exchange_facts()["exchange_hook"]


class Heads(torch.nn.Module):
    """Of two heads a pass uses one."""

    def __init__(self):
        super().__init__()
        self.heads = torch.nn.ModuleList(torch.nn.Linear(4, 3) for _ in range(2))

    def forward(self, x, head):
        return {"scores": self.heads[head](x)}


def test_passes_of_one_rank_alone_leave_no_unused_parameters_to_the_next_exchange(wrapped):
    ddp = wrapped(Heads(), find_unused_parameters=True)

    def step(head):
        loss = ddp(torch.ones(2, 4), head)["scores"].sum()
        ddp.zero_grad()  # after the forward pass, as many scripts have it
        loss.backward()
        return [each.weight.grad for each in ddp.module.heads]

    for _ in range(2):
        replicas.set_scope("self")
        step(0)
        replicas.set_scope("world")
        unused, used = step(1)
        assert not unused.any()
        assert used.all()
    unused, used = step(1)
    assert unused is None  # only the first exchange found gradients that nobody computed
