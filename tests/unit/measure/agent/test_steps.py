"""Where a script steps: its optimizers, AMP's scaler when it skips one, schedulers that have had enough."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from listening import Recorder

from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import steps


def sgd() -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    return torch.optim.SGD([weight], lr=0.1)


def optimizers(hooks) -> SimpleNamespace:
    """Stands for ``torch.optim.optimizer``."""
    return SimpleNamespace(
        register_optimizer_step_pre_hook=lambda hook: None,
        register_optimizer_step_post_hook=hooks.append,
        Optimizer=type("Optimizer", (), {"zero_grad": lambda self: "cleared"}),
    )


def test_clearing_gradients_has_events_of_its_own(listener: Recorder, monkeypatch):
    monkeypatch.setattr(listener, "handle", lambda event, about=None: listener.events.append(event))
    module = optimizers([])
    steps.wrap_optimizer(module)
    layers = SimpleNamespace(Module=type("Module", (), {"zero_grad": lambda self: "cleared"}))
    steps.wrap_module(layers)
    assert module.Optimizer().zero_grad() == layers.Module().zero_grad() == "cleared"
    assert listener.events == [ThreadEvent.CLEARING_BEGINS, ThreadEvent.CLEARING_ENDED] * 2


def test_every_optimizer_step_is_noticed(listener: Recorder):
    hooks = []
    steps.wrap_optimizer(optimizers(hooks))
    (hook,) = hooks
    hook(sgd(), (), {})
    assert listener.events == ["stepped"]
    listener.listens = False
    hook(sgd(), (), {})
    assert listener.events == ["stepped"]


class Scaler:
    """Skips the step where gradients overflowed."""

    overflows = False

    def step(self, optimizer: torch.optim.Optimizer):
        if not self.overflows:
            optimizer.step()
        return "result"


def test_a_step_that_loss_scaling_skips_is_a_step_of_the_loop_all_the_same(listener: Recorder):
    module = SimpleNamespace(GradScaler=type("GradScaler", (Scaler,), {"step": Scaler.step}))
    steps.wrap_scaler(module)
    hooks = []
    steps.wrap_optimizer(optimizers(hooks))
    scaler, optimizer = module.GradScaler(), sgd()
    optimizer.register_step_post_hook(hooks[0])  # PyTorch's own is for all optimizers
    assert scaler.step(optimizer) == "result"
    assert listener.events == ["stepped"]
    listener.events.clear()
    scaler.overflows = True
    assert scaler.step(optimizer) == "result"
    assert listener.events == [
        "loss scaling skipped optimizer steps; those steps lack the optimizer's own time",
        "stepped",
    ]


def test_a_schedule_that_is_over_is_passed_over_while_a_profile_is_taken(listener: Recorder):
    class OneCycleLR:
        def step(self):
            raise ValueError("Tried to step 3 times")

    steps.wrap_schedulers(SimpleNamespace(OneCycleLR=OneCycleLR))
    OneCycleLR().step()
    listener.listens = False
    with pytest.raises(ValueError, match="Tried to step"):
        OneCycleLR().step()
