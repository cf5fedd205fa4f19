"""Steps of loops without torch.optim: distinguished from accumulation by what became of the gradients."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from listening import Recorder
from torch._functorch import eager_transforms
from torch.utils.checkpoint import checkpoint

from stash.measure.agent import script
from stash.measure.agent.wraps import steps


@pytest.fixture
def listener(listener: Recorder, monkeypatch) -> Recorder:
    monkeypatch.setattr(steps, "own_update", steps.OwnUpdate())
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    monkeypatch.setattr(torch.autograd, "grad", torch.autograd.grad)
    monkeypatch.setattr(
        eager_transforms, "grad_and_value_impl", eager_transforms.grad_and_value_impl
    )
    steps.wrap_backward(torch.autograd)
    steps.wrap_functorch(eager_transforms)
    return listener


def clear(weight: torch.Tensor):
    weight.grad = None


def zero(weight: torch.Tensor):
    weight.grad.zero_()


def zero_unnoticed(weight: torch.Tensor):
    weight.grad.data.zero_()


def train(cycles, passes=1, end: Callable[[torch.Tensor], None] = clear) -> torch.Tensor:
    """``cycles`` updates of ``passes`` backward passes each; the value is what was trained."""
    weight = torch.ones(3, requires_grad=True)
    for _ in range(cycles):
        for _ in range(passes):
            (weight * torch.ones(3)).sum().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        end(weight)
    return weight


def steps_counted(listener: Recorder):
    return listener.events.count("stepped")


@pytest.mark.parametrize("end", [clear, zero, zero_unnoticed])
@pytest.mark.parametrize("passes", [1, 4])
def test_a_step_is_counted_for_every_update_once_three_were_alike(listener: Recorder, passes, end):
    train(8, passes, end)
    assert steps_counted(listener) == 5
    (note,) = [event for event in listener.events if event != "stepped"]
    assert ("every backward pass" if passes == 1 else "4 backward passes") in note


def test_passes_that_only_accumulate_are_no_steps(listener: Recorder):
    train(1, passes=20)
    assert listener.events == []


def test_a_pass_inside_another_is_part_of_it(listener: Recorder):
    weight = torch.ones(3, requires_grad=True)
    for _ in range(8):
        checkpoint(lambda w: w * w, weight * 1, use_reentrant=True).sum().backward()
        weight.grad = None
    assert steps_counted(listener) == 5


def test_the_stand_in_holds_what_is_trained(listener: Recorder):
    weight = train(1)
    (group,) = steps.own_update.param_groups
    assert [id(parameter) for parameter in group["params"]] == [id(weight)]


def test_where_there_is_an_optimizer_backward_is_no_step(listener: Recorder, monkeypatch):
    monkeypatch.setattr(steps, "own_update", steps.own_update)
    module = SimpleNamespace(
        register_optimizer_step_pre_hook=lambda hook: None,
        register_optimizer_step_post_hook=lambda hook: None,
        Optimizer=type("Optimizer", (), {"zero_grad": None}),
    )
    steps.wrap_optimizer(module)
    module.Optimizer()
    train(8)
    assert listener.events == []


def test_a_marked_step_is_the_only_one(listener: Recorder):
    train(1)
    steps.own_update.mark_step()
    train(8)
    assert listener.events == ["stepped"]


def of_function(weight: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda w: (w * w).sum())(weight)


def of_graph(weight: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad((weight * weight).sum(), [weight])[0]


@pytest.mark.parametrize("gradients", [of_function, of_graph])
def test_calls_for_gradients_are_steps_once_there_were_three(listener: Recorder, gradients):
    weight = torch.ones(3, requires_grad=gradients is of_graph)
    before = script.passes()
    for _ in range(8):
        weight = (weight - 0.1 * gradients(weight)).detach().requires_grad_(weight.requires_grad)
    assert steps_counted(listener) == 5
    assert script.passes() == before + 8
    (note,) = [event for event in listener.events if event != "stepped"]
    assert "calls for gradients" in note


def test_gradients_beside_backward_passes_are_no_steps(listener: Recorder):
    train(1)
    for _ in range(8):
        of_graph(torch.ones(3, requires_grad=True))
    assert listener.events == []


def test_a_compiled_function_that_calls_for_gradients_stays_whole(listener: Recorder):
    compiled = torch.compile(of_function, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
