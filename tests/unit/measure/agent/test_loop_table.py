"""What a loader's latest loop is for, event by event: the table by itself, without loaders or clocks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stash.measure.agent.runner.loop_table import TABLE, LoopAction, LoopEvent, LoopOnTrial, LoopUse, handle_event

E, A = LoopEvent, LoopAction


def course(events: Sequence[LoopEvent], use: LoopUse = LoopUse.OTHER) -> tuple[LoopUse, list[LoopAction]]:
    """What a loader is for after these events, and all that was to be done."""
    done: list[LoopAction] = []
    for event in events:
        use, actions = handle_event(use, event)
        done += actions
    return use, done


@pytest.mark.parametrize(
    ("events", "use", "done"),
    [
        # an epoch: the first steps show that the loader trains
        (
            (E.OPENED, E.ASKED, E.STEPPED_ON, E.ASKED, E.CLOSED),
            LoopUse.TRAINING,
            [A.PAUSE, A.SERVE, A.SERVE, A.END_EPOCH],
        ),
        # a validation's loader
        ((E.OPENED, E.ASKED, E.CLOSED), LoopUse.OTHER, [A.PAUSE, A.SERVE, A.RELEASE, A.RETURN]),
        ((E.OPENED_BESIDE, E.ASKED_BESIDE, E.STEPPED), LoopUse.OTHER, [A.PAUSE, A.SERVE_BESIDE]),
    ],
)
def test_a_loader_that_no_step_trained_on_yet(
    events: Sequence[LoopEvent], use: LoopUse, done: list[LoopAction]
) -> None:
    assert course(events) == (use, done)


@pytest.mark.parametrize(
    ("events", "use", "done"),
    [
        # the next epoch: a backward pass shows that it trains
        (
            (E.OPENED, E.ASKED, E.PASSED, E.ASKED, E.CLOSED),
            LoopUse.TRAINING,
            [A.GO_ON, A.SERVE, A.LEARN, A.SERVE, A.END_EPOCH],
        ),
        # an evaluation of what is trained on: what it read is taken back
        (
            (E.OPENED, E.ASKED, E.ASKED, E.CLOSED_ON_TRIAL),
            LoopUse.TRAINING,
            [A.GO_ON, *[A.SERVE] * 2, A.UNDO, A.RETURN],
        ),
        # the same of more batches than training ever takes: once, and not at its end again
        (
            (E.OPENED, E.ASKED_TOO_OFTEN, E.ASKED_TOO_OFTEN, E.CLOSED_ON_TRIAL),
            LoopUse.TRAINING,
            [A.GO_ON, A.UNDO, A.SERVE_BESIDE, A.WAIT, A.SERVE_BESIDE, A.RETURN],
        ),
        # without gradients
        ((E.OPENED_BESIDE, E.ASKED_BESIDE, E.CLOSED_BESIDE), LoopUse.TRAINING, [A.PAUSE, A.SERVE_BESIDE, A.RETURN]),
        # gradients that come from elsewhere put nothing on trial
        ((E.OPENED_UNJUDGED, E.ASKED, E.CLOSED), LoopUse.TRAINING, [A.GO_ON, A.SERVE, A.END_EPOCH]),
        # a loop that was refused trains after all
        (
            (E.OPENED, E.ASKED_TOO_OFTEN, E.PASSED, E.ASKED),
            LoopUse.TRAINING,
            [A.GO_ON, A.UNDO, A.SERVE_BESIDE, A.LEARN, A.SERVE],
        ),
    ],
)
def test_a_loader_that_trains(events: Sequence[LoopEvent], use: LoopUse, done: list[LoopAction]) -> None:
    assert course(events, LoopUse.TRAINING) == (use, done)


def test_every_request_for_a_batch_is_answered_once() -> None:
    for use in LoopUse:
        for event in (E.ASKED, E.ASKED_BESIDE, E.ASKED_TOO_OFTEN):
            if event is E.ASKED_TOO_OFTEN and use in (LoopUse.OTHER, LoopUse.TRAINING):
                continue  # these are not counted
            if (use, event) == (LoopUse.REFUSED, E.ASKED):
                continue  # it has asked too often
            assert sum(action in (A.SERVE, A.SERVE_BESIDE) for action in TABLE[use, event][1]) == 1, (use, event)


def test_a_step_settles_what_every_loader_is_for() -> None:
    assert {handle_event(use, E.STEPPED)[0] for use in LoopUse} == {LoopUse.OTHER, LoopUse.TRAINING}


def test_a_loop_is_no_evaluation_that_took_a_look() -> None:
    loop = LoopOnTrial(passes=3)
    assert not loop.take_batch().is_evaluation()
    assert loop.take_batch().end().is_evaluation()
    assert loop.take_batch().take_batch().is_evaluation()
    assert not loop.take_batch().take_batch().is_evaluation(per_step=2)
