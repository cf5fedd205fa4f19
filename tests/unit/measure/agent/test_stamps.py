"""Stamps of a step by hand: stages add up to it, late gradients were no wait, other threads are not seen."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import FrameType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from stash.measure.agent import private
from stash.measure.agent.runner.device_stages import DeviceStages
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.runner.step_stages import NO_STEP, Mark
from stash.measure.agent.script import bus
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.protocol.stamped import FIELDS, StampedStep, StepStage


class Moments:
    """A clock that is told what to show."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Moments:
    return Moments()


@pytest.fixture
def stamps(clock: Moments) -> Stamps:
    return Stamps(clock)


def step_of(clock: Moments, stamps: Stamps, *events: tuple[float, ThreadEvent]) -> StampedStep:
    """The row of a step with these events, each with its moment."""
    for moment, event in events:
        clock.now = moment
        stamps.tell(event)
    return stamps.block_steps()[-1]


def test_what_stash_does_after_a_step_is_no_part_of_the_next(
    clock: Moments, stamps: Stamps
) -> None:
    first = step_of(clock, stamps, (2.0, ThreadEvent.REPLAYED), (5.0, ThreadEvent.STEP_ENDED))
    assert (
        first.seconds_in(StepStage.BETWEEN),
        first.seconds_in(StepStage.FORWARD),
        first.number,
    ) == (2, 3, 1)
    own = [
        (6.0, ThreadEvent.COLLECTIVE_BEGINS),
        (7.0, ThreadEvent.COLLECTIVE_ENDED),
        (9.0, ThreadEvent.STEP_BEGINS),
    ]
    second = step_of(clock, stamps, *own, (10.0, ThreadEvent.STEP_ENDED))
    assert sum(second.stages) == second.ended - second.began == 1


def test_what_other_threads_wait_for_does_not_count(clock: Moments, stamps: Stamps) -> None:
    other = threading.Thread(target=stamps.tell, args=(ThreadEvent.COLLECTIVE_BEGINS,))
    other.start()
    other.join()
    assert step_of(clock, stamps, (4.0, ThreadEvent.STEP_ENDED)).seconds_in(StepStage.BETWEEN) == 4


