"""Stamps of a step by hand: stages add up to it, late gradients were no wait, other threads are not seen."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from stash.measure.agent import private
from stash.measure.agent.runner.device_stages import DeviceStages
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.script import bus
from stash.measure.protocol.stamped import FIELDS, StampedStep, StepStage


class Moments:
    """A clock that is told what to show."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def stamped(clock: Moments, stamps: Stamps, *, at: float, call: str, **arguments: Any) -> Any:
    clock.now = at
    return getattr(stamps, call)(**arguments)


@pytest.fixture
def clock() -> Moments:
    return Moments()


@pytest.fixture
def stamps(clock: Moments) -> Stamps:
    return Stamps(clock)


def one_step(clock: Moments, stamps: Stamps) -> StampedStep:
    delay = stamps.wait_begins(1.0)
    stamps.wait_ends(3.0, delay, 2)
    stamped(clock, stamps, at=6.0, call="backward_begins")
    stamped(clock, stamps, at=10.0, call="_last_gradient", parameter=None)
    stamped(clock, stamps, at=11.0, call="_last_gradient", parameter=None)
    stamped(clock, stamps, at=15.0, call="backward_ended")
    stamps.step_ends(16.0)
    return stamps.ring.rows(0)[-1]


def test_the_stages_of_a_step_add_up_to_it(clock: Moments, stamps: Stamps) -> None:
    step = one_step(clock, stamps)
    found = {stage.name: step.of(stage) for stage in StepStage}
    expected = {"BETWEEN": 1, "INPUT": 2, "FORWARD": 3, "BACKWARD": 5, "EXCHANGE": 4, "OPTIMIZER": 1}
    assert {name: seconds for name, seconds in found.items() if seconds} == expected
    assert sum(step.stages) == step.ended - step.began == 16
    assert step.inputs == (0, 0, 2, 0)


def test_what_stash_does_after_a_step_is_no_part_of_the_next(clock: Moments, stamps: Stamps) -> None:
    one_step(clock, stamps)
    stamped(clock, stamps, at=20.0, call="step_begins")
    stamps.step_ends(21.0)
    assert sum(stamps.ring.rows(0)[1].stages) == 1


def test_a_collective_goes_back_to_the_stage_that_called_it(clock: Moments, stamps: Stamps) -> None:
    stamped(clock, stamps, at=1.0, call="backward_begins")
    before = stamped(clock, stamps, at=2.0, call="enter", stage=StepStage.COLLECTIVE)
    assert before == StepStage.BACKWARD
    stamped(clock, stamps, at=5.0, call="enter", stage=before)
    stamps.step_ends(6.0)
    step = stamps.ring.rows(0)[0]
    assert (step.of(StepStage.COLLECTIVE), step.of(StepStage.BACKWARD)) == (3, 2)


def test_a_backward_pass_inside_another_is_part_of_it(clock: Moments, stamps: Stamps) -> None:
    for began in (0.0, 10.0):
        stamped(clock, stamps, at=began + 1, call="backward_begins")  # of the loss
        stamped(clock, stamps, at=began + 2, call="backward_begins")  # of what a checkpoint computed again
        stamped(clock, stamps, at=began + 3, call="backward_ended")
        stamped(clock, stamps, at=began + 5, call="backward_ended")
        stamps.step_ends(began + 10)
    for step in stamps.ring.rows(0):
        assert (step.of(StepStage.BACKWARD), step.of(StepStage.OPTIMIZER)) == (4, 5)


def test_what_other_threads_wait_for_does_not_count(clock: Moments, stamps: Stamps) -> None:
    other = threading.Thread(target=lambda: (stamps.wait_begins(1.0), stamps.enter(StepStage.COLLECTIVE)))
    other.start()
    other.join()
    stamps.step_ends(4.0)
    assert stamps.ring.rows(0)[0].of(StepStage.BETWEEN) == 4


def test_the_last_of_the_gradients_that_are_followed_ends_the_backward_pass(clock: Moments, stamps: Stamps) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    stamps.follow(list(model.parameters()))
    stamps.backward_begins()
    model(torch.ones(1, 2)).sum().backward()
    assert stamps.enter(StepStage.OPTIMIZER) == StepStage.EXCHANGE
    stamps.let_go()
    assert not stamps.sees_exchange


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


def test_on_a_device_a_step_is_told_once_its_last_event_is_done(stages: DeviceStages, made: list[Event]) -> None:
    stages.mark(StepStage.BETWEEN, 0.0)
    stages.mark(StepStage.FORWARD, 0.0)
    stages.mark(StepStage.EXCHANGE, 0.0)
    stages.put_off()
    stages.mark(StepStage.EXCHANGE, 0.0)
    stages.mark(StepStage.BETWEEN, 0.0)
    stages.close([9.0] * FIELDS)
    assert list(stages.done()) == []
    made[-1].come = True
    (row,) = stages.done()
    assert row[StepStage.BETWEEN : StepStage.OPTIMIZER + 1] == [1, 0, 0, 2, 0, 1, 0, 0]
    stages.mark(StepStage.FORWARD, 0.0)
    assert len(made) == 4  # events are used again; the last one begins the next step


