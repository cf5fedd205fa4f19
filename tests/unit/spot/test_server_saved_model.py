"""What is saved loads strictly and is what was trained; what it lacks is said."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

import stash.spot
from stash.spot.train.elastic_job import ElasticJob
from stash.spot.train.frames import TensorBuffer
from stash.spot.train.ledger import DataLease
from stash.spot.train.server import ParameterShard, build_model, save_model
from stash.spot.train.worker import Trainer

_UPDATES, _BATCH = 10, 16


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Tied(torch.nn.Module):
    """One matrix under two names, dropout, batch norm, and a buffer that no state_dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 6, bias=False)
        self.norm = torch.nn.BatchNorm1d(6)
        self.second = torch.nn.Linear(6, 6, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.full((6,), 0.5), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.dropout(self.norm(self.first(inputs)), 0.1, self.training)
        return self.second(hidden) * self.scale


class _Augmented(torch.utils.data.Dataset[torch.Tensor]):
    """Samples with other noise every time they are read."""

    def __init__(self) -> None:
        self.inputs = torch.randn(64, 6, generator=torch.Generator().manual_seed(3))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.inputs[number] + 0.01 * torch.randn(6)


def _loss(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    found = torch.nn.functional.mse_loss(model(batch.clone()), batch.clone())
    batch.zero_()  # a loss may do as it likes with its batch
    return found


@cache
def _job(model: type[Tied]) -> ElasticJob:
    return stash.spot.Job(
        model, _loss, lambda params: torch.optim.Adam(params, 0.02), _Augmented, batch=_BATCH
    )


@cache
def _trained(job: ElasticJob) -> list[ParameterShard]:
    """Two servers after some updates."""
    trainer, shards = (
        Trainer(job, 2, _BATCH),
        [ParameterShard(job, number, 2) for number in range(2)],
    )
    trays = [TensorBuffer(shard.tensors) for shard in shards]
    for number in range(_UPDATES):
        lease = DataLease(number * _BATCH, (number + 1) * _BATCH)
        _, gradients = trainer.gradients(lease)
        for shard, tray, its_own in zip(shards, trays, gradients, strict=True):
            tray.fill(its_own)
            shard.apply_gradients(lease, tray, tray)
        trainer.load([tray.read_tensors() for tray in trays])
    return shards


def test_tied_weights_and_buffers_are_saved_as_a_strict_load_wants_them(tmp_path: Path) -> None:
    job = _job(Tied)
    shards = _trained(job)
    save_model(job, [shard.pack() for shard in shards], tmp_path / "model.pt")
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    fresh = build_model(job)
    assert saved.keys() == fresh.state_dict().keys()
    assert torch.equal(saved["first.weight"], saved["second.weight"])
    assert not torch.equal(saved["second.weight"], fresh.state_dict()["second.weight"])
    fresh.load_state_dict(saved, strict=True)
