"""What a trial changes in a call, and how it tells batches from each other."""

from __future__ import annotations

from importlib import import_module
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from stash.measure.agent.wraps import trial_changes
from stash.measure.agent.wraps.trial_changes import fingerprint_batch

NONE = {"prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None}


@pytest.mark.parametrize(
    ("given", "asked", "changed"),
    [
        ({"num_workers": 2}, {"num_workers": 6}, {"num_workers": 6}),
        ({"num_workers": 2}, {"prefetch_factor": 8}, {"num_workers": 2, "prefetch_factor": 8}),
        ({"prefetch_factor": 4, "num_workers": 2}, {"num_workers": 0}, {"num_workers": 0, **NONE}),
        ({}, {"pin_memory": True}, {"pin_memory": True, **NONE}),
        ({"multiprocessing_context": "spawn"}, {}, {"multiprocessing_context": "spawn"}),
    ],
)
def test_a_loader_is_built_with_what_is_asked_and_without_workers_with_nothing_of_theirs(
    given, asked, changed
):
    arguments = dict(given)
    trial_changes._change_loader(arguments, asked)
    assert arguments == changed


def test_workers_begin_as_the_script_has_them_begin():
    arguments = {"num_workers": 2, "worker_init_fn": print}
    trial_changes._change_loader(arguments, {"one_thread": True})
    assert arguments["worker_init_fn"]._init is print


def test_the_number_of_threads_that_a_script_sets_in_a_worker_is_its_own(monkeypatch):
    found: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    monkeypatch.setattr(trial_changes, "settings", lambda: {"threads": 3})
    monkeypatch.setattr(trial_changes, "site_of", lambda kind: kind)
    monkeypatch.setattr(trial_changes, "find_setting", lambda name: {})
    trial_changes._set_flags(torch)
    torch.set_num_threads(8)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: SimpleNamespace(id=0))
    torch.set_num_threads(8)
    assert found == [
        3,
        3,
        8,
    ]  # at first, as the script may have set the variable that gives it threads


def test_prints_tell_batches_apart_by_what_they_hold_and_their_order():
    batch = (torch.arange(10.0), {"label": torch.tensor([1, 2])})
    assert fingerprint_batch(batch) == fingerprint_batch(
        (torch.arange(10.0), {"label": torch.tensor([1, 2])})
    )
    assert fingerprint_batch(batch) != fingerprint_batch(
        (torch.arange(10.0), {"label": torch.tensor([2, 1])})
    )
    assert fingerprint_batch(torch.tensor([1.0, 2.0])) != fingerprint_batch(
        torch.tensor([2.0, 1.0])
    )
    assert fingerprint_batch(["text", 3]) is None


def test_a_tensor_of_a_librarys_own_class_has_the_print_of_its_numbers():
    class Guarded(torch.Tensor):
        def __getitem__(self, index):
            raise ValueError("inconsistent")

    numbers = torch.arange(10_000.0)
    assert fingerprint_batch(numbers.as_subclass(Guarded)) == fingerprint_batch(numbers)


def test_updates_are_timed_over_all_optimizers_of_a_step(monkeypatch):
    # GIVEN two optimizers that step once each in every step, and a clock that goes on a second whenever it is read
    clock = count()
    monkeypatch.setattr(
        trial_changes, "time", SimpleNamespace(perf_counter=lambda: float(next(clock)))
    )
    evidence = trial_changes._Evidence()
    monkeypatch.setattr(trial_changes, "_evidence", evidence)
    assert evidence.update_seconds() is None
    optimizers = [torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1) for _ in range(2)]
    module = import_module("torch.optim.optimizer")
    handles = [
        module.register_optimizer_step_pre_hook(trial_changes._update_begins),
        module.register_optimizer_step_post_hook(trial_changes._update_ends),
    ]
    try:
        for _ in range(3):
            for each in optimizers:
                each.step()
    finally:
        for handle in handles:
            handle.remove()
    # THEN a step spends a second in each of them
    assert evidence.update_seconds() == 2.0


def test_starts_of_loops_are_kept_with_the_steps_before_them_apart_for_evaluation(monkeypatch):
    # GIVEN a loop that trains from the third step on, and one without gradients after five
    clock, evidence = count(), trial_changes._Evidence()
    monkeypatch.setattr(
        trial_changes, "time", SimpleNamespace(perf_counter=lambda: float(next(clock)))
    )
    monkeypatch.setattr(trial_changes, "_evidence", evidence)
    train, val = (
        SimpleNamespace(_stash_asked=-2.0, **{trial_changes._SITE: name}) for name in ("a", "b")
    )
    evidence.updates |= {1: [0.0, 0.0, 3]}
    trial_changes._record_batch(train, torch.ones(3))
    trial_changes._record_batch(train, torch.ones(3))
    evidence.updates |= {1: [0.0, 0.0, 5], 2: [0.0, 0.0, 1]}
    with torch.no_grad():
        trial_changes._record_batch(val, torch.ones(3))
    assert evidence.epochs == [(2.0, 3)]
    assert evidence.evaluations["b"] == [(3.0, 5)]
    assert evidence.trains == "a"
