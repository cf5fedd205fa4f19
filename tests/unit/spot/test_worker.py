"""Servers and workers of an asynchronous training, over real sockets."""

import os
import socket
import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import stash.spot
from stash.core.errors import UserError
from stash.spot.train import saved_shards
from stash.spot.train.coordinator import Coordinator
from stash.spot.train.frames import FrameKind, TensorBuffer, drain
from stash.spot.train.ledger import DataLease
from stash.spot.train.samples import SampleOrder
from stash.spot.train.server import (
    ParameterShard,
    RunKeys,
    ShardServer,
    build_model,
    save_model,
    shares,
)
from stash.spot.train.worker import Trainer, UpdateReport, work


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.integers(1, 8))
def test_every_parameter_has_one_home_and_no_server_has_none(sizes, servers):
    named = {f"p{number}": size for number, size in enumerate(sizes)}
    if servers > len(named):
        with pytest.raises(UserError, match=f"take 1 to {len(named)}"):
            shares(named, servers)
        return
    found = shares(named, servers)
    assert sorted(name for own in found for name in own) == sorted(named)
    assert all(found)
    heaviest = max(sum(named[name] for name in own) for own in found)
    assert heaviest <= max(*sizes, 0) + sum(sizes) / servers + len(sizes)


def test_a_link_that_this_end_has_closed_is_a_lost_connection():
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    ours.close()
    theirs.close()
    with pytest.raises(ConnectionError, match="the link was closed"):
        drain(ours)


def test_the_newest_is_read_and_only_two_are_kept(tmp_path):
    for number in range(4):
        saved_shards.save_shard(tmp_path, 1, {"version": number}, b"x" * number)
    found = saved_shards.newest_shard(tmp_path, 1)
    assert (found.facts, found.content, found.skipped) == ({"version": 3}, b"xxx", ())
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "shard1-00000002.ckpt",
        "shard1-00000003.ckpt",
    ]
    assert saved_shards.newest_shard(tmp_path, 0) is None


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda raw: raw[:-1], "is truncated or damaged"),
        (lambda raw: raw[:-1] + b"?", "is truncated or damaged"),
        (lambda raw: raw[:20], "is damaged"),
        (lambda raw: b"", "is damaged"),
        (lambda raw: raw.replace(b'"format": 1', b'"format": 9'), "is from a newer Stash"),
    ],
)
def test_of_a_damaged_one_the_one_before_is_used_and_that_is_said(tmp_path, damage, sentence):
    saved_shards.save_shard(tmp_path, 0, {"version": 1}, b"first")
    path = saved_shards.save_shard(tmp_path, 0, {"version": 2}, b"second")
    path.write_bytes(damage(path.read_bytes()))
    found = saved_shards.newest_shard(tmp_path, 0)
    assert found.content == b"first"
    assert len(found.skipped) == 1
    assert sentence in found.skipped[0]
    assert found.skipped[0].endswith("the one before it, shard0-00000000.ckpt, is used")


def test_if_none_is_whole_training_does_not_quietly_begin_again(tmp_path):
    path = saved_shards.save_shard(tmp_path, 0, {}, b"only")
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(UserError, match="no earlier one is whole; remove"):
        saved_shards.newest_shard(tmp_path, 0)


def test_what_a_killed_save_leaves_is_no_checkpoint_and_goes_with_the_next(tmp_path):
    half = tmp_path / ".shard0-00000000.ckpt.0123abcd.tmp"
    half.write_bytes(b"half")
    assert saved_shards.newest_shard(tmp_path, 0) is None
    saved_shards.save_shard(tmp_path, 0, {}, b"whole")
    assert not half.exists()


def _model():
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    )


def _loss(model, batch):
    return torch.nn.functional.mse_loss(model(batch[0]), batch[1])


def _data():
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(3))
    return torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))


JOB = stash.spot.Job(_model, _loss, lambda params: torch.optim.Adam(params, 0.02), _data, batch=8)


def _plain(updates):
    """What one process makes of the same batches with the same optimizer."""
    model = build_model(JOB).train()
    optimizer = JOB.optimizer(model.parameters())
    order = SampleOrder(64, JOB.seed)
    data = JOB.data()
    for update in range(updates):
        batch = [data[order[number]] for number in range(8 * update, 8 * update + 8)]
        optimizer.zero_grad()
        JOB.loss(model, torch.utils.data.default_collate(batch)).backward()
        optimizer.step()
    return model.state_dict()


