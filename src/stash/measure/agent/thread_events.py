"""What happens on the training thread: one stream of events, published in one place, that all who listen share.

The wraps around PyTorch publish them (``script.publish``); loops over loaders do too, since which of them train is
theirs to say. What an event makes of a step's stages, or of a ledger's rows, is each listener's table. Pure.
"""

from __future__ import annotations

from enum import IntEnum, auto


class ThreadEvent(IntEnum):
    """One of the training thread's; a number, so that a table may be a list, which is looked up the fastest."""

    ITERATOR_ASKED = auto()
    """A loader is asked for an iterator, to train from for all that is known."""
    EPOCH_BEGINS = auto()
    """The same, of a run whose loops nobody steers; ``ITERATOR_GIVEN`` follows."""
    EVALUATION_BEGINS = auto()
    """… while gradients are off."""
    ITERATOR_GIVEN = auto()
    BATCH_ASKED = auto()
    """A loop asks for a batch."""
    BATCH_GIVEN = auto()
    EVALUATION_ASKED = auto()
    """A loop asks for a batch, or an iterator, while gradients are off."""
    LOOP_ENDED = auto()
    """A loop over a loader is over."""
    LOOP_WAS_EVALUATION = auto()
    """… and no step trained on what it read since the ``StepMark`` that comes with the event."""
    FIRST_ASKED = auto()
    """A loader is read for an epoch's first batch."""
    READ_BEGINS = auto()
    """A loader is read for a batch that a step trains on; its number comes with the event."""
    READ_ENDED = auto()
    READ_FAILED = auto()
    """It has no more, or raised something."""
    REPLAYED = auto()
    """A kept batch was handed out."""
    COPY_BEGINS = auto()
    """A batch is copied to the device that trains."""
    COPY_ENDED = auto()
    MODEL_CALLED = auto()
    BACKWARD_BEGINS = auto()
    """The script calls for gradients; perhaps inside another such call, as checkpointing does."""
    GRADIENT_READY = auto()
    """One of those that were seen to be a backward pass's last."""
    BACKWARD_ENDED = auto()
    """A backward pass is over, its exchange included."""
    COLLECTIVE_BEGINS = auto()
    """The thread takes part in a collective, or waits for one."""
    COLLECTIVE_ENDED = auto()
    SAVE_BEGINS = auto()
    SAVE_ENDED = auto()
    COLLECTION_BEGINS = auto()
    """Python looks for garbage."""
    COLLECTION_ENDED = auto()
    UPDATE_BEGINS = auto()
    """An optimizer is called."""
    STEPPED = auto()
    """An optimizer stepped; what follows is Stash's own work."""
    UPDATED_BESIDE = auto()
    """Another optimizer stepped than the one that steps are counted at, after the same backward pass."""
    UPDATED_BEFORE = auto()
    """… or after one of its own."""
    STEP_ENDED = auto()
    """A step of the job is over."""
    STEP_BEGINS = auto()
    """What came since belongs to no step."""
    SCRIPT_GOES_ON = auto()
    """What Stash did after ``STEPPED`` is over."""
    CLEARING_BEGINS = auto()
    """Gradients are cleared: ``zero_grad`` of an optimizer or a module."""
    CLEARING_ENDED = auto()
    COMPILATION_BEGINS = auto()
    """torch.compile compiles, for the first time or again."""
    COMPILATION_ENDED = auto()


INTERRUPTIONS = frozenset(
    {
        ThreadEvent.EPOCH_BEGINS,
        ThreadEvent.EVALUATION_BEGINS,
        ThreadEvent.COPY_BEGINS,
        ThreadEvent.CLEARING_BEGINS,
        ThreadEvent.COLLECTIVE_BEGINS,
        ThreadEvent.SAVE_BEGINS,
        ThreadEvent.COLLECTION_BEGINS,
        ThreadEvent.COMPILATION_BEGINS,
    }
)
"""What the thread does next it does in the midst of something else …"""
RETURNS = frozenset(
    {
        ThreadEvent.ITERATOR_GIVEN,
        ThreadEvent.COPY_ENDED,
        ThreadEvent.CLEARING_ENDED,
        ThreadEvent.COLLECTIVE_ENDED,
        ThreadEvent.SAVE_ENDED,
        ThreadEvent.COLLECTION_ENDED,
        ThreadEvent.COMPILATION_ENDED,
    }
)
"""… and goes back to it then."""
