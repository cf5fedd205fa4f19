"""A change to a job as data: what it acts on, what it does to training, how it is switched on and how it is written.

A change is switched on in a launch by ``settings`` (``measure/agent/wraps/trial_changes``), ``variables`` of the
environment, and written into source as arguments of a call (``writes``), as a line of its own (``line``),
or not at all. Which changes there are for a job is ``space``'s to say, from the ``Facts`` here; whether one pays
neither knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from stash.advice.case import Case
from stash.core.fix_records import Effect
from stash.core.intervals import mean_interval
from stash.core.units import format_count
from stash.measure.launcher.trials import TrialRun, starting_seconds

MIB = 2**20
_NEARLY = 0.8
OF_EXCHANGE = ("interconnect", "network")
"""Stalls."""


@dataclass(frozen=True)
class Site:
    """A call of the script, as the agent recorded it."""

    kind: str
    key: str
    file: str
    line: int
    end_line: int
    column: int | None
    end_column: int | None
    values: Mapping[str, Any]
    calls: int = 1

    @property
    def is_in_library(self) -> bool:
        """Whether the call stands in an installed package, which no patch is to change."""
        return (
            any(f"/{name}/" in self.file for name in ("site-packages", "dist-packages"))
            or "/lib/python" in self.file
        )


def sites_of(evidence: Mapping[str, Any]) -> list[Site]:
    """The calls that a rank recorded; files without links, as a file is to have one name in a patch."""
    return [
        Site(
            each["kind"],
            key,
            os.path.realpath(each["file"]),
            each["line"],
            each["end_line"] or each["line"],
            each["column"],
            each["end_column"],
            each["values"],
            each["calls"],
        )
        for key, each in evidence["sites"].items()
    ]


@dataclass(frozen=True)
class Facts:
    """The job at hand: its profile, what a first launch as typed recorded, and the machine's cores."""

    case: Case
    sites: tuple[Site, ...]
    trains: str | None
    """Key of the loader that trains."""
    threads: int
    """Of a rank's parallel loops."""
    epoch_seconds: float | None = None
    """Of a step, its share in beginning an epoch; ``None`` where no epoch ended."""
    steps: int = 0
    """That the launch took."""
    update_seconds: float | None = None
    """Of a step, in its optimizers."""
    evaluations: Mapping[str, float] = field(default_factory=dict)
    """By key of the loader, what waiting for the first batches of its evaluations takes of a step."""
    sets_threads: bool = False
    """Whether the script itself sets the variable by which threads are given to it."""

    def list_step_sites(self, kind: str) -> list[Site]:
        """Calls of a kind that the script itself makes in every step, or nearly."""
        found = [each for each in self.sites if each.kind == kind and not each.is_in_library]
        return [each for each in found if self.steps and each.calls >= _NEARLY * self.steps]

    def find_site(self, kind: str) -> Site | None:
        """The one call of a kind; of several the one that most calls came from."""
        return next(iter(self.list_sites(kind)), None)

    def list_sites(self, kind: str) -> list[Site]:
        """The calls of a kind, the one that most calls came from first."""
        return sorted(
            (each for each in self.sites if each.kind == kind), key=lambda each: -each.calls
        )

    @property
    def loader(self) -> Site | None:
        """The call that built the loader that trains, in the script rather than in a library around it."""
        built = next((each for each in self.sites if each.key == self.trains), None)
        if built is None or not built.is_in_library:
            return built
        same = built.values.get("same_data")
        own = [each for each in self.sites if each.kind == "loader" and not each.is_in_library]
        return next((each for each in own if each.values.get("same_data") == same), built)

    @property
    def ranks(self) -> int:
        return len(self.case.profile.ranks)

    @property
    def cores(self) -> int:
        """Of the machine, that a rank may use."""
        return max(1, int((self.case.cores_per_rank or 1) * self.ranks))

    @property
    def is_on_cpu(self) -> bool:
        return self.case.is_on_cpu

    def most_seconds(self, *stalls: str) -> float | None:
        """Seconds of these stalls, to the ends of their intervals; ``None`` if one of them has none."""
        parts = [self.case.breakdown.stall(name) for name in stalls]
        known = [part for part in parts if part is not None]
        missing = {each.name for each in self.case.breakdown.skipped if each.possible}
        highs = [max(part.high, part.seconds) for part in known if part.high is not None]
        if not known or missing & set(stalls) or len(highs) < len(known):
            return None
        return sum(highs)

    @property
    def prep_seconds(self) -> float | None:
        """The same of what a loader's settings can save in a launch, whose files are in memory since the profile.

        Without workers that is also at most what steps were seen to wait for batches, of which less is noise.
        """
        most = self.most_seconds("prep")
        if most is None or self.loader is None or self.loader.values["num_workers"]:
            return most
        rounds: dict[int, list[tuple[float, ...]]] = {}
        for block in self.case.profile.blocks:
            if block.rung == "warm":
                rounds.setdefault(block.round, []).append(block.step_waits)
        # of a step its slowest rank
        means = [
            fmean(map(max, zip(*waits, strict=False))) for waits in rounds.values() if all(waits)
        ]
        waited = mean_interval(means).high if means else None
        return most if waited is None else min(most, waited)


