"""Saves of drifted replicas leave good files alone, and the script none the wiser."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from listening import Recorder

from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import opened_files, stages


@pytest.fixture
def listener(listener: Recorder) -> Iterator[Recorder]:
    listener.drifted = True
    yield listener
    opened_files.remove_placeholders()


@pytest.fixture
def guarded() -> SimpleNamespace:
    """A module like torch, with its ``save`` guarded."""
    module = SimpleNamespace(save=torch.save)
    opened_files.guard_torch_save(module)
    return module


def test_a_good_file_is_not_replaced_and_the_profile_says_so(
    listener: Recorder, guarded: SimpleNamespace, tmp_path
):
    path = tmp_path / "last.pt"
    path.write_bytes(b"a good model")
    guarded.save({"weights": torch.zeros(3)}, path)
    assert path.read_bytes() == b"a good model"
    assert any("no checkpoint is kept" in event for event in listener.events)


def test_a_script_that_saves_beside_renames_and_links_goes_on(
    listener: Recorder, guarded: SimpleNamespace, tmp_path
):
    beside, path = tmp_path / "last.pt.tmp", tmp_path / "last.pt"
    guarded.save({"weights": torch.zeros(3)}, beside)
    os.replace(beside, path)
    os.link(path, tmp_path / "epoch-1.pt")
    assert path.read_bytes() == b""


def test_placeholders_are_swept(listener: Recorder, guarded: SimpleNamespace, tmp_path):
    path = tmp_path / "new.pt"
    guarded.save({}, path)
    assert path.read_bytes() == b""
    opened_files.remove_placeholders()
    assert not path.exists()


def test_a_save_into_memory_is_the_scripts_own_business(
    listener: Recorder, guarded: SimpleNamespace
):
    buffer = io.BytesIO()
    guarded.save(torch.ones(2), buffer)
    assert len(buffer.getvalue()) > 0


def test_before_replicas_drift_a_checkpoint_is_written(
    listener: Recorder, guarded: SimpleNamespace, tmp_path
):
    listener.drifted = False
    guarded.save(torch.ones(2), tmp_path / "first.pt")
    assert torch.load(tmp_path / "first.pt").tolist() == [1, 1]


def test_a_script_that_reads_what_it_saves_gets_it_written(
    listener: Recorder, guarded: SimpleNamespace, tmp_path, monkeypatch
):
    monkeypatch.setattr(listener, "needs_checkpoints", lambda: True)
    guarded.save({"score": 0.5}, tmp_path / "checkpoint-8.pt")
    assert torch.load(tmp_path / "checkpoint-8.pt") == {"score": 0.5}


@pytest.mark.parametrize("how", ["torch.save", "distributed"])
def test_what_is_refused_lies_in_a_folder_that_is_no_whole_checkpoint(
    listener: Recorder,
    guarded: SimpleNamespace,
    tmp_path,
    monkeypatch,
    how,
):
    # GIVEN a script that drifts, and saves into a folder
    saved: list[str] = []
    monkeypatch.setattr(
        opened_files.guard, "about_to_write", lambda path, truncates: saved.append(path)
    )
    monkeypatch.setattr(opened_files.guard, "saving", lambda: _noted(saved))
    if how == "torch.save":
        guarded.save({}, tmp_path / "weights.pt")
        # THEN the placeholder is made as any checkpoint is
        assert saved == ["begins", "ends"]
        assert opened_files._placeholders == {str(tmp_path / "weights.pt")}
    else:
        module = SimpleNamespace(
            save=lambda *args, **kwargs: pytest.fail("a drifted model was saved")
        )
        opened_files.guard_distributed_checkpoint(module)
        assert module.save({}, checkpoint_id=tmp_path / "5") is None
        assert saved == ["begins", str(tmp_path / "5" / ".metadata"), "ends"]


@contextlib.contextmanager
def _noted(events):
    events.append("begins")
    yield
    events.append("ends")


def test_a_tensor_that_is_pickled_for_another_process_is_no_checkpoint(
    listener: Recorder, monkeypatch
):
    events: list[ThreadEvent] = []
    monkeypatch.setattr(listener, "handle", lambda event, about: events.append(event))
    module = SimpleNamespace(save=torch.save)
    opened_files.guard_torch_save(module)
    stages.wrap_saves(module)
    monkeypatch.setattr(torch, "save", module.save)
    pickle.dumps(torch.arange(3.0))
    assert events == []
    torch.save({"weights": torch.arange(3.0)}, io.BytesIO())
    begins, ends = ThreadEvent.SAVE_BEGINS, ThreadEvent.SAVE_ENDED
    assert events == [begins, begins, ends, ends]
