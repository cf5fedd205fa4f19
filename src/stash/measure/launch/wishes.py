"""What goes into an expedition and what comes out: wishes, launches, moments on the way, the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stash.base.records import Profile
from stash.measure.launch.diagnose import Diagnosis
from stash.measure.launch.gathered import Tail
from stash.measure.launch.peers import Peers
from stash.measure.launch.process import Process
from stash.measure.launch.request import Cluster
from stash.measure.run.orders import Plan


@dataclass(frozen=True)
class Wishes:
    """What the user wants of the measurement. ``patience`` is how long to wait for a first step, in seconds."""

    precision: float = 0.02
    budget: float = 60.0
    rungs: tuple[str, ...] = ()
    isolate: bool = False
    data_root: str | None = None
    patience: float = 300.0


@dataclass(frozen=True)
class Moment:
    """What live progress shows: the block under way, and seconds since the first step."""

    phase: str
    round: int | None
    elapsed: float
    profile: Profile | None = None
    """What was measured so far; only when a round has just been finished."""


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


@dataclass(frozen=True)
class Member:
    """One of the launches started side by side; the defaults are a launch of the whole job."""

    plan: Plan | None = None
    cluster: Cluster | None = None
    offset: int = 0
    """Added to its ranks."""
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class Running:
    """A started launch and how far its trace was read."""

    process: Process
    plan: Plan
    tail: Tail
    peers: Peers | None
    """The launchers of the other nodes; None if there can be no other node."""
    offset: int
    ended: bool = False
    """The agents said that they were done."""
