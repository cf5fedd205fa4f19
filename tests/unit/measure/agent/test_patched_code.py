"""What a patch adds to scripts: threads of workers, and garbage that is seldom collected."""

from __future__ import annotations

import gc
import pickle
import sys
from types import SimpleNamespace

import pytest
import torch

from stash.measure.agent.wraps.patched_code import OneThread, SeldomCollected


@pytest.fixture
def collections(monkeypatch):
    """What Python's collector is calls, none of which is done."""
    calls: list[str] = []
    for name in ("collect", "freeze", "disable"):
        monkeypatch.setattr(gc, name, lambda name=name: calls.append(name))
    return calls


def test_garbage_is_collected_at_the_first_step_and_then_once_in_so_many(collections):
    seldom = SeldomCollected(3)
    for _ in range(7):
        seldom(None, (), {})  # as a hook of optimizers is called
    assert collections == ["collect", "freeze", "disable", "collect", "collect"]


def test_what_is_alive_after_the_first_step_is_frozen_and_the_rest_left_to_python(collections):
    frozen = SeldomCollected()
    for _ in range(7):
        frozen()
    assert collections == ["collect", "freeze"]


def begin(worker):
    torch.set_num_threads(4 + worker)


def test_a_worker_gets_one_thread_after_what_the_script_begins_it_with(monkeypatch):
    calls: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", calls.append)
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(setNumThreads=calls.append))
    pickle.loads(pickle.dumps(OneThread(begin)))(1)  # as a spawned worker gets it
    OneThread()(0)
    assert calls == [5, 1, 0, 1, 0]
