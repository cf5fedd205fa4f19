"""What follows from each thing that happens to a watched run: no ring, no file, no clock."""

from typing import get_args

import pytest

from stash.core.records.circumstances import GpuState, MachinePrice
from stash.measure.protocol.stamped import StepStage
from stash.monitor import watch_state
from stash.monitor.records import Alert, Header, MachineState, RunEvent, Window
from stash.monitor.run_requests import RunRequest
from stash.monitor.watch_state import (
    AskForRecorders,
    MomentPassed,
    NothingStepped,
    Now,
    ReadRecorders,
    Requested,
    StartCommand,
    StepsTaken,
    Stopped,
    WatchOptions,
    WatchState,
    WindowTaken,
)

JOB = {"ranks": 2, "device": "cpu", "loaders": (), "nodes": 1, "unseen": ""}


def state_of(options=None, price=None):
    header = Header(id="x", stash_version="1", began=0.0, job="train.py", price=price)
    return WatchState(header, options or WatchOptions(), None, 0.0)


def test_every_event_has_a_transition():
    assert set(watch_state._TABLE) == set(get_args(watch_state.WatchEvent))


def test_a_run_that_stands_is_told_once_and_ends_when_steps_go_on():
    state = state_of(WatchOptions(stuck_after=30, on_alert="tell"))
    assert state.handle_event(StepsTaken(JOB), Now(1.0, 5)) == [state.header]
    assert state.handle_event(StepsTaken(JOB), Now(2.0, 6)) == []
    assert not state.is_still(31.0)
    assert state.is_still(32.0)
    begun, command, asked = state.handle_event(
        Stopped({0: StepStage.INPUT, 1: StepStage.EXCHANGE}), Now(32.0, 6)
    )
    assert isinstance(begun, Alert)
    assert (begun.what, begun.rank, begun.seconds, begun.ended) == ("nothing moves", 0, 30.0, False)
    assert command == StartCommand("tell", begun.model_dump(mode="json"))
    assert asked == AskForRecorders(6)
    assert [state.handle_event(MomentPassed(), Now(when, 6)) for when in (36.0, 37.0, 38.0)] == [
        [],
        [ReadRecorders(6)],
        [],
    ]
    assert not state.is_still(1000.0)
    ended, _ = state.handle_event(StepsTaken(JOB), Now(40.0, 7))
    assert isinstance(ended, Alert)
    assert (ended.number, ended.ended, ended.text) == (
        begun.number,
        True,
        "steps continue since step 7",
    )


def test_a_traced_or_resumed_run_is_no_run_that_stands():
    state = state_of(WatchOptions(stuck_after=30))
    (done,) = state.handle_event(Requested(RunRequest(paused=False), "t"), Now(100.0, 0))
    assert isinstance(done, RunEvent)
    assert done.what == "resumed"
    assert not state.is_still(129.0)
    assert state.is_still(130.0)


@pytest.mark.parametrize(
    ("hours", "shares"), [((0.1, 0.3), []), ((0.4, 0.45), [0.8]), ((0.45, 1.0, 2.0), [0.9, 2.0])]
)
def test_money_is_warned_of_at_each_of_two_shares_once(hours, shares):
    price = MachinePrice(instance="a", dollars_per_hour=10.0)
    state = state_of(WatchOptions(max_dollars=5.0, on_alert="stop"), price)
    done = [
        action
        for hour in hours
        for action in state.handle_event(MomentPassed(), Now(3600 * hour, 9))
    ]
    assert [each.ratio for each in done if isinstance(each, Alert)] == shares
    started = [each.given for each in done if isinstance(each, StartCommand)]
    assert [(each["what"], each["ratio"], each["step"]) for each in started] == [
        ("money", share, 9) for share in shares
    ]


def test_that_nothing_steps_is_said_once():
    state = state_of()
    done = [state.handle_event(NothingStepped(), Now(when, 0)) for when in (299.0, 301.0, 400.0)]
    assert [len(each) for each in done] == [0, 1, 0]


def test_a_part_that_is_slow_in_two_windows_is_named_beside_the_largest_stall_until_it_is_well():
    state = state_of()

    def window(number, clock):
        gpus = (GpuState(index=3, clock=clock, held_by={"heat": 0.9} if clock < 1 else {}),)
        taken = Window(
            began=0.0,
            seconds=10.0,
            first_step=100 * number,
            last_step=100 * number + 99,
            steps=100,
            step_seconds=0.1,
            stalls={"compute": 0.05, "exchange": 0.04, "transfer": None},
            machines=(MachineState(node=0, gpus=gpus),),
        )
        actions = state.handle_event(WindowTaken(taken), Now(10.0 * number, 100 * number))
        return [each for each in actions if isinstance(each, Alert)]

    assert [window(0, 1.0), window(1, 0.6)] == [[], []]
    (begun,) = window(2, 0.6)
    assert (begun.what, begun.step, begun.stall) == ("slow part", 299, None)
    assert begun.text == (
        "GPU 3 ran at 60% of its highest clock, held down by heat; meanwhile exchange takes 40.0 ms a step"
    )
    assert window(3, 0.6) == []
    (ended,) = window(4, 1.0)
    assert (ended.number, ended.ended) == (begun.number, True)
