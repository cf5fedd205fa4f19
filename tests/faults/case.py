"""One case of the fault matrix: what is done, when, to what; and what must come of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from runs import Outcome, Started

Pace = Literal["quick", "fast", "slow"]
"""Who runs it: `make test` the quick ones too, a whole `pytest` the fast ones too, `make faults` all."""


@dataclass(frozen=True)
class Room:
    """What a case has to itself: the user's working folder, and the temporary folder of its processes."""

    work: Path
    temporary: Path
    outside: Path
    """For what the case needs besides, which is not looked at when it is over."""

    @property
    def state(self):
        """Where killed profiles leave what is to be put back."""
        return self.outside / "state"


@dataclass(frozen=True)
class Expected:
    """What must come of a case, besides what always must (``driver``)."""

    codes: tuple[int, ...] = (0,)
    """Exit statuses that are right."""
    says: tuple[str, ...] = ()
    """Regular expressions, each found in what Stash printed."""
    never: tuple[str, ...] = ()
    """Regular expressions, none of which is found there."""
    rounds: int | None = None
    """At least so many are kept; ``0``: there is an artefact or none; ``None``: there must be no artefact."""
    seconds: float = 60.0
    """It ends within so many seconds after what was done to it (or after its start), on a quiet machine."""
    writes: tuple[str, ...] = ()
    """Patterns of files in the working folder that may be new or changed, besides the artefact."""
    leaves: tuple[str, ...] = ()
    """Patterns of names that may stay in the temporary folder."""


@dataclass(frozen=True)
class Case:
    """``act`` is called with the started run once it was started, and does what is to be done, when it is to be."""

    kind: str
    """Of fault: a heading of the table."""
    name: str
    job: tuple[str, ...] = ("train.py",)
    """Words of the job; scripts are those of ``tests/faults/scripts``, of which the working folder holds copies."""
    options: tuple[str, ...] = ()
    """Of ``stash profile``."""
    variables: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Room], None] | None = None
    act: Callable[[Started, Room], None] | None = None
    check: Callable[[Outcome, Room], str | None] | None = None
    """What else is wrong with the outcome, if anything: a sentence."""
    program: Callable[[Room], tuple[str, ...]] | None = None
    """The whole command, instead of ``stash profile`` with its usual options."""
    expected: Expected = Expected()
    pace: Pace = "slow"
    needs: Callable[[], bool] = lambda: True
    """Whether this machine can play it at all (root, a kernel's feature); skipped where it cannot."""
