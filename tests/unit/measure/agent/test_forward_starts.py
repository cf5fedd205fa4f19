"""Where a forward pass begins: copies of batches to a device that is a fake, and the first module's calls."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

from stash.measure.agent import script
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.runner.watched_run import WatchedRun
from stash.measure.agent.wraps.forward_starts import BatchCopies, FirstModule, follow_calls
from stash.measure.protocol.stamped import StampedStep, StepStage

Step = Callable[[Callable[[], object]], StampedStep]


class Seconds:
    """A clock that copies, and whoever else takes time, move on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def stamps(clock: Seconds) -> Iterator[Stamps]:
    """Those of a script that is listened to."""
    listener = script.Listener()
    listener.listens, listener.stamps = True, Stamps(clock)
    script.subscribe(listener)
    yield listener.stamps
    script.unsubscribe()


@pytest.fixture
def step(clock: Seconds, stamps: Stamps) -> Step:
    def step(act: Callable[[], object]) -> StampedStep:
        stamps.step_begins()
        act()
        stamps.step_ends(clock.now)
        return stamps.ring.rows(0)[-1]

    return step


class Stream:
    device_index = 0


class Streams:
    """Of the fake device; ``current`` is the calling thread's."""

    def __init__(self, clock: Seconds) -> None:
        self.current, self._clock = Stream(), clock

    def copying(self) -> None:
        self._clock.now += 4.0


