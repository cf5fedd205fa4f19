"""Where a forward pass begins: calls of the models that a step was seen to call; and where passes and updates end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stamped_steps import Seconds, Step
from torch import nn

from stash.measure.agent import script
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.runner.watched_run import WatchedRun
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps.stages import CalledModels, follow_calls, wrap_compilation
from stash.measure.agent.wraps.steps import wrap_backward
from stash.measure.protocol.orders import Orders
from stash.measure.protocol.stamped import StepStage

HOST = torch.ones(2)


class Slow(nn.Module):
    """Takes 3 s."""

    def __init__(self, clock: Seconds):
        super().__init__()
        self.clock, self.layer = clock, nn.Linear(2, 1)

    def forward(self, inputs):
        self.clock.now += 3.0
        return self.layer(inputs)


@pytest.fixture
def model(clock: Seconds) -> Slow:
    """Of a class of its own, which a test may follow."""
    return type("Model", (Slow,), {})(clock)


def test_modules_without_gradients_and_layers_that_are_called_by_hand_are_not_followed(
    stamps: Stamps,
):
    look = CalledModels()
    nn.ReLU()(HOST)
    with torch.no_grad():
        nn.Linear(2, 2)(HOST)
    assert not look.end()
    layers = [nn.Linear(2, 2) for _ in range(5)]
    look = CalledModels()
    for layer in layers:
        layer(HOST)
    assert not look.end()
    assert "__call__" not in vars(nn.Linear)


def test_every_model_of_a_step_is_followed_and_what_they_are_made_of_is_not(
    clock: Seconds, stamps: Stamps, step: Step, model: Slow
):
    """As GANs have them: noise is made in 2 s, four models of a pass take 3 s each, a pass back 1 s."""

    class Unit(nn.Module):
        def __init__(self, *layers: nn.Module):
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, inputs):
            return sum(layer(inputs) for layer in self.layers)

    class Frozen(Slow):
        pass

    generator = Unit(model, *(Unit(nn.Linear(2, 1)) for _ in range(5)))
    critic, teacher = type("Critic", (Slow,), {})(clock), Frozen(clock).requires_grad_(False)

    def act():
        for each in (critic, generator):
            clock.now += 2.0
            teacher(HOST)
            generator(HOST)
            critic(HOST)
            each(HOST)
            stamps.tell(ThreadEvent.BACKWARD_BEGINS)
            clock.now += 1.0
            stamps.tell(ThreadEvent.BACKWARD_ENDED)

    call, before = nn.Module.__call__, step(act)
    look = CalledModels()
    step(act)
    assert look.end()
    assert nn.Module.__call__ is call
    assert set(look._most) == {Unit, type(critic), Frozen}
    found = step(act)
    stages = (StepStage.BETWEEN, StepStage.FORWARD, StepStage.BACKWARD, StepStage.OPTIMIZER)
    assert [before.seconds_in(stage) for stage in stages] == [14, 0, 2, 14]
    assert [found.seconds_in(stage) for stage in stages] == [4, 24, 2, 0]


def test_a_module_that_fails_has_no_part_in_what_follows(
    stamps: Stamps, step: Step, clock: Seconds
):
    class Fails(nn.Linear):
        def forward(self, inputs):
            clock.now += 3.0
            raise MemoryError

    def act():
        with pytest.raises(MemoryError):
            Fails(2, 1)(HOST)
        clock.now += 2.0
        stamps.tell(ThreadEvent.READ_BEGINS, 0)

    look = CalledModels()
    step(lambda: [act(), act()])
    assert look._most[Fails] == 2
    assert look.end()
    assert step(act).seconds_in(StepStage.FORWARD) == 5


def test_a_model_whose_parameters_cannot_be_listed_ends_the_watch_and_not_the_script(step: Step):
    class Odd(nn.Linear):
        def parameters(self, recurse=True):
            raise NotImplementedError

    failed: list[Exception] = []
    script.bus.listener.give_up = failed.append  # type: ignore[method-assign]
    look = CalledModels()
    step(lambda: Odd(2, 1)(HOST))
    assert not look.end()
    assert [type(error) for error in failed] == [NotImplementedError]


def test_stamps_that_fail_end_the_watch_and_not_the_script(stamps: Stamps):
    failed: list[Exception] = []
    script.bus.listener.give_up = failed.append  # type: ignore[method-assign]
    stamps.observers.append(lambda stage: 1 // 0)
    assert script.run_collective(lambda: 7) == 7
    assert [type(error) for error in failed] == [ZeroDivisionError] * 2


def test_a_backward_pass_that_fails_is_over(stamps: Stamps, step: Step, clock: Seconds):
    def backward(tensors):
        clock.now += 3.0
        raise MemoryError

    module = SimpleNamespace(backward=backward, grad=lambda: None)
    wrap_backward(module)  # type: ignore[arg-type]

    def act():
        with pytest.raises(MemoryError):
            module.backward(HOST)
        clock.now += 2.0

    found = step(act)
    assert (found.seconds_in(StepStage.BACKWARD), found.seconds_in(StepStage.OPTIMIZER)) == (3, 2)


@pytest.mark.parametrize("how", ["module", "in place", "function"])
def test_compiled_models_are_compiled_no_more_often(compiled, stamps: Stamps, how):
    class Model(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs)

    options: dict[str, Any] = {"backend": "eager", "fullgraph": True, "dynamic": False}
    model = inner = Model(2, 1)
    if how == "module":
        model = torch.compile(inner, **options)
    elif how == "in place":
        inner.compile(**options)

    def forward(inputs: torch.Tensor):
        return model(inputs)

    called = torch.compile(forward, **options) if how == "function" else model
    called(torch.ones(1, 2))
    look = CalledModels()
    called(torch.ones(1, 2))
    seen, own = list(look._most), type(model).__call__
    try:
        assert look.end() == (how != "function")  # that one's call is in the compiled code
        assert seen == ([] if how == "function" else [type(model)])
        follow_calls(Model)  # … also where the followed class is compiled code
        for rows in (1, 3, 3):
            called(torch.ones(rows, 2))
    finally:
        if how == "module":
            type(model).__call__ = own
    assert compiled["stats"]["unique_graphs"] == 2
    assert not compiled["graph_break"]


def test_a_pause_ends_the_look(tmp_path, clock: Seconds):
    call, run = nn.Module.__call__, WatchedRun(Orders(str(tmp_path), (), 0.0))
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    for _ in range(6):
        run.stepped(optimizer)
    assert nn.Module.__call__ is not call
    run._rest(run.loops.stamps)
    assert nn.Module.__call__ is call
    assert run.loops.stamps is None


def test_what_is_compiled_again_is_told_from_the_pass_that_it_interrupts(
    monkeypatch: pytest.MonkeyPatch,
):
    callback = pytest.importorskip("torch._dynamo.callback")
    monkeypatch.setattr(callback, "callback_handler", callback.CompilationCallbackHandler())
    events: list[ThreadEvent] = []
    monkeypatch.setattr(script, "publish", events.append)
    wrap_compilation(callback)
    with callback.callback_handler.install_callbacks(callback.CallbackTrigger.DYNAMO, "0/0"):
        assert events == [ThreadEvent.COMPILATION_BEGINS]
        with callback.callback_handler.install_callbacks(callback.CallbackTrigger.DYNAMO, "1/0"):
            pass
    assert events == [ThreadEvent.COMPILATION_BEGINS, ThreadEvent.COMPILATION_ENDED]
    # GIVEN versions of PyTorch that call them without arguments, or have none
    for tell in (
        *callback.callback_handler.start_callbacks,
        *callback.callback_handler.end_callbacks,
    ):
        tell()
    assert events == [ThreadEvent.COMPILATION_BEGINS, ThreadEvent.COMPILATION_ENDED] * 2
    wrap_compilation(SimpleNamespace())
