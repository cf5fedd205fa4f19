"""Every second of one rank from its process's start until blocks begin: as it was typed, each second in one row.

Rows are what the training thread was doing; they sum to the wall. ``timed_seconds`` are those of the steps that
were timed after warming up, which stand for all later ones.
"""

from __future__ import annotations

from stash.core.records.base import Count, Number, PlainName, Record, Sentence


class LedgerRow(Record):
    """What the training thread did, by one name."""

    row: PlainName
    """One of ``core.ledger_rows.ROWS``: the process's ``start-up`` until its first step has ended; an ``epoch start``
    from asking a loader for an iterator until its first batch; an ``epoch end`` from its last batch until the next
    iterator, without evaluation and checkpoints; waiting for ``input`` later on; from the batch to the
    end of the ``forward`` pass and its loss; ``backward``, its exchange included; from there to the end of the
    ``optimizer``'s step; the script's own ``loop`` beside these; ``evaluation``, which no step uses; a
    ``checkpoint``; Python's garbage ``collector``; a ``collective`` that the script calls by itself; waiting for
    Python's ``interpreter``, which another thread has; ``other``: Stash's own preparations."""
    seconds: Number
    """Since the process was started."""
    timed_seconds: Number = 0.0
    """Of these, in the steps that were timed."""
    each: tuple[Number, ...] = ()
    """Of a row that comes now and then, the seconds of each of its first occurrences."""
    at_steps: tuple[Count, ...] = ()
    """After how many optimizer steps each of these began."""
    times: Count = 0
    """How many occurrences there were."""


class LedgerPlace(Record):
    """A line of the script, or of what it calls, at which the training thread was seen."""

    row: PlainName
    file: PlainName
    """Below the working folder, if it is there."""
    line: Count
    text: Sentence
    """The line itself, without secrets."""
    inside: PlainName = ""
    """The function that it was waiting for, as far as Python knows; empty where that is the line itself."""
    caller: PlainName = ""
    """Where the training loop called what leads there, ``train.py:43``; empty where the line is the loop's own."""
    prepares: bool = False
    """Whether it works on a batch between the loader and the model."""
    seconds: Number
    """In the timed steps, and for an epoch's start in all."""
    each: Number | None = None
    """Of what comes now and then, seconds of one occurrence."""


class RankLedger(Record):
    """One rank's."""

    rank: Count
    seconds: Number
    """From the process's start until the last timed step; the rows' sum."""
    steps: Count
    """Optimizer steps meanwhile."""
    timed_steps: Count
    """Of these, the last, that were timed after warming up."""
    timed_seconds: Number
    """That they took, with all that came between them."""
    epoch_steps: Count | None = None
    """Optimizer steps of an epoch, by the loader's length; ``None`` where it has none."""
    rows: tuple[LedgerRow, ...]
    places: tuple[LedgerPlace, ...] = ()
    unplaced: Sentence = ""
    """Why no places were seen; empty where they were."""
