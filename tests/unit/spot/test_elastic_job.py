"""A job as its user describes it, and which optimizers servers can hold."""

import pickle

import pytest
import torch

import stash.spot
from stash.core.errors import JobError, UserError
from stash.spot.replay import Server
from stash.spot.train.elastic_job import check_optimizer, load_job
from stash.spot.train.frames import TensorBuffer
from stash.spot.train.ledger import DataLease
from stash.spot.train.server import ParameterShard, RunKeys, ShardServer
from stash.spot.train.worker import ServerLinks

GOOD = """
import torch
import stash.spot

def model():
    return torch.nn.Linear(2, 1)

def loss(model, batch):
    return model(batch).square().mean()

def optimizer(parameters):
    return torch.optim.SGD(parameters, 0.1)

def data():
    return torch.zeros(8, 2)

job = stash.spot.Job(model, loss, optimizer, data, batch=4)
other = 3
"""


def test_a_job_is_loaded_and_travels_by_reference(tmp_path):
    file = tmp_path / "a_job_that_is_good.py"
    file.write_text(GOOD)
    job = load_job(f"{file}:job")
    assert job.batch == 4
    assert len(job.data()) == 8
    assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("job", "names no job"),
        ("job.py", "names no job"),
        ("{}:two words", "names no job"),
        ("nowhere.py:job", "there is no file nowhere.py"),
        ("{}:jobs", "has no name jobs"),
        ("{}:other", "has a int, not a stash.spot.Job, under the name other"),
    ],
)
def test_what_names_no_job_is_told(tmp_path, where, sentence):
    file = tmp_path / "a_job_to_look_for.py"
    file.write_text(GOOD)
    with pytest.raises(UserError, match=sentence):
        load_job(where.format(file))


def test_a_file_that_fails_is_told_with_its_error(tmp_path):
    file = tmp_path / "a_job_that_fails.py"
    file.write_text("1 / 0\n")
    with pytest.raises(UserError, match="cannot be imported: ZeroDivisionError"):
        load_job(f"{file}:job")


KEYS = RunKeys(b"the run's secret", b"the coordinator's")


class Breaks(torch.optim.SGD):
    """Fails from its second step on."""

    def step(self, closure=None):
        if "broken" in self.defaults:
            raise ValueError("no more\nof this")
        self.defaults["broken"] = True


def _job(optimizer):
    return stash.spot.Job(
        lambda: torch.nn.Embedding(4, 2),
        lambda model, batch: model(batch).square().mean(),
        optimizer,
        lambda: torch.arange(4),
        batch=2,
    )


def _lbfgs(parameters):
    return torch.optim.LBFGS(parameters)


def test_an_optimizer_that_needs_a_closure_is_refused_wherever_it_is_made():
    job = _job(_lbfgs)
    sentence = "LBFGS, computes losses itself .* take SGD, Adam"
    for make in (
        check_optimizer,
        lambda job: ParameterShard(job, 0, 1),
        lambda job: Server(job, torch.device("cpu")),
    ):
        with pytest.raises(UserError, match=sentence):
            make(job)


def test_an_optimizer_that_is_not_made_for_one_small_parameter_is_left_to_the_servers():
    def picky(parameters):
        return torch.optim.SGD([each for each in parameters if each.numel() > 1], 0.1)

    check_optimizer(_job(picky))
    ParameterShard(_job(picky), 0, 1)


def test_a_step_that_fails_is_the_servers_end_and_nothing_more_is_applied(tmp_path):
    shard = ParameterShard(_job(lambda parameters: Breaks([*parameters], 0.1)), 0, 1)
    tray = TensorBuffer(shard.tensors)
    shard.apply_gradients(DataLease(0, 2), tray, tray)
    assert not shard.failure.done()
    for lease in (DataLease(2, 4), DataLease(4, 6)):
        with pytest.raises(JobError):
            shard.apply_gradients(lease, tray, tray)
    assert shard.applied.ranges == ((0, 2),)
    assert str(shard.failure.exception()) == "Breaks.step() failed: ValueError: no more"


def test_a_server_without_memory_for_an_exchange_has_failed(
    monkeypatch,
):
    shard = ParameterShard(_job(lambda parameters: torch.optim.SGD(parameters, 0.1)), 0, 1)
    served = ShardServer(shard, "127.0.0.1", KEYS)

    def none(tensors):
        raise MemoryError("no room")

    monkeypatch.setattr("stash.spot.train.server.TensorBuffer", none)
    links = ServerLinks([served.address], [shard.tensors], KEYS.run, "a")
    with pytest.raises(OSError):
        links.pull()
    assert str(shard.failure.exception(10)) == "an exchange failed: MemoryError: no room"
    links.close()
    served.close()
