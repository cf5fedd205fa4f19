"""Saves of drifted replicas leave good files alone, and the script none the wiser."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from climbing import silence
from listening import Heard

from stash.measure.agent import script
from stash.measure.agent.wraps import checkpoints


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    listener = Heard(drifted=True)
    script.listen(listener)
    monkeypatch.setattr(os, "replace", os.replace)
    monkeypatch.setattr(os, "rename", os.rename)
    checkpoints._wrap_renaming.cache_clear()
    yield listener
    silence()
    checkpoints.sweep()
    checkpoints._wrap_renaming.cache_clear()


@pytest.fixture
def guarded() -> SimpleNamespace:
    """A module like torch, with its ``save`` guarded."""
    module = SimpleNamespace(save=torch.save)
    checkpoints.guard_torch_save(module)
    return module


def test_a_good_file_is_not_replaced_and_the_profile_says_so(heard: Heard, guarded: SimpleNamespace, tmp_path: Path):
    path = tmp_path / "last.pt"
    path.write_bytes(b"a good model")
    guarded.save({"weights": torch.zeros(3)}, path)
    assert path.read_bytes() == b"a good model"
    assert any("a checkpoint was not written" in word for word in heard.words)


def test_a_save_beside_it_and_a_rename_leave_it_too(heard: Heard, guarded: SimpleNamespace, tmp_path: Path):
    path, beside = tmp_path / "last.pt", tmp_path / "last.pt.tmp"
    path.write_bytes(b"a good model")
    guarded.save({"weights": torch.zeros(3)}, beside)
    assert beside.exists()
    os.replace(beside, path)
    assert path.read_bytes() == b"a good model"
    assert not beside.exists()


def test_placeholders_are_swept(heard: Heard, guarded: SimpleNamespace, tmp_path: Path):
    path = tmp_path / "new.pt"
    guarded.save({}, path)
    assert path.read_bytes() == b""
    checkpoints.sweep()
    assert not path.exists()


def test_a_save_into_memory_is_the_scripts_own_business(heard: Heard, guarded: SimpleNamespace):
    buffer = io.BytesIO()
    guarded.save(torch.ones(2), buffer)
    assert len(buffer.getvalue()) > 0


def test_before_replicas_drift_a_checkpoint_is_written(heard: Heard, guarded: SimpleNamespace, tmp_path: Path):
    heard.drifted = False
    guarded.save(torch.ones(2), tmp_path / "first.pt")
    assert torch.load(tmp_path / "first.pt").tolist() == [1, 1]
