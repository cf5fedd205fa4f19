"""Optimizers that no server can use are refused before anything starts; one that fails later ends the training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from spot_fleets import plan

import stash.spot
from stash.core.errors import JobError, UserError
from stash.spot.emulate import build_rehearsal
from stash.spot.learn.replay import Server
from stash.spot.train.elastic_job import ElasticJob, check_optimizer
from stash.spot.train.frames import TensorBuffer
from stash.spot.train.ledger import DataLease
from stash.spot.train.server import ParameterShard, RunKeys, ShardServer
from stash.spot.train.worker import ServerLinks

Parameters = Iterable[torch.nn.Parameter]
KEYS = RunKeys(b"the run's secret", b"the coordinator's")


class Breaks(torch.optim.SGD):
    """Fails from its second step on."""

    def step(self, closure: Any = None) -> None:
        if "broken" in self.defaults:
            raise ValueError("no more\nof this")
        self.defaults["broken"] = True


def _job(optimizer: Callable[[Parameters], torch.optim.Optimizer], sparse: bool = False) -> ElasticJob:
    return stash.spot.Job(
        lambda: torch.nn.Embedding(4, 2, sparse=sparse),
        lambda model, batch: model(batch).square().mean(),
        optimizer,
        lambda: torch.arange(4),
        batch=2,
    )


def _lbfgs(parameters: Parameters) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(parameters)


def test_an_optimizer_that_needs_a_closure_is_refused_wherever_it_is_made() -> None:
    job, said = _job(_lbfgs), "LBFGS, computes losses itself .* take SGD, Adam"
    for make in (
        check_optimizer,
        lambda job: ParameterShard(job, 0, 1),
        lambda job: Server(job, torch.device("cpu")),
    ):
        with pytest.raises(UserError, match=said):
            make(job)


def test_an_optimizer_that_is_not_made_for_one_small_parameter_is_left_to_the_servers() -> None:
    def picky(parameters: Parameters) -> torch.optim.Optimizer:
        return torch.optim.SGD([each for each in parameters if each.numel() > 1], 0.1)

    check_optimizer(_job(picky))
    ParameterShard(_job(picky), 0, 1)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (_job(_lbfgs), "LBFGS, computes losses itself"),
        (_job(lambda parameters: Breaks([*parameters], 0.1)), ""),
        (
            _job(lambda parameters: torch.optim.SparseAdam([*parameters])),
            "SparseAdam does not support dense gradients",
        ),
        (_job(lambda parameters: torch.optim.SGD(parameters, 0.1), sparse=True), "dense gradients, as SGD"),
    ],
)
def test_a_rehearsal_tries_an_update_before_it_starts_anything(
    job: ElasticJob, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_rehearsal, "load_job", lambda where: job)
    if not said:
        build_rehearsal.cast(plan(0.8, 3000.0), "job.py:job", False, None)
        return
    with pytest.raises(UserError, match=said):
        build_rehearsal.cast(plan(0.8, 3000.0), "job.py:job", False, None)


def test_a_step_that_fails_is_the_servers_end_and_nothing_more_is_applied(tmp_path: Path) -> None:
    shard = ParameterShard(_job(lambda parameters: Breaks([*parameters], 0.1)), 0, 1)
    tray = TensorBuffer(shard.tensors)
    shard.take(DataLease(0, 2), tray, tray)
    assert not shard.failure.done()
    for lease in (DataLease(2, 4), DataLease(4, 6)):
        with pytest.raises(JobError):
            shard.take(lease, tray, tray)
    assert shard.applied.ranges == ((0, 2),)
    assert str(shard.failure.exception()) == "Breaks.step() failed: ValueError: no more"


def test_a_server_without_memory_for_an_exchange_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = ParameterShard(_job(lambda parameters: torch.optim.SGD(parameters, 0.1)), 0, 1)
    served = ShardServer(shard, "127.0.0.1", KEYS)

    def none(tensors: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("stash.spot.train.server.TensorBuffer", none)
    links = ServerLinks([served.address], [shard.tensors], KEYS.run, "a")
    with pytest.raises(OSError):
        links.pull()
    assert str(shard.failure.exception(10)) == "an exchange failed: MemoryError: no room"
    links.close()
    served.close()
