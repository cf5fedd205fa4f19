"""What a launch adds to the environment of a job, and what it leaves out of it."""

from pathlib import Path

import pytest

from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.job import Job
from stash.measure.launcher.process import make_request

SCRIPT, ZOO = Job("script", "train.py"), Job("module", "stash.lab.zoo.train")
ALONE, RANKS = Cluster(engine="local"), Cluster(2)
OURS = {"STASH_ORDERS", "PYTHONPATH", "PYTHONUNBUFFERED", "PET_LOG_DIR"}


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("OMP_NUM_THREADS", "RANK", "WORLD_SIZE", "MASTER_ADDR", "PET_LOG_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_a_plain_process_gets_nothing_that_changes_it():
    asked = make_request(SCRIPT, ALONE, Path("/run/orders.json"))
    assert set(asked.variables) == OURS
    assert asked.without == ("PYTHONINSPECT",)


def test_a_rank_alone_has_the_threads_of_one_among_others_unless_the_user_chose(monkeypatch):
    assert make_request(SCRIPT, RANKS, Path("o"), 1).variables["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS" not in make_request(SCRIPT, RANKS, Path("o"), 1).variables


def test_one_process_inside_a_launcher_is_none_of_its_ranks(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    # left from somewhere else: the user's own
    assert "RANK" not in make_request(SCRIPT, ALONE, Path("o")).without
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("MASTER_ADDR", "a")
    assert "RANK" in make_request(SCRIPT, ALONE, Path("o")).without
    assert "RANK" not in make_request(SCRIPT, RANKS, Path("o")).without
