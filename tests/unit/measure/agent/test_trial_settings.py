"""Settings that blocks of one launch take turns in: what is on while a turn lasts, and what is left after it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stash.measure.agent.wraps import trial_settings


@pytest.fixture
def trial(monkeypatch):
    """The settings of a launch under way; after the test none is switched on."""
    orders: dict[str, Any] = {}
    monkeypatch.setattr(trial_settings, "current_orders", lambda: SimpleNamespace(trial=orders))
    yield orders
    trial_settings.apply_turn({})
    trial_settings._Process.optimizers.clear()


def test_outside_a_trial_there_are_none(monkeypatch):
    monkeypatch.setattr(trial_settings, "current_orders", lambda: None)
    assert trial_settings.settings() == {}
    assert trial_settings.find_setting("zero_grad") == {}
    assert not trial_settings.is_ever_set("skip")


def test_a_turn_changes_what_is_asked_and_the_next_one_takes_it_back(trial):
    trial["rungs"] = [{}, {"zero_grad": {"set_to_none": True}}, {"skip": ["a", "b"]}]
    assert trial_settings.is_ever_set("zero_grad")
    assert not trial_settings.is_ever_set("autocast")
    trial_settings.apply_turn({"zero_grad": {"set_to_none": True}, "loader": {"num_workers": 2}})
    assert trial_settings.find_setting("zero_grad") == {"set_to_none": True}
    assert trial_settings.find_setting("loader") == {}  # of which a loader of its own is alive
    trial_settings.apply_turn({"skip": ["a", "b"]})
    assert trial_settings.find_setting("zero_grad") == {}
    assert trial_settings.settings()["skip"] == ["a", "b"]


def test_flags_and_threads_are_as_before_after_their_turn(trial):
    before, threads = torch.backends.cudnn.benchmark, torch.get_num_threads()
    trial_settings.apply_turn(
        {"flags": {"backends.cudnn.benchmark": not before}, "threads": threads + 1}
    )
    assert torch.backends.cudnn.benchmark is not before
    assert torch.get_num_threads() == threads + 1
    trial_settings.apply_turn({})
    assert torch.backends.cudnn.benchmark is before
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.Adam])
def test_an_optimizer_is_fused_for_a_turn_and_goes_on_from_where_it_was(trial, cls):
    def trained(turns) -> torch.Tensor:
        weight = torch.ones(4, requires_grad=True)
        optimizer = cls([weight], lr=0.1, foreach=False)
        trial_settings.remember_optimizer(optimizer)
        for step in range(6):
            if turns:
                trial_settings.apply_turn({"optimizer": {"fused": True}} if step % 2 else {})
                assert bool(optimizer.param_groups[0]["fused"]) == bool(step % 2)
            (weight * torch.arange(4.0)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return weight.detach()

    trial["rungs"] = [{}, {"optimizer": {"fused": True}}]
    assert torch.allclose(trained(turns=True), trained(turns=False), atol=1e-6)


def test_parameters_are_updated_together_for_a_turn(trial):
    trial["rungs"] = [{}, {"optimizer": {"foreach": True}}]
    optimizer = torch.optim.RMSprop([torch.ones(4, requires_grad=True)], lr=0.1)
    trial_settings.remember_optimizer(optimizer)
    trial_settings.apply_turn({"optimizer": {"foreach": True}})
    assert optimizer.param_groups[0]["foreach"] is True
    trial_settings.apply_turn({})
    assert optimizer.param_groups[0]["foreach"] is None


HOST = torch.ones(2)


@pytest.mark.parametrize(
    ("copy", "recorded", "waits"),
    [
        (lambda: HOST.to("cuda"), True, False),
        (lambda: HOST.to(torch.device("cuda", 0), torch.float16), True, False),
        (lambda: HOST.to(device=0), True, False),
        (lambda: [HOST.cuda()], True, False),
        (lambda: HOST.cuda(non_blocking=True), True, False),
        (lambda: HOST.cuda(0, False), False, True),  # who gives it without a name is left alone
        (lambda: HOST.to(torch.float16), False, True),
        (lambda: HOST.to("cpu"), False, True),
        (lambda: torch.nn.Linear(1, 1).to("cuda"), False, True),
    ],
)
def test_copies_to_a_gpu_are_known_and_do_not_wait_if_asked_and_pinned(
    trial, monkeypatch, copy, recorded, waits
):
    waited: list[bool] = []

    def fake(name):
        def move(tensor, *args, **kwargs):
            waited.append(not kwargs.get("non_blocking"))
            return tensor

        move.__name__ = name
        return move

    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    monkeypatch.setattr(trial_settings, "SITES", sites := {})
    monkeypatch.setattr(trial_settings, "_places", {})
    trial["non_blocking"] = True
    for name in ("to", "cuda"):
        moved = trial_settings.wrap_copy(fake(name), torch)
        monkeypatch.setattr(torch.Tensor, name, moved)
    copy()
    assert [each["kind"] for each in sites.values()] == ["copy"] * recorded
    assert set(waited) == {waits}