def test_the_last_of_the_gradients_that_are_followed_ends_the_backward_pass(
    clock: Moments, stamps: Stamps
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    stamps.follow(list(model.parameters()))
    stamps.tell(ThreadEvent.BACKWARD_BEGINS)
    model(torch.ones(1, 2)).sum().backward()
    found = step_of(clock, stamps, (4.0, ThreadEvent.BACKWARD_ENDED), (5.0, ThreadEvent.STEP_ENDED))
    assert (found.seconds_in(StepStage.EXCHANGE), found.gradients) == (4, True)
    stamps.let_go()
    assert not stamps.sees_exchange


def test_delays_are_read_only_where_a_row_has_one(clock: Moments, stamps: Stamps) -> None:
    # GIVEN a kernel that is asked for the delay of the thread, and says something else each time
    answers = itertools.count(1.0)

    class Queue:
        latest, read_at = 0.5, float("-inf")

        def sample(self, now: float) -> float:
            self.latest = next(answers)
            return self.latest

    queue: Any = Queue()
    stamps.followed = replace(stamps.followed, queue=queue)
    events = ("READ_ENDED", "BACKWARD_BEGINS", "BACKWARD_ENDED", "STEP_ENDED")
    # WHEN a step reads, computes, and ends
    stamps.tell(ThreadEvent.READ_BEGINS, 0)
    found = step_of(clock, stamps, *((1.0, ThreadEvent[name]) for name in events))
    # THEN it was asked where waiting begins and ends, and at the step's end; and once more where exchange ends
    assert (found.input_delay, next(answers)) == (1.0, 4.0)
    stamps.follow([torch.nn.Parameter(torch.zeros(1))])
    stamps.tell(ThreadEvent.BACKWARD_BEGINS)
    step_of(clock, stamps, (2.0, ThreadEvent.BACKWARD_ENDED), (3.0, ThreadEvent.STEP_ENDED))
    assert next(answers) == 7.0


def test_a_stamped_step_is_a_handful_of_calls(clock: Moments, stamps: Stamps) -> None:
    names = ("READ_ENDED", "BACKWARD_BEGINS", "BACKWARD_ENDED", "STEP_ENDED", "STEP_BEGINS")
    events, calls = [ThreadEvent[name] for name in names], []

    def note_call(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is not Moments.__call__.__code__:
            calls.append(frame.f_code.co_name)

    # GIVEN a step before, in which the kernel is asked for what it is asked for now and then
    step_of(clock, stamps, (1.0, ThreadEvent.STEP_ENDED))
    # WHEN a step's six events are told THEN each is kept, with the thread's delay where a row has one
    sys.setprofile(note_call)
    stamps.tell(ThreadEvent.READ_BEGINS, 0)
    for event in events:
        stamps.tell(event)
    sys.setprofile(None)
    assert len(calls) <= 22, calls


class Event:
    """Of a device that comes to an event when it is told to."""

    moments = itertools.count()

    def __init__(self) -> None:
        self.at, self.come = 0, False

    def record(self, stream: object = None) -> None:
        self.at, self.come = next(self.moments), False

    def query(self) -> bool:
        return self.come

    def elapsed_time(self, other: Event) -> float:
        return 1e3 * (other.at - self.at)


@pytest.fixture
def made() -> list[Event]:
    return []


@pytest.fixture
def stages(made: list[Event]) -> DeviceStages:
    def event(enable_timing: bool) -> Event:
        made.append(Event())
        return made[-1]

    stages = DeviceStages()
    stages._event, stages._captures, stages._stream = event, bool, lambda: None
    return stages


def marked(stages: DeviceStages, *begun: StepStage, first: Mark | None = None) -> list[Mark]:
    """Marks of a step of these stages, whose first may be the last mark of the one before."""
    marks = [] if first is None else [first]
    return marks + [
        (int(stage), 0.0, 0.0, 0, stages.record_event()) for stage in (*begun, StepStage.BETWEEN)
    ]


def test_on_a_device_a_step_is_told_once_its_last_event_is_done(
    stages: DeviceStages, made: list[Event]
) -> None:
    marks = marked(
        stages, StepStage.BETWEEN, StepStage.FORWARD, StepStage.BACKWARD, StepStage.EXCHANGE
    )
    stages.close([9.0] * FIELDS, marks)
    assert list(stages.take_finished()) == []
    made[-1].come = True
    (row,) = stages.take_finished()
    assert row[StepStage.BETWEEN : StepStage.OPTIMIZER + 1] == [1, 0, 0, 1, 1, 1, 0, 0]
    marked(stages, StepStage.FORWARD, first=marks[-1])
    assert len(made) == 5  # events are used again; the last one begins the next step


def test_what_a_device_waits_for_between_two_steps_belongs_to_none(
    stages: DeviceStages, made: list[Event]
) -> None:
    marks = marked(stages)
    for _ in range(3):
        _, *ended = marks[-1]  # a moment after the last step's end
        marks = marked(stages, StepStage.BETWEEN, StepStage.FORWARD, first=(NO_STEP, *ended))
        stages.close([9.0] * FIELDS, marks)
        for event in made:
            event.come = True
        (row,) = stages.take_finished()
        assert sum(row[StepStage.BETWEEN : StepStage.OPTIMIZER + 1]) == 2
    assert len(made) == 4  # events are used again


def test_no_event_is_put_into_a_graph_that_is_captured(
    stages: DeviceStages, made: list[Event]
) -> None:
    begun, ended = marked(stages)[0], marked(stages)[0]
    stages._captures = lambda: True
    captured = marked(stages, StepStage.BACKWARD)
    stages.close([9.0] * FIELDS, [begun, *captured, ended])
    made[-1].come = True
    (row,) = stages.take_finished()
    assert row[StepStage.BETWEEN : StepStage.OPTIMIZER + 1] == [1, 0, 0, 0, 0, 0, 0, 0]


def test_events_are_of_the_device_that_trains_whichever_is_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded: list[object] = []

    class OfStream(Event):
        def record(self, stream: object = None) -> None:
            recorded.append(stream)

    monkeypatch.setattr(
        private, "current_stream", lambda cuda, device: lambda: f"stream of {device}"
    )
    stages = DeviceStages("cuda:1")
    stages._event, stages._captures = lambda enable_timing: OfStream(), bool
    stages.record_event()
    assert recorded == ["stream of cuda:1"]


def test_a_gradient_that_cannot_be_stamped_ends_stamps_and_no_training(
    stamps: Stamps, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[str] = []
    listener = SimpleNamespace(give_up=lambda error: errors.append(str(error)), listens=True)
    monkeypatch.setattr(bus, "listener", listener)
    model = torch.nn.Linear(2, 2)
    stamps.follow(list(model.parameters()))
    stamps.observers.append(Mock(side_effect=RuntimeError("event of another device")))
    model(torch.ones(1, 2)).sum().backward()
    assert set(errors) == {"event of another device"}
    assert not stamps.sees_exchange


@pytest.fixture
def asked(clock: Moments, stamps: Stamps) -> Callable[[float], float]:
    """Asks the device, which stamps follow, for work of so many seconds; until when it is busy."""
    until = 0.0

    class Queued(Event):
        def record(self, stream: object = None) -> None:
            self.at = max(clock.now, until)

        def query(self) -> bool:
            return clock.now >= self.at

    def asked(seconds: float) -> float:
        nonlocal until
        until = max(clock.now, until) + seconds
        return until

    stamps.follow_device()
    device = stamps._device
    assert device is not None
    device._event, device._captures, device._stream = (
        lambda enable_timing: Queued(),
        bool,
        lambda: None,
    )
    return asked


def test_what_a_host_that_runs_ahead_hides_is_hidden_in_a_block_too(
    clock: Moments, stamps: Stamps, asked: Callable[[float], float]
) -> None:
    """A batch takes 15 s to make and 20 s to train on: but for the first, all are made while the device trains."""
    for number in range(7):
        if number == 1:
            stamps.begin()
        clock.now += 15.0
        asked(20.0)
        stamps.tell(ThreadEvent.STEP_ENDED)
        clock.now += 1.0  # what Stash does between steps
        stamps.tell(ThreadEvent.STEP_BEGINS)
    clock.now = asked(0.0)
    assert [sum(step.stages) for step in stamps.block_steps()] == [20.0] * 6
    # it is 4 s ahead by every step, the one before the block too
    leads = stamps.host_leads(clock.now)
    assert leads == pytest.approx((24.0, 28.0, 32.0, 36.0, 40.0, 44.0), abs=1e-3)


@pytest.mark.parametrize(("submitting", "running", "ahead"), [(10.0, 1.0, 1.0), (1.0, 10.0, 10.0)])
def test_a_host_that_waits_for_the_device_every_step_is_ahead_by_what_the_device_takes_longer(
    clock: Moments,
    stamps: Stamps,
    asked: Callable[[float], float],
    submitting: float,
    running: float,
    ahead: float,
) -> None:
    stamps.begin()
    for _ in range(3):
        stamps.tell(ThreadEvent.STEP_BEGINS)
        clock.now += submitting
        ends = asked(running)
        stamps.tell(ThreadEvent.BACKWARD_ENDED)
        clock.now = ends  # it waits
        stamps.tell(ThreadEvent.STEP_ENDED)
    stamps.block_steps()
    assert stamps.host_leads(clock.now) == (ahead,) * 3
