"""A job is found by file and name, and a wrong name ends in a sentence."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.spot.train.elastic_job import load_job

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


def test_a_job_is_loaded_and_travels_by_reference(tmp_path: Path) -> None:
    file = tmp_path / "a_job_that_is_good.py"
    file.write_text(GOOD)
    job = load_job(f"{file}:job")
    assert job.batch == 4
    assert len(job.data()) == 8  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("job", "names no job"),
        ("job.py", "names no job"),
        ("{}:two words", "names no job"),
        ("nowhere.py:job", "there is no file nowhere.py"),
        ("{}:jobs", "has no name jobs"),
        ("{}:other", "has a int, not a stash.spot.Job, under the name other"),
    ],
)
def test_what_names_no_job_is_told(tmp_path: Path, where: str, said: str) -> None:
    file = tmp_path / "a_job_to_look_for.py"
    file.write_text(GOOD)
    with pytest.raises(UserError, match=said):
        load_job(where.format(file))


def test_a_file_that_fails_is_told_with_its_error(tmp_path: Path) -> None:
    file = tmp_path / "a_job_that_fails.py"
    file.write_text("1 / 0\n")
    with pytest.raises(UserError, match="cannot be imported: ZeroDivisionError"):
        load_job(f"{file}:job")