KEYS = RunKeys(b"the run's secret", b"the coordinator's")


class _Run:
    """Two servers and a coordinator that lets a worker make some updates."""

    def __init__(self, updates, job=JOB):
        self.job = job
        self.shards = [ParameterShard(job, number, 2) for number in range(2)]
        self.served = [ShardServer(shard, "127.0.0.1", KEYS) for shard in self.shards]
        self.coordinator = Coordinator(2, 8, KEYS.leases)
        for number, server in enumerate(self.served):
            self.coordinator.set_address(number, server.address)
        self._updates = updates

    def train(self, *names):
        for name in names:
            self.coordinator.join(name, 8)
        threads = [threading.Thread(target=self._one, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()

    def _one(self, name):
        trainer = Trainer(self.job, 2, 8)
        work(name, trainer, self, KEYS.run)
        trainer.feed.close()

    def next_lease(self, worker, finished):
        lease = self.coordinator.next_lease(worker, finished)
        if self.coordinator.books().issued >= 8 * self._updates:
            self.coordinator.end(redo=True)
        return lease

    def later(self, worker, most):
        return self.coordinator.later(worker, most)

    def servers(self):
        return self.coordinator.servers()

    def close(self):
        for server in self.served:
            server.close()


def test_one_worker_trains_exactly_as_one_process_would(tmp_path):
    run = _Run(20)
    run.train("a")
    save_model(JOB, [shard.pack() for shard in run.shards], tmp_path / "model.pt")
    run.close()
    trained = torch.load(tmp_path / "model.pt", weights_only=True)
    truth = _plain(20)
    assert trained.keys() == truth.keys()
    for name, value in truth.items():
        torch.testing.assert_close(trained[name], value, msg=name)
    rows, *_ = run.coordinator.take_updates()
    assert [row.staleness for row in rows] == [0] * 20


class _Slow(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Samples that take a while, and say who read them when."""

    def __init__(self):
        self.samples = _data()

    def __len__(self):
        return 64

    def __getitem__(self, number):
        time.sleep(0.002)
        inputs, outputs = self.samples[number]
        facts = torch.tensor([os.getpid(), time.monotonic()], dtype=torch.float64)
        return {"inputs": inputs, "outputs": outputs, "facts": facts}


def _read(samples):
    """The collating of the script's own loader."""
    return {f"all {name}": torch.stack([each[name] for each in samples]) for name in samples[0]}


def _loader_job(reads, seconds):
    """Which notes of each batch by whom and when it was read, and when its update was computed."""

    def loss(model, batch):
        time.sleep(seconds)
        who, when = batch["all facts"][-1].tolist()
        reads.append((who, when, time.monotonic()))
        return _loss(model, (batch["all inputs"], batch["all outputs"]))

    loader = torch.utils.data.DataLoader(_Slow(), batch_size=4, num_workers=2, collate_fn=_read)
    return replace(JOB, loss=loss, data=lambda: loader)


def test_a_slow_data_set_is_read_ahead_by_the_jobs_own_loader_and_not_where_it_is_trained():
    reads = []
    run = _Run(20, _loader_job(reads, 0.1))
    run.train("a")
    run.close()
    assert len({who for who, _, _ in reads}) == 2
    assert os.getpid() not in {who for who, _, _ in reads}
    # Over the border of leases: a batch was there before the update before it had been computed.
    early = [read < computed for (_, _, computed), (_, read, _) in pairwise(reads)]
    assert sum(early) >= len(early) - 2
    issued = run.coordinator.books().issued
    truth = _plain(issued // 8)
    assert len(reads) == issued // 8 >= 10
    for shard in run.shards:
        assert shard.applied.ranges == ((0, issued),)
        for name, value in shard.named_tensors.items():
            torch.testing.assert_close(value.detach(), truth[name], msg=name)


def test_at_the_end_what_nobody_has_begun_was_never_given():
    coordinator = _desk("a", "b")
    first, second = (coordinator.next_lease(name, None) for name in ("a", "b"))
    coordinator.later("a", 2)
    third = coordinator.next_lease("b", _done(second))
    assert third == DataLease(32, 40)
    coordinator.end(redo=True)
    books = coordinator.books()
    # 16 to 32 lies before what b is at
    assert (books.issued, books.waiting, books.out) == (
        40,
        2,
        2,
    )
    coordinator.remove_worker("b")
    assert coordinator.next_lease("a", _done(first)) == DataLease(16, 24)


def test_a_gradient_that_comes_twice_is_applied_once_and_a_part_of_one_never():
    shard = ParameterShard(JOB, 0, 1)
    tray = TensorBuffer(shard.tensors)
    answer = TensorBuffer(shard.tensors)
    tray.fill([torch.ones_like(tensor) for tensor in shard.tensors])
    outcomes = [
        shard.apply_gradients(DataLease(*lease), tray, answer)[0]
        for lease in ((0, 8), (0, 8), (4, 12), (8, 12))
    ]
    assert outcomes == [FrameKind.APPLIED, FrameKind.REPEATED, FrameKind.REFUSED, FrameKind.APPLIED]
    assert shard.version == 2


def test_a_parameter_without_a_gradient_is_left_alone():
    shard = ParameterShard(JOB, 0, 1)
    before = {name: value.clone() for name, value in shard.named_tensors.items()}
    tray = TensorBuffer(shard.tensors)
    tray.fill([None] * len(shard.tensors))
    shard.apply_gradients(DataLease(0, 8), tray, TensorBuffer(shard.tensors))
    assert all(torch.equal(before[name], value) for name, value in shard.named_tensors.items())


def test_a_restarted_server_goes_on_with_its_optimizers_state(tmp_path):
    run = _Run(10)
    run.train("a")
    for shard in run.shards:
        shard.save(tmp_path)
    run.close()
    again = _Run(20)
    for shard in again.shards:
        assert shard.resume(tmp_path) is not None
    again.coordinator.reconcile([shard.applied.ranges for shard in again.shards])
    again.train("b")
    again.close()
    truth = _plain(20)
    for shard in again.shards:
        for name, value in shard.named_tensors.items():
            torch.testing.assert_close(value.detach(), truth[name], msg=name)


def test_a_checkpoint_of_another_fleet_or_model_is_refused(tmp_path):
    ParameterShard(JOB, 0, 2).save(tmp_path)
    with pytest.raises(UserError, match="its servers differ"):
        ParameterShard(JOB, 0, 1).resume(tmp_path)


@pytest.mark.parametrize(
    ("batch", "devices"), [(8, 1), (32, 4), (32, 3)], ids=["in turn", "side by side", "unevenly"]
)
def test_a_lease_is_computed_in_parts_on_all_devices_that_the_plan_counts(batch, devices):
    job = stash.spot.Job(
        lambda: torch.nn.Linear(4, 1),
        _loss,
        lambda params: torch.optim.SGD(params, 0.1),
        _data,
        batch=8,
    )
    whole = Trainer(job, 1, 32)
    parts = Trainer(job, 1, batch, [torch.device("cpu")] * devices)
    lease = DataLease(0, 32)
    (loss, ((one, bias),)), (other_loss, ((other, other_bias),)) = (
        whole.gradients(lease),
        parts.gradients(lease),
    )
    assert loss == pytest.approx(other_loss)
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(bias, other_bias)


def test_who_is_told_that_it_leaves_gets_no_lease_that_it_could_not_finish():
    now = [0.0]
    coordinator = Coordinator(1, 8, KEYS.leases, lambda: now[0])
    coordinator.join("a", 8)
    lease = coordinator.next_lease("a", None)
    assert lease is not None
    coordinator.note_leaving("a", 20.0)
    now[0] = 8.0
    second = coordinator.next_lease("a", UpdateReport(lease, True, False, 1.0, 0))
    assert second is not None  # 8 s each: there is time for one more
    now[0] = 16.0
    assert coordinator.next_lease("a", UpdateReport(second, True, False, 1.0, 0)) is None
    assert coordinator.books().out == 0


def _desk(*workers):
    coordinator = Coordinator(1, 8, KEYS.leases)
    for worker in workers:
        coordinator.join(worker, 8)
    return coordinator


def _failed(lease):
    assert lease is not None
    return UpdateReport(lease, False, False, float("nan"), 0, finite=False)


def test_the_first_gradients_that_are_not_finite_are_told_and_their_samples_wait_for_others():
    coordinator = _desk("one")
    bad = coordinator.next_lease("one", None)
    again = coordinator.next_lease("one", _failed(bad))
    assert again == bad
    coordinator.next_lease("one", _done(again))
    failure = coordinator.take_updates()[2]
    assert (failure.worker, failure.lease) == ("one", bad)
    assert coordinator.books().wrong is None


def _done(lease):
    assert lease is not None
    return UpdateReport(lease, True, False, 0.5, 0)


def test_at_the_end_workers_take_over_what_one_that_is_gone_left():
    coordinator = _desk("one", "other")
    left = coordinator.next_lease("one", None)
    mine = coordinator.next_lease("other", None)
    coordinator.end(redo=True)
    given = []

    def go_on():
        given.append(coordinator.next_lease("other", _done(mine)))
        given.append(coordinator.next_lease("other", _done(given[0])))

    other = threading.Thread(target=go_on)
    other.start()
    other.join(0.2)
    assert given == []  # it waits for what another one has in hand
    assert coordinator.remove_worker("one") == 1
    other.join(5)
    assert given == [left, None]
    books = coordinator.books()
    assert (books.done, books.issued, books.wrong) == (16, 16, None)


def test_samples_that_nobody_could_take_over_are_said_to_be_missing():
    coordinator = _desk("one")
    coordinator.next_lease("one", None)
    assert coordinator.books().wrong is None
    coordinator.end(redo=True)
    wrong = "8 samples that workers took are not in the model: none handed them in"
    assert coordinator.books().wrong == wrong
    coordinator.remove_worker("one")
    assert coordinator.books().wrong == wrong


def test_at_the_end_leases_are_waited_for_as_long_as_three_of_the_longest_iterations():
    now = [0.0]
    coordinator = Coordinator(1, 8, KEYS.leases, lambda: now[0])
    coordinator.join("slow", 8)
    lease = coordinator.next_lease("slow", None)
    now[0] = 10.0
    lease = coordinator.next_lease("slow", _done(lease))
    assert coordinator.end(redo=True) == 130.0
    now[0] = 110.0
    coordinator.join("other", 8)
    coordinator.next_lease("slow", _failed(lease))
    assert coordinator.end(redo=True) == 300.0
    assert coordinator.end(redo=False) == 0.0


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf")])
def test_a_worker_hands_in_no_gradient_that_is_not_finite_and_says_so(wrong):
    run = _Run(4)
    before = [shard.pack() for shard in run.shards]
    run.coordinator.join("a", 8)
    trainer = Trainer(JOB, 2, 8)
    plain = trainer.gradients

    def spoiled(lease, later=()):
        run.coordinator.end(redo=False)
        loss, gradients = plain(lease)
        trainer._parameters[1][0].grad.view(-1)[-1] = wrong
        return loss, gradients

    trainer.gradients = spoiled
    assert work("a", trainer, run.coordinator, KEYS.run) == 0
    failure = run.coordinator.take_updates()[2]
    assert (failure.worker, failure.lease) == ("a", DataLease(0, 8))
    run.close()
    for shard, state in zip(run.shards, before, strict=True):
        assert shard.applied.samples == shard.version == 0
        assert torch.equal(state, shard.pack())


class _Tied(torch.nn.Module):
    """One matrix under two names, batch norm, and a buffer that no state_dict has."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.norm = torch.nn.BatchNorm1d(4)
        self.second = torch.nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.full((4,), 0.5), persistent=False)

    def forward(self, inputs):
        return (self.second(self.norm(self.first(inputs))) * self.scale).sum(1, keepdim=True)


def test_tied_weights_and_buffers_are_saved_as_a_strict_load_wants_them(tmp_path):
    job = replace(JOB, model=_Tied)
    run = _Run(10, job)
    run.train("a")
    run.close()
    save_model(job, [shard.pack() for shard in run.shards], tmp_path / "model.pt")
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    fresh = build_model(job)
    assert torch.equal(saved["first.weight"], saved["second.weight"])
    assert not torch.equal(saved["second.weight"], fresh.state_dict()["second.weight"])
    fresh.load_state_dict(saved, strict=True)
