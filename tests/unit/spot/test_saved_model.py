"""What is saved loads strictly and gives the loss that workers reported; where it does not, that is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

import stash.spot
from stash.spot.train.elastic_job import ElasticJob
from stash.spot.train.frames import TensorBuffer
from stash.spot.train.ledger import DataLease
from stash.spot.train.proof import SavedLoss, prove
from stash.spot.train.server import ParameterShard, build_model, save_model
from stash.spot.train.worker import Trainer

_UPDATES, _BATCH = 60, 16


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


class Forgetful(Tied):
    """Trains with random numbers of its own, which its state_dict leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("noise", torch.randn(6), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) + self.noise


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
    return stash.spot.Job(model, _loss, lambda params: torch.optim.Adam(params, 0.02), _Augmented, batch=_BATCH)


@cache
def _trained(job: ElasticJob) -> tuple[Trainer, list[ParameterShard], list[tuple[DataLease, float]]]:
    """Two servers and a worker after some updates, and the last of them with their losses."""
    trainer, shards = Trainer(job, 2, _BATCH), [ParameterShard(job, number, 2) for number in range(2)]
    trays = [TensorBuffer(shard.tensors) for shard in shards]
    last = []
    for number in range(_UPDATES):
        lease = DataLease(number * _BATCH, (number + 1) * _BATCH)
        loss, gradients = trainer.gradients(lease)
        for shard, tray, its_own in zip(shards, trays, gradients, strict=True):
            tray.fill(its_own)
            shard.take(lease, tray, tray)
        trainer.load([tray.filled() for tray in trays])
        last.append((lease, loss))
    return trainer, shards, last[-50:]


def _proved(job: ElasticJob, folder: Path, spoil: Callable[[dict[str, torch.Tensor]], None]) -> SavedLoss:
    trainer, shards, last = _trained(job)
    packed, path = [shard.packed() for shard in shards], folder / "model.pt"
    save_model(job, packed, path)
    saved = torch.load(path, weights_only=True)
    spoil(saved)
    torch.save(saved, path)
    return prove(job, trainer, packed, path.read_bytes(), last)


def test_tied_weights_and_buffers_are_saved_as_a_strict_load_wants_them(tmp_path: Path) -> None:
    job = _job(Tied)
    _, shards, _ = _trained(job)
    save_model(job, [shard.packed() for shard in shards], tmp_path / "model.pt")
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    fresh = build_model(job)
    assert saved.keys() == fresh.state_dict().keys()
    assert torch.equal(saved["first.weight"], saved["second.weight"])
    assert not torch.equal(saved["second.weight"], fresh.state_dict()["second.weight"])
    fresh.load_state_dict(saved, strict=True)


def test_a_checkpoint_brings_tied_weights_back(tmp_path: Path) -> None:
    job = _job(Tied)
    _, shards, _ = _trained(job)
    for shard in shards:
        shard.save(tmp_path)
    resumed = [ParameterShard(job, number, 2) for number in range(2)]
    for shard in resumed:
        shard.resume(tmp_path)
    save_model(job, [shard.packed() for shard in resumed], tmp_path / "again.pt")
    save_model(job, [shard.packed() for shard in shards], tmp_path / "model.pt")
    one, other = (torch.load(tmp_path / name, weights_only=True) for name in ("again.pt", "model.pt"))
    assert all(torch.equal(one[name], value) for name, value in other.items())


def test_the_saved_model_gives_what_was_trained_in_spite_of_dropout_and_augmentation(tmp_path: Path) -> None:
    found = _proved(_job(Tied), tmp_path, lambda saved: None)
    assert found.wrong is None
    assert found.loss == pytest.approx(found.trained)
    assert 0.3 * found.reported < found.loss < 2 * found.reported
    assert (found.updates, found.samples) == (50, 50 * _BATCH)
    assert found.document["said"].startswith("the saved model was loaded and gives a loss of ")


def _initial_second(saved: dict[str, torch.Tensor]) -> None:
    saved["second.weight"] = build_model(_job(Tied)).state_dict()["second.weight"]


@pytest.mark.parametrize(
    ("model", "spoil", "sentence"),
    [
        (Tied, _initial_second, "first.weight, second.weight"),
        (Tied, lambda saved: saved.pop("norm.weight"), "a fresh model does not take the saved one: "),
        (Forgetful, lambda saved: None, ": noise differs; what state_dict() leaves out is not saved"),
    ],
)
def test_a_file_that_does_not_give_the_loss_is_refused_with_what_differs(
    tmp_path: Path, model: type[Tied], spoil: Callable[[dict[str, torch.Tensor]], None], sentence: str
) -> None:
    found = _proved(_job(model), tmp_path, spoil)
    assert found.wrong is not None
    assert sentence in found.wrong


def test_servers_that_have_something_else_than_workers_trained_are_noticed(tmp_path: Path) -> None:
    job = _job(Tied)
    trainer, _, last = _trained(job)
    packed = [ParameterShard(job, number, 2).packed() for number in range(2)]
    save_model(job, packed, tmp_path / "model.pt")
    found = prove(job, trainer, packed, (tmp_path / "model.pt").read_bytes(), last)
    assert found.wrong is not None
    assert "the last updates made it worse, or what is saved is not what they trained" in found.wrong


def test_what_it_costs_is_bounded(tmp_path: Path) -> None:
    job = _job(Tied)
    trainer, shards, last = _trained(job)
    packed, now = [shard.packed() for shard in shards], [0.0]

    def clock() -> float:
        now[0] += 4.0
        return now[0]

    save_model(job, packed, tmp_path / "model.pt")
    found = prove(job, trainer, packed, (tmp_path / "model.pt").read_bytes(), last, clock)
    assert (found.updates, found.samples) == (3, 3 * _BATCH)
    assert "the 48 samples of the last 3 updates" in found.document["said"]
