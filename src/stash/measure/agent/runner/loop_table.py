"""Which loops over loaders train: what a loader's latest loop is for, and what each event makes of that.

A loop over a loader that trains may be an evaluation all the same: until a backward pass follows it, it is *on
trial*. What an action does is for who listens: a profile takes batches back, a watch and a ledger give time another
name. Pure: no clock, no loader, no PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Any


class LoopUse(IntEnum):
    """What a loader's latest loop is for, as far as is known; a number, which is looked up the fastest."""

    OTHER = auto()
    """No step was seen to train on what this loader hands out."""
    TRAINING = auto()
    ON_TRIAL = auto()
    """No backward pass has followed yet."""
    REFUSED = auto()
    """It read too much before any backward pass."""


class LoopEvent(IntEnum):
    """What happens to a loader's latest loop; *beside*: gradients are off, and it does not train that way."""

    OPENED = auto()
    OPENED_UNJUDGED = auto()
    """In a job whose gradients come from elsewhere than backward passes."""
    OPENED_BESIDE = auto()
    PASSED = auto()
    """A backward pass has followed."""
    ASKED = auto()
    """For another batch."""
    ASKED_BESIDE = auto()
    ASKED_TOO_OFTEN = auto()
    """For more batches than training ever took before a backward pass."""
    CLOSED = auto()
    """None of the loader's loops is left."""
    CLOSED_BESIDE = auto()
    CLOSED_ON_TRIAL = auto()
    """After more batches than a step takes, or at the end of the data."""
    STEPPED = auto()
    """An optimizer stepped."""
    STEPPED_ON = auto()
    """… and this loader was read for that."""


class LoopAction(IntEnum):
    """What is to be done about it."""

    PAUSE = auto()
    """What follows may be no training."""
    GO_ON = auto()
    """Training goes on, with the next epoch perhaps."""
    WAIT = auto()
    """What goes on is no training, but a sign of life."""
    SERVE = auto()
    """Hand out a batch as the block asks."""
    SERVE_BESIDE = auto()
    """Hand out a batch that no step trains on."""
    LEARN = auto()
    """Training takes so many batches before its first backward pass."""
    UNDO = auto()
    """What the loop read counts for nothing: it was no training."""
    RETURN = auto()
    """What was around the loop goes on."""
    RELEASE = auto()
    """Nobody reads on where the loop stopped."""
    END_EPOCH = auto()


Transition = tuple[LoopUse, tuple[LoopAction, ...]]
_E, _A = LoopEvent, LoopAction
_KNOWN = (LoopUse.TRAINING, LoopUse.ON_TRIAL)
_JUDGED = (LoopUse.ON_TRIAL, LoopUse.REFUSED)
TABLE: Mapping[tuple[LoopUse, LoopEvent], Transition] = {
    **{(use, _E.OPENED_BESIDE): (use, (_A.PAUSE,)) for use in LoopUse},
    **{
        (use, event): (use, (_A.GO_ON,))
        for use in LoopUse
        for event in (_E.OPENED, _E.OPENED_UNJUDGED)
    },
    **{
        (LoopUse.OTHER, event): (LoopUse.OTHER, (_A.PAUSE,))
        for event in (_E.OPENED, _E.OPENED_UNJUDGED)
    },
    (LoopUse.TRAINING, _E.OPENED): (LoopUse.ON_TRIAL, (_A.GO_ON,)),
    **{(use, _E.ASKED_BESIDE): (use, (_A.SERVE_BESIDE,)) for use in LoopUse},
    **{(use, _E.ASKED): (use, (_A.SERVE,)) for use in (LoopUse.OTHER, *_KNOWN)},
    (LoopUse.ON_TRIAL, _E.ASKED_TOO_OFTEN): (LoopUse.REFUSED, (_A.UNDO, _A.SERVE_BESIDE)),
    (LoopUse.REFUSED, _E.ASKED_TOO_OFTEN): (LoopUse.REFUSED, (_A.WAIT, _A.SERVE_BESIDE)),
    **{
        (use, event): (LoopUse.TRAINING, (_A.LEARN,))
        for use in _JUDGED
        for event in (_E.PASSED, _E.STEPPED)
    },
    (LoopUse.OTHER, _E.STEPPED_ON): (LoopUse.TRAINING, ()),
    (LoopUse.OTHER, _E.CLOSED): (LoopUse.OTHER, (_A.RELEASE, _A.RETURN)),
    **{(use, _E.CLOSED): (use, (_A.END_EPOCH,)) for use in _KNOWN},
    **{(use, _E.CLOSED_BESIDE): (use, (_A.RETURN,)) for use in _KNOWN},
    (LoopUse.ON_TRIAL, _E.CLOSED_ON_TRIAL): (LoopUse.TRAINING, (_A.UNDO, _A.RETURN)),
    (LoopUse.REFUSED, _E.CLOSED_ON_TRIAL): (LoopUse.TRAINING, (_A.RETURN,)),
}
"""Where there is nothing, nothing changes."""


def handle_event(use: LoopUse, event: LoopEvent) -> Transition:
    """What an event makes of a loader's use, and what is to be done."""
    return TABLE.get((use, event), (use, ()))


@dataclass(frozen=True)
class LoopOnTrial:
    """A loop that no backward pass has followed, as far as it has come."""

    passes: int = 0
    """Backward passes before it."""
    mark: Any = None
    """What its listener goes back to, should it not train."""
    loader: object = None
    batches: int = 0
    is_over: bool = False
    """It read its loader to the end."""

    def has_passed(self, passes: int) -> bool:
        """Whether one has, now that there were so many."""
        return passes > self.passes

    def take_batch(self) -> LoopOnTrial:
        return replace(self, batches=self.batches + 1)

    def end(self) -> LoopOnTrial:
        return replace(self, is_over=True)

    def is_evaluation(self, per_step: int = 1) -> bool:
        """Whether it was one if it ends now: a step's batches alone are a look, ``next(iter(loader))``."""
        return self.is_over or self.batches > per_step
