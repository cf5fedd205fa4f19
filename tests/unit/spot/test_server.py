"""What a parameter server takes from strangers, and how much memory it needs."""

import socket
import threading
import time
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import stash.spot
from stash.cli.main import app
from stash.core.errors import UserError
from stash.core.membership import join
from stash.spot.train import server as serving
from stash.spot.train.coordinator import Coordinator
from stash.spot.train.frames import PURPOSE, FrameKind, TensorBuffer, receive_head, send_head
from stash.spot.train.ledger import DataLease, lease_tag
from stash.spot.train.server import ParameterShard, RunKeys, ShardServer
from stash.spot.train.worker import Trainer, work
from tests.faults.server_attacks import ATTACKS, attack

KEYS = RunKeys(b"the run's secret", b"the coordinator's")
UPDATES = 12


def _data():
    inputs = torch.randn(64, 64, generator=torch.Generator().manual_seed(3))
    return torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))


def _loss(model, batch):
    return torch.nn.functional.mse_loss(model(batch[0]).sum(1, keepdim=True), batch[1])


JOB = stash.spot.Job(
    lambda: torch.nn.Linear(64, 64),
    _loss,
    lambda params: torch.optim.SGD(params, 0.001),
    _data,
    batch=8,
)


class _Desk:
    """A coordinator that ends a training after so many updates, no sooner than told."""

    def __init__(self, address):
        self.coordinator = Coordinator(1, 8, KEYS.leases)
        self.enough = threading.Event()
        self.coordinator.set_address(0, address)
        self.coordinator.join("worker1", 8)

    def next_lease(self, worker, finished):
        lease = self.coordinator.next_lease(worker, finished)
        if lease is not None and lease.stop == 8 * UPDATES:
            self.enough.wait(30)
            self.coordinator.end(redo=True)
        return lease

    def servers(self):
        return self.coordinator.servers()


def _trained(shard, address, meanwhile=0.0, job=JOB):
    desk = _Desk(address)
    threading.Timer(meanwhile, desk.enough.set).start()
    work("worker1", Trainer(job, 1, 8), desk, KEYS.run)
    assert shard.applied.ranges == ((0, 8 * UPDATES),)
    assert desk.coordinator.books().wrong is None
    assert desk.coordinator.books().reissued == 0
    return desk


def test_strangers_get_and_change_nothing_and_hold_no_other_up(
    monkeypatch,
):
    alone = ParameterShard(JOB, 0, 1)
    quiet = ShardServer(alone, "127.0.0.1", KEYS)
    _trained(alone, quiet.address)
    quiet.close()
    made = []

    class Counted(TensorBuffer):
        def __init__(self, *tensors):
            super().__init__(*tensors)
            made.append(self)

    failures = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    monkeypatch.setattr(serving, "TensorBuffer", Counted)
    shard = ParameterShard(JOB, 0, 1)
    server = ShardServer(shard, "127.0.0.1", KEYS)
    asked = []
    check = server._check
    monkeypatch.setattr(
        server, "_check", lambda head, worker: (asked.append(worker), check(head, worker))
    )
    size = len(TensorBuffer(shard.tensors).bytes)
    over = threading.Event()
    loots = {}

    def strike(name):
        loots[name] = attack(name, server.address, size, lambda: not over.is_set(), hurry=20)

    strangers = [threading.Thread(target=strike, args=(name,)) for name in ATTACKS]
    for stranger in strangers:
        stranger.start()
    try:
        _trained(shard, server.address, meanwhile=0.6)
    finally:
        over.set()
        for stranger in strangers:
            stranger.join(30)
        server.close()
    assert {name: loot.most for name, loot in loots.items() if loot.most >= 4096} == {}
    assert len(made) == 1  # the one worker needs no more, and no other worker had one
    assert set(asked) == {"worker1"}
    assert failures == []
    for name, value in alone.named_tensors.items():
        torch.testing.assert_close(shard.named_tensors[name], value, msg=name)


@pytest.fixture
def served():
    return ShardServer(ParameterShard(JOB, 0, 1), "127.0.0.1", KEYS, most=2)


def _member(server, name):
    link = socket.create_connection(server.address)
    join(link, KEYS.run, PURPOSE, name)
    link.settimeout(5)
    return link


