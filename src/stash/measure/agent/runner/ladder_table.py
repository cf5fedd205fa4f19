"""How far a ladder is, and what each event of its training thread makes of that.

What an action does is the runner's (``ladder_runner``); so is which event happened. The end of a ladder may come from
a timer's thread while the training thread is in the midst of a step, so every state knows every event that a thread
may be late with. Pure: no thread, no rank, no PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto


class LadderState(IntEnum):
    """How far the ladder is; a number, which is looked up the fastest."""

    WAITING = auto()
    """The script has not stepped yet."""
    MEASURING = auto()
    COUNTING = auto()
    """Steps are counted, and nothing else is listened to."""
    ENDING = auto()
    """The training loop is over, and the other ranks are about to know."""
    FINISHED = auto()
    """Nothing is measured any more."""


class LadderEvent(IntEnum):
    """What happens to it."""

    CLAIMED = auto()
    """The first step: this process is one that is measured."""
    REFUSED = auto()
    """… or it is not."""
    STEPPED = auto()
    """A step of the job ended."""
    AWAITS_STEP = auto()
    """What is measured goes on with the next step."""
    LEAVES_ALONE = auto()
    """… after some that are left alone."""
    DONE = auto()
    """All is measured."""
    OTHERS_ENDED = auto()
    """All ranks know that the loop of one of them is over."""
    LOOP_ENDED = auto()
    """This rank's training loop is over."""
    PHASE_ENDED = auto()
    """What was measured is trained no more, as a step of what follows tells."""
    ABANDONED = auto()
    """The script dies of an exception."""


class LadderAction(IntEnum):
    """What is to be done about it."""

    END_STEP = auto()
    """Close the step's stamps, and learn what it read."""
    RESUME = auto()
    """Go on with what is measured."""
    BEGIN_STEP = auto()
    """Let the script go on, watched."""
    LEAVE_ALONE = auto()
    """Let it go on by itself."""
    TELL_OTHERS = auto()
    """Wait, in a thread of its own, until all ranks know that the loop is over."""
    TELL_OTHERS_NOW = auto()
    PUBLISH_END = auto()
    """Say that the script ended before the schedule did."""
    STOP = auto()
    """Listen to nothing any more."""
    LEAVE = auto()
    """End the script here, together with the other ranks."""


LadderTransition = tuple[LadderState, tuple[LadderAction, ...]]
_S, _E, _A = LadderState, LadderEvent, LadderAction
_OVER = (_A.PUBLISH_END, _A.STOP, _A.LEAVE)
_GOING_ON = (_S.MEASURING, _S.COUNTING)
TABLE: Mapping[tuple[LadderState, LadderEvent], LadderTransition] = {
    (_S.WAITING, _E.CLAIMED): (_S.MEASURING, ()),
    (_S.WAITING, _E.REFUSED): (_S.FINISHED, (_A.STOP,)),
    (_S.MEASURING, _E.STEPPED): (_S.MEASURING, (_A.END_STEP, _A.RESUME)),
    (_S.COUNTING, _E.STEPPED): (_S.COUNTING, (_A.RESUME,)),
    **{(state, _E.AWAITS_STEP): (state, (_A.BEGIN_STEP,)) for state in (*_GOING_ON, _S.ENDING)},
    **{(state, _E.LEAVES_ALONE): (_S.COUNTING, (_A.LEAVE_ALONE,)) for state in _GOING_ON},
    (_S.ENDING, _E.LEAVES_ALONE): (_S.ENDING, (_A.LEAVE_ALONE,)),
    **{(state, _E.DONE): (_S.FINISHED, (_A.STOP, _A.LEAVE)) for state in (*_GOING_ON, _S.FINISHED)},
    (_S.ENDING, _E.DONE): (_S.FINISHED, _OVER),
    **{(state, _E.OTHERS_ENDED): (_S.FINISHED, _OVER) for state in (*_GOING_ON, _S.ENDING)},
    (_S.FINISHED, _E.OTHERS_ENDED): (_S.FINISHED, (_A.LEAVE,)),
    **{(state, _E.LOOP_ENDED): (_S.ENDING, (_A.TELL_OTHERS,)) for state in _GOING_ON},
    **{(state, _E.PHASE_ENDED): (_S.ENDING, (_A.TELL_OTHERS_NOW,)) for state in _GOING_ON},
    **{(state, _E.ABANDONED): (_S.FINISHED, (_A.STOP,)) for state in LadderState},
}
"""Where there is nothing, nothing changes."""