@pytest.fixture
def streams(clock: Seconds, stamps: Stamps, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """A device where a copy from the host takes 4 s, for which the host waits; tensors on it are the host's."""
    streams = Streams(clock)

    def fake(original: Any) -> Any:
        @functools.wraps(original)  # Dynamo goes by the name
        def copy(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not (args or kwargs) or "cuda" in str((args, kwargs)):
                streams.copying()
                return tensor
            return original(tensor, *args, **kwargs)

        return copy

    for name in ("to", "cuda", "copy_"):
        monkeypatch.setattr(torch.Tensor, name, fake(getattr(torch.Tensor, name)))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: streams.current)
    BatchCopies()
    return streams


@pytest.fixture
def compiled() -> Iterator[Any]:
    """What Dynamo counts; afterwards nothing, for Stash asks it whether a job is compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


HOST = torch.ones(2)


@pytest.mark.parametrize(
    ("copy", "seconds"),
    [
        (lambda: HOST.to("cuda"), 4),
        (lambda: HOST.to("cuda:0", non_blocking=True), 4),
        (lambda: HOST.to(device=torch.device("cuda")), 4),
        (lambda: HOST.to("cuda", copy=True), 4),
        (lambda: [HOST.cuda()], 4),
        (lambda: HOST.to("cuda:1"), 0),
        (lambda: HOST.to(torch.float64), 0),
        (lambda: HOST.to(dtype=torch.float64), 0),
        (lambda: HOST.to(HOST), 0),
        (lambda: HOST.to(tensor=HOST), 0),
        (lambda: nn.Linear(1, 1).to("cuda"), 0),  # no batch: a module moves its parameters without gradients
        (lambda: [HOST.to("cuda"), HOST.to("cuda")], 8),
    ],
)
@pytest.mark.usefixtures("streams")
def test_copies_of_host_tensors_to_the_current_device_are_transfer(
    step: Step, copy: Callable[[], object], seconds: float
) -> None:
    assert step(copy).of(StepStage.TRANSFER) == seconds


@pytest.mark.usefixtures("streams")
def test_a_tensor_that_is_there_already_takes_a_copy_of_a_host_tensor(step: Step, monkeypatch: Any) -> None:
    class There(SimpleNamespace):
        is_cuda, device = True, torch.device("cuda", 0)

    def filled(tensor: Any) -> StampedStep:
        return step(lambda: torch.Tensor.copy_(There(), tensor, "cuda"))

    assert filled(HOST).of(StepStage.TRANSFER) == 4
    assert step(lambda: torch.Tensor.copy_(There(), src=HOST, non_blocking="cuda")).of(StepStage.TRANSFER) == 4
    assert filled(There()).of(StepStage.TRANSFER) == 0


def test_a_copy_in_another_stream_is_none_that_the_device_waited_for(step: Step, streams: Streams) -> None:
    streams.current = Stream()
    found = step(lambda: HOST.to("cuda"))
    assert (found.of(StepStage.TRANSFER), found.of(StepStage.BETWEEN)) == (0, 4)


@pytest.mark.usefixtures("streams")
def test_a_copy_goes_back_to_the_stage_that_it_was_in(step: Step, stamps: Stamps, clock: Seconds) -> None:
    def act() -> None:
        stamps.wait_ends(clock.now, stamps.wait_begins(clock.now), 0)
        HOST.to("cuda")
        clock.now += 2.0

    found = step(act)
    assert (found.of(StepStage.TRANSFER), found.of(StepStage.FORWARD)) == (4, 2)


def test_of_a_copy_it_is_the_time_in_the_queue_that_counts(
    clock: Seconds, stamps: Stamps, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device copies for 4 s and computes for 10; the host, which asks for that in no time, makes a batch in 6."""
    queue = 0.0

    class Queued:
        at = 0.0

        def record(self) -> None:
            self.at = max(clock.now, queue)

        def query(self) -> bool:
            return clock.now >= self.at

        def elapsed_time(self, other: Queued) -> float:
            return 1e3 * (other.at - self.at)

    def takes(seconds: float) -> None:
        nonlocal queue
        queue = max(clock.now, queue) + seconds

    stamps.follow_device()
    device = stamps._device
    assert device is not None
    device._event, device._captures = lambda enable_timing: Queued(), bool
    monkeypatch.setattr(streams, "copying", lambda: takes(4.0))
    for _ in range(5):
        delay = stamps.wait_begins(clock.now)
        clock.now += 6.0
        stamps.wait_ends(clock.now, delay, 0)
        HOST.to("cuda", non_blocking=True)
        takes(10.0)
        stamps.step_ends(clock.now)
    clock.now = queue
    stamps.flush()
    last = stamps.ring.rows(0)[-1]
    assert [last.of(stage) for stage in (StepStage.INPUT, StepStage.TRANSFER, StepStage.FORWARD)] == [0, 4, 10]


@pytest.mark.usefixtures("streams")
def test_copies_in_waits_validation_and_other_threads_are_no_transfer(step: Step, stamps: Stamps) -> None:
    def act() -> None:
        with torch.no_grad():
            HOST.to("cuda")
        other = threading.Thread(target=HOST.to, args=("cuda",))
        other.start()
        other.join()
        stamps.enter(StepStage.INPUT)
        HOST.to("cuda")

    assert step(act).of(StepStage.TRANSFER) == 0


@pytest.mark.usefixtures("streams")
def test_compiled_code_is_compiled_as_before(compiled: Any) -> None:
    def doubled(tensor: torch.Tensor) -> torch.Tensor:
        return (tensor.to(torch.float64) * 2).to("cpu").to(torch.float32)

    act = torch.compile(doubled, backend="eager", fullgraph=True)
    assert act(HOST).tolist() == act(HOST).tolist() == [2, 2]
    assert compiled["stats"]["unique_graphs"] == 1


class Slow(nn.Module):
    """Takes 3 s."""

    def __init__(self, clock: Seconds) -> None:
        super().__init__()
        self.clock, self.layer = clock, nn.Linear(2, 1)

    def forward(self, inputs: Any) -> Any:
        self.clock.now += 3.0
        return self.layer(inputs)


@pytest.fixture
def model(clock: Seconds) -> Slow:
    """Of a class of its own, which a test may follow."""
    return type("Model", (Slow,), {})(clock)


def trains(clock: Seconds, stamps: Stamps, model: Any, micro_batches: int = 1) -> Callable[[], None]:
    """Each micro-batch is made in 2 s, seen by no loader, and given back in 1 s; so are 5 s of an update."""

    def act() -> None:
        for _ in range(micro_batches):
            clock.now += 2.0
            model(HOST)
            stamps.backward_begins()
            clock.now += 1.0
            stamps.backward_ended()
        clock.now += 5.0

    return act


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_copies_are_followed_where_the_parameters_are_on_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    made: list[str] = []
    monkeypatch.setattr(BatchCopies, "of_process", lambda: made.append("copies"))
    monkeypatch.setattr(Stamps, "follow_device", lambda stamps: made.append("device"))
    parameter = SimpleNamespace(device=SimpleNamespace(type=kind))
    run = WatchedRun(SimpleNamespace(folder=str(tmp_path)))  # type: ignore[arg-type]
    run._begin(SimpleNamespace(param_groups=[{"params": [parameter]}]))
    assert made == (["device", "copies"] if kind == "cuda" else [])


def test_what_makes_batches_is_told_from_the_forward_pass_once_its_module_is_known(
    clock: Seconds, stamps: Stamps, step: Step, model: Slow
) -> None:
    call, act = nn.Module.__call__, trains(clock, stamps, model)
    before = step(act)
    look = FirstModule()
    step(act)
    assert look.end()
    assert nn.Module.__call__ is call
    after = step(act)
    stages = (StepStage.BETWEEN, StepStage.FORWARD, StepStage.BACKWARD, StepStage.OPTIMIZER)
    assert [before.of(stage) for stage in stages] == [5, 0, 1, 5]
    assert [after.of(stage) for stage in stages] == [2, 3, 1, 5]


def test_of_an_accumulated_step_every_micro_batch_is(clock: Seconds, stamps: Stamps, step: Step, model: Slow) -> None:
    follow_calls(type(model))
    found = step(trains(clock, stamps, model, micro_batches=3))
    stages = (StepStage.BETWEEN, StepStage.FORWARD, StepStage.BACKWARD, StepStage.OPTIMIZER)
    assert [found.of(stage) for stage in stages] == [6, 9, 3, 5]


def test_the_update_of_another_optimizer_makes_no_batch(
    clock: Seconds, stamps: Stamps, step: Step, model: Slow
) -> None:
    follow_calls(type(model))

    def act() -> None:
        trains(clock, stamps, model)()
        stamps.updated = True
        trains(clock, stamps, model)()

    assert step(act).of(StepStage.OPTIMIZER) == 5 + 2 + 5


def test_modules_without_gradients_and_layers_that_are_called_by_hand_are_not_followed(stamps: Stamps) -> None:
    look = FirstModule()
    nn.ReLU()(HOST)
    with torch.no_grad():
        nn.Linear(2, 2)(HOST)
    assert not look.end()
    layers = [nn.Linear(2, 2) for _ in range(5)]
    look = FirstModule()
    for layer in layers:
        layer(HOST)
    assert not look.end()
    assert "__call__" not in vars(nn.Linear)


@pytest.mark.parametrize("how", ["module", "in place", "function"])
def test_compiled_models_are_compiled_no_more_often(compiled: Any, stamps: Stamps, how: str) -> None:
    class Model(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs)

    options: dict[str, Any] = {"backend": "eager", "fullgraph": True, "dynamic": False}
    model = inner = Model(2, 1)
    if how == "module":
        model = torch.compile(inner, **options)
    elif how == "in place":
        inner.compile(**options)

    def forward(inputs: torch.Tensor) -> Any:
        return model(inputs)

    called = torch.compile(forward, **options) if how == "function" else model
    called(torch.ones(1, 2))
    look = FirstModule()
    called(torch.ones(1, 2))
    seen, own = look._found, type(model).__call__
    try:
        assert look.end() == (how != "function")  # that one's call is in the compiled code
        assert seen is (None if how == "function" else type(model))
        follow_calls(Model)  # … also where the followed class is compiled code
        for rows in (1, 3, 3):
            called(torch.ones(rows, 2))
    finally:
        if how == "module":
            type(model).__call__ = own
    assert compiled["stats"]["unique_graphs"] == 2
    assert not compiled["graph_break"]