LEASE = DataLease(0, 8)
FORGED = [
    pytest.param(FrameKind.PUSH, LEASE, id="unsigned"),
    pytest.param(
        FrameKind.PUSH, replace(LEASE, tag=lease_tag(KEYS.run, "a", LEASE)), id="signed by a worker"
    ),
    pytest.param(
        FrameKind.PUSH,
        replace(LEASE, tag=lease_tag(KEYS.leases, "b", LEASE)),
        id="another worker's",
    ),
    pytest.param(
        FrameKind.PUSH,
        DataLease(0, 10**15, tag=lease_tag(KEYS.leases, "a", LEASE)),
        id="longer than was given",
    ),
    pytest.param(FrameKind.PUSH, DataLease(-8, -1), id="negative"),
    pytest.param(FrameKind.APPLIED, LEASE, id="no question"),
]


@pytest.mark.parametrize(("kind", "lease"), FORGED)
def test_a_lease_that_was_never_given_is_refused_with_a_sentence_and_the_connection_closed(
    served, kind, lease, capfd
):
    with _member(served, "a") as link:
        send_head(link, kind, lease, 0, 8)
        assert link.recv(1) == b""
    served.close()
    assert "a was hung up on: " in capfd.readouterr().err
    assert served._shard.version == 0


def test_a_worker_that_sends_a_byte_now_and_then_loses_its_turn_to_another(served, monkeypatch):
    monkeypatch.setattr(serving, "STALL_SECONDS", 0.3)
    over = threading.Event()
    with _member(served, "slow") as link:
        tag = lease_tag(KEYS.leases, "slow", LEASE)
        send_head(
            link,
            FrameKind.PUSH,
            replace(LEASE, tag=tag),
            0,
            len(TensorBuffer(served._shard.tensors).bytes),
        )
        assert receive_head(link).message is FrameKind.SEND

        def trickle():
            while not over.is_set():
                try:
                    link.sendall(b"\0")
                except OSError:
                    return
                time.sleep(0.05)

        slow = threading.Thread(target=trickle)
        slow.start()
        _trained(served._shard, served.address)
        over.set()
        slow.join(5)
    served.close()


def test_members_that_read_nothing_lose_their_buffers_to_one_that_trains(
    monkeypatch,
):
    monkeypatch.setattr(serving, "STALL_SECONDS", 0.2)
    # 8 MB: no system holds them
    wide = torch.nn.Sequential(torch.nn.Linear(64, 16384), torch.nn.Linear(16384, 64))
    job = replace(JOB, model=lambda: wide, optimizer=lambda params: torch.optim.SGD(params, 0.0))
    shard = ParameterShard(job, 0, 1)
    server = ShardServer(shard, "127.0.0.1", KEYS)
    slow = [_member(server, f"slow{number}") for number in range(serving.trays_of(1))]
    for link in slow:
        send_head(link, FrameKind.PULL, LEASE, 0)
    _trained(shard, server.address, job=job)
    for link in slow:
        link.close()
    server.close()
    assert len(server._free) == serving.trays_of(1)


def test_no_more_workers_than_a_fleet_can_have_are_let_in_and_one_that_comes_back_replaces_itself(
    served,
):
    with _member(served, "a") as first, _member(served, "b") as second:
        for link in (first, second):  # both are let in before a third asks
            send_head(link, FrameKind.PULL, LEASE, 0)
            assert receive_head(link).message is FrameKind.PARAMETERS
        with _member(served, "c") as third:
            assert third.recv(1) == b""
        with _member(served, "b") as again:
            send_head(again, FrameKind.PULL, LEASE, 0)
            assert receive_head(again).message is FrameKind.PARAMETERS
    served.close()


def test_a_pool_whose_server_is_too_small_is_refused(tmp_path):
    (tmp_path / "pool.yaml").write_text(
        "as_of: 2026-11-22\nsource: a test\nexchange_bytes: 1MB\nworker_bytes_per_second: 25MB/s\n"
        "pcie_bytes_per_second: 10GB/s\n"
        "server: {count: 1, bytes_per_second: 25MB/s, memory_bytes: 4GB, needs_bytes: 5GB}\n"
        "loss: {gamma1: 1, gamma2: 0, gamma3: 1, gamma5: 0}\n"
        "types: [{name: a, batch: 16, samples_per_second: 64, quota: 2, dollars_per_hour: 1}]\n"
    )
    words = [
        "spot",
        "plan",
        "--pool",
        str(tmp_path / "pool.yaml"),
        "--deadline",
        "1h",
        "--loss",
        "0.1",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    assert isinstance(done.exception, UserError)
    assert "a server has 4.00 GB of memory and needs 5.00 GB" in str(done.exception)


def test_a_server_makes_the_folder_of_its_checkpoints(tmp_path):
    folder = tmp_path / "bucket/run1/checkpoints"
    shard = ParameterShard(JOB, 0, 1)
    assert shard.resume(folder) is None
    shard.save(folder)
    assert ParameterShard(JOB, 0, 1).resume(folder) is not None
