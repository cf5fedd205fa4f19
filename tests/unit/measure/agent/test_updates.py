"""Steps of loops without torch.optim: told apart from accumulation by what became of the gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from climbing import silence
from listening import Heard
from torch.utils.checkpoint import checkpoint

from stash.measure.agent import script
from stash.measure.agent.wraps import steps


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    listener = Heard()
    script.subscribe(listener)
    monkeypatch.setattr(steps, "own_update", steps.OwnUpdate())
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    steps.wrap_backward(torch.autograd)
    yield listener
    silence()


def clear(weight: torch.Tensor) -> None:
    weight.grad = None


def zero(weight: torch.Tensor) -> None:
    weight.grad.zero_()


def zero_unnoticed(weight: torch.Tensor) -> None:
    weight.grad.data.zero_()


def train(cycles: int, passes: int = 1, end: Callable[[torch.Tensor], None] = clear) -> torch.Tensor:
    """``cycles`` updates of ``passes`` backward passes each; the value is what was trained."""
    weight = torch.ones(3, requires_grad=True)
    for _ in range(cycles):
        for _ in range(passes):
            (weight * torch.ones(3)).sum().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        end(weight)
    return weight


def steps_heard(heard: Heard) -> int:
    return heard.words.count("stepped")


@pytest.mark.parametrize("end", [clear, zero, zero_unnoticed])
@pytest.mark.parametrize("passes", [1, 4])
def test_a_step_is_counted_for_every_update_once_three_were_alike(heard: Heard, passes: int, end: Callable):
    train(8, passes, end)
    assert steps_heard(heard) == 5
    (note,) = [word for word in heard.words if word != "stepped"]
    assert ("every backward pass" if passes == 1 else "4 backward passes") in note


def test_passes_that_only_accumulate_are_no_steps(heard: Heard):
    train(1, passes=20)
    assert heard.words == []


def test_a_pass_inside_another_is_part_of_it(heard: Heard):
    weight = torch.ones(3, requires_grad=True)
    for _ in range(8):
        checkpoint(lambda w: w * w, weight * 1, use_reentrant=True).sum().backward()
        weight.grad = None
    assert steps_heard(heard) == 5


def test_the_stand_in_holds_what_is_trained(heard: Heard):
    weight = train(1)
    (group,) = steps.own_update.param_groups
    assert [id(parameter) for parameter in group["params"]] == [id(weight)]


def test_where_there_is_an_optimizer_backward_is_no_step(heard: Heard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steps, "own_update", steps.own_update)
    module = SimpleNamespace(register_optimizer_step_post_hook=lambda hook: None, Optimizer=type("Optimizer", (), {}))
    steps.wrap_optimizer(module)
    module.Optimizer()
    train(8)
    assert heard.words == []


def test_a_marked_step_is_the_only_one(heard: Heard):
    train(1)
    steps.own_update.marked()
    train(8)
    assert heard.words == ["stepped"]