def test_what_a_device_waits_for_between_two_steps_belongs_to_none(stages: DeviceStages, made: list[Event]) -> None:
    for _ in range(3):
        stages.begin(0.0)  # a moment after the last step's end
        stages.mark(StepStage.FORWARD, 0.0)
        stages.mark(StepStage.BETWEEN, 0.0)
        stages.close([9.0] * FIELDS)
        for event in made:
            event.come = True
        (row,) = stages.done()
        assert sum(row[StepStage.BETWEEN : StepStage.OPTIMIZER + 1]) == 2
    assert len(made) == 4  # events are used again


def test_no_event_is_put_into_a_graph_that_is_captured(stages: DeviceStages, made: list[Event]) -> None:
    stages.mark(StepStage.BETWEEN, 0.0)
    stages._captures = lambda: True
    stages.mark(StepStage.BACKWARD, 0.0)
    stages._captures = bool
    stages.mark(StepStage.BETWEEN, 0.0)
    stages.close([9.0] * FIELDS)
    made[-1].come = True
    (row,) = stages.done()
    assert row[StepStage.BETWEEN : StepStage.OPTIMIZER + 1] == [1, 0, 0, 0, 0, 0, 0, 0]


def test_events_are_of_the_device_that_trains_whichever_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[object] = []

    class OfStream(Event):
        def record(self, stream: object = None) -> None:
            recorded.append(stream)

    monkeypatch.setattr(private, "current_stream", lambda cuda, device: lambda: f"stream of {device}")
    stages = DeviceStages("cuda:1")
    stages._event, stages._captures = lambda enable_timing: OfStream(), bool
    stages.mark(StepStage.FORWARD, 0.0)
    assert recorded == ["stream of cuda:1"]


def test_a_gradient_that_cannot_be_stamped_ends_stamps_and_no_training(
    stamps: Stamps, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[str] = []
    listener = SimpleNamespace(give_up=lambda error: errors.append(str(error)), listens=True)
    monkeypatch.setattr(bus, "listener", listener)
    model = torch.nn.Linear(2, 2)
    stamps.follow(list(model.parameters()))
    monkeypatch.setattr(stamps, "_move", Mock(side_effect=RuntimeError("event of another device")))
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
    device._event, device._captures, device._stream = lambda enable_timing: Queued(), bool, lambda: None
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
        stamps.step_ends(clock.now)
        clock.now += 1.0  # what Stash does between steps
        stamps.step_begins()
    clock.now = asked(0.0)
    assert [sum(step.stages) for step in stamps.of_block()] == [20.0] * 6
    leads = stamps.host_leads(clock.now)  # it is 4 s ahead by every step, the one before the block too
    assert leads == pytest.approx((24.0, 28.0, 32.0, 36.0, 40.0, 44.0), abs=1e-3)


@pytest.mark.parametrize(("submitting", "running", "ahead"), [(10.0, 1.0, 1.0), (1.0, 10.0, 10.0)])
def test_a_host_that_waits_for_the_device_every_step_is_ahead_by_what_the_device_takes_longer(
    clock: Moments, stamps: Stamps, asked: Callable[[float], float], submitting: float, running: float, ahead: float
) -> None:
    stamps.begin()
    for _ in range(3):
        stamps.step_begins()
        clock.now += submitting
        ends = asked(running)
        stamps.backward_ended()
        clock.now = ends  # it waits
        stamps.step_ends(clock.now)
    stamps.of_block()
    assert stamps.host_leads(clock.now) == (ahead,) * 3


def test_what_is_renamed_of_a_step_is_no_event_of_the_one_before(stages: DeviceStages, made: list[Event]) -> None:
    """The last event of a step that is under way is the next one's first, and stays so."""
    for _ in range(2):
        stages.mark(StepStage.OPTIMIZER, 0.0)
        stages.rename(StepStage.OPTIMIZER, StepStage.BETWEEN)
        stages.mark(StepStage.FORWARD, 0.0)
        stages.mark(StepStage.BETWEEN, 0.0)
        stages.close([9.0] * FIELDS)
    for event in made:
        event.come = True
    first, second = stages.done()
    assert first[StepStage.BETWEEN : StepStage.OPTIMIZER + 1] == [1, 0, 0, 1, 0, 0, 0, 0]
    assert second[StepStage.BETWEEN : StepStage.OPTIMIZER + 1] == [2, 0, 0, 1, 0, 0, 0, 0]
    assert len(stages._pool) == len(made) - 1


def test_the_first_event_of_a_step_is_kept_where_an_update_was_beside_the_counted_one(
    stages: DeviceStages, made: list[Event]
) -> None:
    for _ in range(2):
        stages.mark(StepStage.BETWEEN, 0.0)
        stages.update_ends(beside=True)
        stages.mark(StepStage.FORWARD, 0.0)
        stages.mark(StepStage.BETWEEN, 0.0)
        stages.close([9.0] * FIELDS)
    for event in made:
        event.come = True
    first, second = stages.done()
    assert first[StepStage.BETWEEN : StepStage.OPTIMIZER + 1] == [1, 0, 0, 1, 0, 0, 0, 0]
    assert second[StepStage.BETWEEN : StepStage.OPTIMIZER + 1] == [1, 0, 0, 1, 0, 0, 0, 1]
    assert len(stages._pool) == len(made) - 1