def learn_facts(case: Case, first: TrialRun) -> Facts:
    """What a first launch as typed tells of the job; of its ranks all tell the same."""
    evidence = first.evidence[0]
    starts = {key: starting_seconds(each) for key, each in evidence["evaluations"].items()}
    return Facts(
        case,
        tuple(sites_of(evidence)),
        evidence["trains"],
        evidence["threads"],
        first.epoch_seconds,
        len(evidence["losses"]) // evidence["batches_per_step"],
        evidence["update_seconds"],
        {key: share for key, share in starts.items() if share is not None},
        evidence["sets_threads"],
    )


@dataclass(frozen=True)
class Around:
    """A class around an argument of a call."""

    argument: str
    before: str
    behind: str = ")"
    alone: bool = False
    """Whether it stands by itself where the call has no such argument."""


_OF_WORKERS = {
    "prefetch_factor",
    "persistent_workers",
    "in_order",
    "multiprocessing_context",
    "one_thread",
}
"""Settings of a loader that mean nothing without workers."""


@dataclass(frozen=True)
class ScriptChange:
    """One value of a knob."""

    name: str
    knob: str
    text: str
    effect: Effect = "none"
    stalls: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    forecast: float | None = None
    site: Site | None = None
    """Where ``writes`` go."""
    also: tuple[Site, ...] = ()
    """Where they go as well: a trial changes every call of a kind, and a patch writes all of them or none."""
    writes: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the call at ``site``, by name."""
    copies: tuple[Site, ...] = ()
    """Copies of batches that get ``non_blocking=True`` with it."""
    line: str = ""
    """A statement to add after the script's imports."""
    around: Around | None = None
    """What is put around an argument of the call at ``site``, which needs ``line``."""
    removes: tuple[Site, ...] = ()
    """Calls that go."""
    by_hand: str = ""
    """How a person writes what no patch can: at most three lines."""
    consent: str = ""
    """What ``--allow`` has to name."""
    consent_why: str = ""
    """What for; empty where its effect says that."""
    joins: bool = False
    """As of its knob, or because it seldom costs anything in this job."""
    leads: bool = False
    """As of its knob."""
    beyond: str = ""
    """A milder value of the same: this one is tried only if that saves something."""
    fills: bool = False
    """Whether its first launch prepares what later ones use, and is no measurement."""

    @property
    def knobs(self) -> frozenset[str]:
        """All it acts on: two changes that share one are not made together."""
        return frozenset({self.knob, *({"threads"} & self.settings.keys())})

    @property
    def new_value(self) -> str:
        """What a launch with it has, in words: ``4 loader workers`` of ``num_workers 0 -> 4``."""
        words = re.sub(r"\S+ -> ([^\s,]+)", r"\1", self.text)
        words = re.sub(
            r"threads per rank (\d+)",
            lambda found: f"{format_count(int(found[1]), 'thread')} per rank",
            words,
        )
        return re.sub(
            r"^num_workers (\d+)", lambda found: format_count(int(found[1]), "loader worker"), words
        )

    @property
    def leaves_workers(self) -> int | None:
        """How many workers its loader has with it; ``None`` if it does not set that."""
        loader = self.settings.get("loader")
        return loader.get("num_workers") if isinstance(loader, Mapping) else None

    @property
    def needs_workers(self) -> bool:
        """Whether all it sets is how workers go about it."""
        loader = self.settings.get("loader")
        names = loader.keys() - {"site"} if isinstance(loader, Mapping) else set()
        return len(self.settings) == 1 and bool(names) and names <= _OF_WORKERS


Proposal = list[ScriptChange] | str
"""Changes, or why there are none."""


@dataclass(frozen=True)
class Knob:
    """Something of a job that can be set."""

    name: str
    propose: Callable[[Facts], Proposal]
    joins: bool = False
    """Whether its values seldom cost anything: it is launched with others at once to see if any of them pays."""
    leads: bool = False
    """Whether it is launched before all else where its forecast is large: nothing else removes what it does."""


def thread_vars(number: int) -> dict[str, str]:
    """Variables that give each rank's parallel loops so many threads."""
    return {"OMP_NUM_THREADS": str(number), "MKL_NUM_THREADS": str(number)}


def merge_changes(changes: Sequence[ScriptChange]) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings and variables of several changes at once."""
    variables: dict[str, str] = {}
    for change in changes:
        variables |= change.variables
    return merge_settings([change.settings for change in changes]), variables


def merge_settings(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of all parts; of what is a mapping in several, its names of all."""
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            found[name] = {**found.get(name, {}), **value} if isinstance(value, Mapping) else value
    return found
