"""What goes into a measurement and what comes out: wishes, moments on the way, the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stash.base.records import Profile
from stash.measure.launch.diagnose import Diagnosis


@dataclass(frozen=True)
class Wishes:
    """What the user wants of the measurement. ``patience`` is how long to wait for a first step, in seconds."""

    precision: float = 0.02
    budget: float = 60.0
    rungs: tuple[str, ...] = ()
    isolate: bool = False
    data_root: str | None = None
    patience: float = 300.0
    keep_logging: bool = False


@dataclass(frozen=True)
class Moment:
    """What live progress shows: the block under way, and seconds since the first step."""

    phase: str
    round: int | None
    elapsed: float
    profile: Profile | None = None
    """What was measured so far; only when a round has just been finished."""
    round_seconds: float | None = None
    """What a round is expected to take, once the agents have planned it."""
    said: str | None = None
    """What happened that whoever waits should know at once."""


Watcher = Callable[[Moment], None]


@dataclass(frozen=True)
class Result:
    """A profile if at least one round finished, and what went wrong if something did."""

    profile: Profile | None
    failure: Diagnosis | None
    interrupted: bool = False
    elsewhere: bool = False
    """Rank 0 ran on another node, which has the profile."""
    log: Path | None = None
    """What the job printed, kept when something went wrong."""
    swept: tuple[str, ...] = ()
    """What was found of runs that were killed; a profile has it in its notes."""
