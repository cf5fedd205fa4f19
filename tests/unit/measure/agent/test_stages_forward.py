"""Where a forward pass begins: copies of batches to a device that is a fake."""

from __future__ import annotations

import functools
import threading
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo
from stamped_steps import Seconds, Step
from torch import nn

from stash.measure.agent import private
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.runner.watched_run import WatchedRun
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps.stages import BatchCopies
from stash.measure.protocol.stamped import StampedStep, StepStage


class Stream:
    device_index = 0


class Streams:
    """Of the fake device; ``current`` is the calling thread's."""

    def __init__(self, clock: Seconds):
        self.current, self._clock = Stream(), clock

    def copying(self):
        self._clock.now += 4.0


@pytest.fixture
def streams(clock: Seconds, stamps: Stamps, monkeypatch) -> Streams:
    """A device where a copy from the host takes 4 s, for which the host waits; tensors on it are the host's."""
    streams = Streams(clock)

    def fake(original):
        @functools.wraps(original)  # Dynamo goes by the name
        def copy(tensor, /, *args, **kwargs):
            if not (args or kwargs) or "cuda" in str((args, kwargs)):
                streams.copying()
                return tensor
            return original(tensor, *args, **kwargs)

        return copy

    for name in ("to", "cuda", "copy_"):
        monkeypatch.setattr(torch.Tensor, name, fake(getattr(torch.Tensor, name)))
    monkeypatch.setattr(
        private, "current_stream", lambda cuda, device=None: lambda: streams.current
    )
    BatchCopies()
    return streams


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
        (
            lambda: nn.Linear(1, 1).to("cuda"),
            0,
        ),  # no batch: a module moves its parameters without gradients
        (lambda: [HOST.to("cuda"), HOST.to("cuda")], 8),
    ],
)
@pytest.mark.usefixtures("streams")
def test_copies_of_host_tensors_to_the_current_device_are_transfer(step: Step, copy, seconds):
    assert step(copy).seconds_in(StepStage.TRANSFER) == seconds


@pytest.mark.usefixtures("streams")
def test_a_tensor_that_is_there_already_takes_a_copy_of_a_host_tensor(step: Step, monkeypatch):
    class There(SimpleNamespace):
        is_cuda, device = True, torch.device("cuda", 0)

    def filled(tensor) -> StampedStep:
        return step(lambda: torch.Tensor.copy_(There(), tensor, "cuda"))

    assert filled(HOST).seconds_in(StepStage.TRANSFER) == 4
    assert (
        step(lambda: torch.Tensor.copy_(There(), src=HOST, non_blocking="cuda")).seconds_in(
            StepStage.TRANSFER
        )
        == 4
    )
    assert filled(There()).seconds_in(StepStage.TRANSFER) == 0


def test_a_copy_in_another_stream_is_none_that_the_device_waited_for(step: Step, streams: Streams):
    streams.current = Stream()
    found = step(lambda: HOST.to("cuda"))
    assert (found.seconds_in(StepStage.TRANSFER), found.seconds_in(StepStage.BETWEEN)) == (0, 4)


@pytest.fixture
def takes(clock: Seconds, stamps: Stamps, streams: Streams, monkeypatch):
    """Asks the device, which copies for 4 s, for work of so many seconds; the host does not wait."""
    queue = 0.0

    class Queued:
        at = 0.0

        def record(self, stream=None):
            self.at = max(clock.now, queue)

        def query(self):
            return clock.now >= self.at

        def elapsed_time(self, other: Queued):
            return 1e3 * (other.at - self.at)

    def takes(seconds):
        nonlocal queue
        queue = max(clock.now, queue) + seconds

    stamps.follow_device()
    device = stamps._device
    device._event, device._captures, device._stream = (
        lambda enable_timing: Queued(),
        bool,
        lambda: None,
    )
    monkeypatch.setattr(streams, "copying", lambda: takes(4.0))
    return takes


def last_of(stamps: Stamps, clock: Seconds) -> StampedStep:
    """The last step, once the device has done all of it."""
    clock.now += 1000.0
    stamps.flush()
    return stamps.block_steps()[-1]


def test_of_a_copy_it_is_the_time_in_the_queue_that_counts(clock: Seconds, stamps: Stamps, takes):
    """The device copies for 4 s and computes for 10; the host, which asks for that in no time, makes a batch in 6."""
    for _ in range(5):
        stamps.tell(ThreadEvent.READ_BEGINS, 0)
        clock.now += 6.0
        stamps.tell(ThreadEvent.READ_ENDED)
        HOST.to("cuda", non_blocking=True)
        takes(10.0)
        stamps.tell(ThreadEvent.STEP_ENDED)
    last = last_of(stamps, clock)
    assert [
        last.seconds_in(stage) for stage in (StepStage.INPUT, StepStage.TRANSFER, StepStage.FORWARD)
    ] == [
        0,
        4,
        10,
    ]


def test_updates_of_several_optimizers_are_told_apart_in_the_queue_too(
    clock: Seconds, stamps: Stamps, takes
):
    """One beside the counted one, 4 s, another after a pass of its own, 5 s; what is made on the device takes 2."""
    for _ in range(3):
        takes(4.0)
        stamps.tell(ThreadEvent.UPDATED_BESIDE)
        for _ in range(2):
            takes(2.0)
            stamps.tell(ThreadEvent.MODEL_CALLED)
            takes(3.0)
            stamps.tell(ThreadEvent.BACKWARD_BEGINS)
            takes(1.0)
            stamps.tell(ThreadEvent.BACKWARD_ENDED)
            takes(5.0)
            stamps.tell(ThreadEvent.UPDATED_BEFORE)
        stamps.tell(ThreadEvent.STEP_ENDED)
    last = last_of(stamps, clock)
    stages = (StepStage.BETWEEN, StepStage.FORWARD, StepStage.BACKWARD, StepStage.OPTIMIZER)
    assert [last.seconds_in(stage) for stage in stages] == [4, 6, 2, 14]


@pytest.mark.usefixtures("streams")
def test_copies_in_waits_validation_and_other_threads_are_no_transfer(step: Step, stamps: Stamps):
    def act():
        with torch.no_grad():
            HOST.to("cuda")
        other = threading.Thread(target=HOST.to, args=("cuda",))
        other.start()
        other.join()
        stamps.tell(ThreadEvent.READ_BEGINS, 0)
        HOST.to("cuda")

    assert step(act).seconds_in(StepStage.TRANSFER) == 0


@pytest.mark.usefixtures("streams")
def test_compiled_code_is_compiled_as_before(compiled):
    def doubled(tensor: torch.Tensor) -> torch.Tensor:
        return (tensor.to(torch.float64) * 2).to("cpu").to(torch.float32)

    act = torch.compile(doubled, backend="eager", fullgraph=True)
    assert act(HOST).tolist() == act(HOST).tolist() == [2, 2]
    assert compiled["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_copies_are_followed_where_the_parameters_are_on_cuda(tmp_path, monkeypatch, kind):
    made: list[str] = []
    monkeypatch.setattr(BatchCopies, "follow_process", lambda device: made.append("copies"))
    monkeypatch.setattr(Stamps, "follow_device", lambda stamps, device: made.append("device"))
    parameter = SimpleNamespace(device=SimpleNamespace(type=kind))
    run = WatchedRun(SimpleNamespace(folder=str(tmp_path)))  # type: ignore[arg-type]
    run._begin(SimpleNamespace(param_groups=[{"params": [parameter]}]))
    assert made == (["device", "copies"] if kind == "cuda" else [])
