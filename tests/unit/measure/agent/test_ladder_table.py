"""The table of a ladder by pencil, and what the threads of real scripts did before there was one."""

from __future__ import annotations

import pytest

from stash.measure.agent.runner.ladder_table import TABLE, LadderEvent, LadderState

LETTERS = {
    "END_STEP": "e",
    "RESUME": "r",
    "BEGIN_STEP": "b",
    "LEAVE_ALONE": "a",
    "TELL_OTHERS": "t",
    "TELL_OTHERS_NOW": "t",
    "PUBLISH_END": "f",
    "STOP": "n",
    "LEAVE": "l",
}
STEP, LAST = "STEPPED AWAITS_STEP", "STEPPED DONE"


@pytest.mark.parametrize(
    ("state", "events", "after", "actions"),
    [
        # what was recorded of 21 ranks of 14 scripts: 3,519 times
        ("WAITING", f"CLAIMED {STEP}", "MEASURING", "erb"),
        ("MEASURING", STEP, "MEASURING", "erb"),
        ("MEASURING", "ABANDONED", "FINISHED", "n"),
        ("FINISHED", "LOOP_ENDED", "FINISHED", ""),
        ("WAITING", "LOOP_ENDED", "WAITING", ""),
        # a copy of a job that is measured elsewhere, and a rank that is not measured
        ("WAITING", f"REFUSED {STEP}", "FINISHED", "n"),
        # every way to an end
        ("MEASURING", LAST, "FINISHED", "ernl"),
        ("MEASURING", "STEPPED OTHERS_ENDED", "FINISHED", "erfnl"),
        ("MEASURING", "LOOP_ENDED OTHERS_ENDED", "FINISHED", "tfnl"),
        ("MEASURING", "PHASE_ENDED OTHERS_ENDED", "FINISHED", "tfnl"),
        # a timer's thread ends it while a step is under way: the step's thread must leave, too
        ("MEASURING", "STEPPED LOOP_ENDED OTHERS_ENDED OTHERS_ENDED", "FINISHED", "ertfnll"),
        ("MEASURING", "STEPPED LOOP_ENDED DONE", "FINISHED", "ertfnl"),
        ("MEASURING", "STEPPED LOOP_ENDED AWAITS_STEP", "ENDING", "ertb"),
        ("MEASURING", "LOOP_ENDED LOOP_ENDED", "ENDING", "t"),
        # steps that are left alone, and the one that ends a block of them
        ("MEASURING", "STEPPED LEAVES_ALONE STEPPED LEAVES_ALONE", "COUNTING", "erara"),
        ("COUNTING", LAST, "FINISHED", "rnl"),
        ("COUNTING", "LOOP_ENDED", "ENDING", "t"),
        ("ENDING", "LEAVES_ALONE", "ENDING", "a"),
    ],
)
def test_a_ladder_goes_by_its_table(state: str, events: str, after: str, actions: str) -> None:
    now, done = LadderState[state], ""
    for event in events.split():
        now, following = TABLE.get((now, LadderEvent[event]), (now, ()))
        done += "".join(LETTERS[action.name] for action in following)
    assert (now.name, done) == (after, actions)


@pytest.mark.parametrize("state", LadderState)
def test_a_script_that_dies_of_an_exception_is_let_go_in_every_state(state: LadderState) -> None:
    assert TABLE[state, LadderEvent.ABANDONED][0] is LadderState.FINISHED


@pytest.mark.parametrize(
    "event", [event for event in LadderEvent if event.name not in ("OTHERS_ENDED", "DONE")]
)
def test_nothing_begins_again_once_a_ladder_is_finished(event: LadderEvent) -> None:
    after, actions = TABLE.get((LadderState.FINISHED, event), (LadderState.FINISHED, ()))
    assert after is LadderState.FINISHED
    assert {action.name for action in actions} <= {"STOP"}
