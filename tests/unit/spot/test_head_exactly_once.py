"""Each sample is in the model once, whatever happens: the faults of ``tests.faults.exactly_once``, three by day."""

import pytest
import torch

from stash.core.errors import UserError
from stash.spot.run_records import LeaseBooks
from stash.spot.train import head, server
from tests.faults import exactly_once as bench
from tests.faults.forked_fleet import Moment

FAULTS = {each.name: each for each in bench.list_faults()}
BY_DAY = (
    "a worker that was applied, and did not report it is taken for gone, and goes on",
    "kill -9 of a server that has applied it",
    "kill -9 of a server that begins a checkpoint",
)


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(bench, "SECONDS", 0.7)
    monkeypatch.setattr(bench, "_SLOW", 0.005)


@pytest.mark.parametrize(
    "name", [pytest.param(f, marks=[] if f in BY_DAY else [pytest.mark.slow]) for f in FAULTS]
)
def test_every_sample_is_in_the_model_once(name, tmp_path):
    found = bench.suffer(FAULTS[name], tmp_path)
    assert (found.lost, found.doubled, found.exits[-1]) == (0, 0, 0), found


def test_the_check_sees_a_server_that_applies_everything_twice(tmp_path, monkeypatch):
    once = server.ParameterShard._step
    monkeypatch.setattr(
        server.ParameterShard, "_step", lambda shard, tray: (once(shard, tray), once(shard, tray))
    )
    found = bench.suffer(bench.Fault("twice"), tmp_path)
    assert found.doubled
    assert not found.is_right


def test_a_model_without_a_sample_lacks_it(tmp_path):
    torch.save(
        {"first": torch.zeros(bench.SAMPLES), "second": torch.zeros(bench.SAMPLES)},
        tmp_path / "model.pt",
    )
    books = LeaseBooks(issued=16, done=16, out=0, waiting=0, reissued=0, repeated=0, wrong=None)
    assert bench.compare(tmp_path / "model.pt", books) == (16, 0)


def test_samples_that_nobody_hands_in_make_the_exit_status_one(tmp_path):
    """As a worker that hangs once did unseen: exit status 0, and 32 samples that were not in the model."""
    stuck = tuple(
        Moment(f"worker{number}", "has a lease", 9, stop_seconds=60) for number in (1, 2, 3)
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stash.spot.train.coordinator._PATIENCE", 1.0)
        patched.setattr(head, "_GRACE", 0.5)
        found = bench.suffer(bench.Fault("all workers hang", stuck), tmp_path)
    assert found.exits == (1,)
    assert found.reason == "48 samples that workers took are not in the model: none handed them in"


def test_two_heads_never_save_in_one_folder(tmp_path):
    held = head._lock_checkpoints(tmp_path)
    with pytest.raises(UserError, match="another run saves in"):
        head._lock_checkpoints(tmp_path)
    assert held
