"""A search of changes as a state machine: what is known of each, the launches so far, and how the next one is asked for.

Pure: stages (``screening``, ``final_comparison``) are generators that yield an *action*, a launch of the script, and
are sent its *outcome*; ``run_search`` drives them, and alone starts anything or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from stash.core.fix_records import ChangeStanding, Effect, Launched, Proof, SearchStage
from stash.core.formatting import join_names
from stash.core.intervals import Interval
from stash.fix.decision import Round, estimate_saving, pool_spread
from stash.fix.script_changes import ScriptChange, merge_settings
from stash.fix.time_budget import TURNS, TimeBudget
from stash.fix.training_proof import judge_training, loss_distance
from stash.measure.launcher.trials import TrialRun

LARGE = 0.1
"""Of the step: what saves more is there while all else is tried, and may be proven by turns."""
NO_TIME, NO_PROOF = (
    "no time for it: give more with --budget",
    "no time to prove it: give more with --budget",
)
_DOING: Mapping[SearchStage, str] = {
    "filling": "preparing",
    "screening": "trying",
    "combining": "trying together",
    "final": "comparing",
}
"""What a launch of a stage is for."""
_EFFECTS: tuple[Effect, ...] = ("none", "rounding", "order", "numerics")
Arm = tuple[str, ...]
"""Names of changes; none: as typed."""
TYPED: Arm = ()


class OutOfTimeError(Exception):
    """No further launch would end in time."""


@dataclass(frozen=True)
class StartScript:
    """Action: start the script with some changes, for so many steps, or for as long as a launch takes."""

    text: str
    """What is said of it."""
    changes: tuple[ScriptChange, ...]
    steps: int | None = None


@dataclass(frozen=True)
class TakeTurns:
    """Action: start the script once, with settings in turns for ``TURNS`` rounds beside some changes that stay."""

    text: str
    rungs: tuple[Mapping[str, Any], ...]
    changes: tuple[ScriptChange, ...]


@dataclass(frozen=True)
class LaunchEnded:
    """Event: a launch has ended."""

    trial: TrialRun
    left: float
    """Seconds until time is up."""
    rows: Sequence[Mapping[int, float]] = ()
    """Of turns, by round a step's seconds with each setting; none where they cannot be switched."""


@dataclass(frozen=True)
class Candidate:
    """A change, and what is known of it by now."""

    change: ScriptChange
    standing: ChangeStanding = "left out"
    why: str = ""
    saves: Interval | None = None
    proof: Proof | None = None

    @property
    def name(self) -> str:
        return self.change.name

    @property
    def is_open(self) -> bool:
        """Whether nothing is decided of it."""
        return self.standing == "left out" and not self.why

    @property
    def saved_seconds(self) -> float:
        return 0.0 if self.saves is None else self.saves.value


@dataclass(frozen=True)
class Final:
    """What the final comparison says, and what came after it."""

    kept: Arm = ()
    together: Interval | None = None
    typed_seconds: float | None = None
    after_seconds: float | None = None
    rounds: int = 0
    in_turns: bool = False
    """Of one launch."""
    proof: Proof | None = None
    """What two longer launches show of all that is kept."""
    interrupted: bool = False
    """Whether the user ended the search."""


@dataclass
class Search:
    """One search of changes that need no consent but what is ``allowed``."""

    first: TrialRun
    """A launch as typed, which led to the candidates."""
    candidates: dict[str, Candidate]
    budget: TimeBudget
    takes_turns: bool
    allowed: frozenset[str]
    launches: list[Launched] = field(default_factory=list)
    proofs: dict[frozenset[str], Proof] = field(default_factory=dict)
    """What launches with these changes trained."""
    base: Arm = TYPED
    """What changes are compared with: it was launched."""
    final: Final = field(default_factory=Final)
    switches_loader: bool = True
    """Until a launch in which loaders' settings were to take turns showed nothing."""
    own: float | None = None
    """How far losses of two launches as typed are apart."""

    @property
    def typed(self) -> float:
        """Seconds of a step as typed."""
        return self.final.typed_seconds or self.budget.step

    @property
    def step(self) -> float:
        """Seconds of a step of what changes are compared with."""
        return fmean(row[self.base] for row in self.rounds("screening") if self.base in row)

    @property
    def repeats(self) -> bool | None:
        """Whether two launches as typed gave the same losses, bit for bit; ``None``: it was launched once."""
        return None if self.own is None else self.own == 0

    def find_candidates(self, names: Iterable[str]) -> list[Candidate]:
        wanted = set(names)
        return [each for name, each in self.candidates.items() if name in wanted]

    def note(self, names: Iterable[str], **fields: Any) -> None:
        """Take what is known of these by now, by fields of ``Candidate``."""
        for name in names:
            self.candidates[name] = replace(self.candidates[name], **fields)

    def settle(self, names: Iterable[str], standing: ChangeStanding, why: str = "") -> None:
        """Say where these stand, and why."""
        self.note(names, standing=standing, why=why)

    def conclude(self, **found: Any) -> None:
        """Take what was found by now, by fields of ``Final``."""
        self.final = replace(self.final, **found)

    def rounds(self, stage: SearchStage) -> list[dict[Arm, float]]:
        """Of a stage by round, the step's seconds of each arm."""
        found: dict[int, dict[Arm, float]] = {}
        for each in self.launches:
            if each.stage == stage and each.step_seconds is not None:
                found.setdefault(each.round, {})[each.changes] = each.step_seconds
        return [found[number] for number in sorted(found)]

    def estimate_saving(
        self, slow: Arm, fast: Arm, rate: float, final: Sequence[Round] = ()
    ) -> Interval:
        """What ``fast`` saves against ``slow``: in rounds of the final comparison, else of screening."""
        screened = self.rounds("screening")
        doubts = {
            arm: [
                each.doubt_seconds
                for each in self.launches
                if each.changes == arm and each.steps and each.step_seconds is not None
            ]
            for arm in (slow, fast)
        }
        # of turns alone none is known
        one, other = (fmean(doubts[arm] or [0.0]) for arm in (slow, fast))
        spread = pool_spread([screened, final])
        return estimate_saving(final or screened, slow, fast, spread, rate, abs(one - other))

    def note_launch(self, stage: SearchStage, number: int, arm: Arm, outcome: LaunchEnded) -> None:
        """Take a launch into account."""
        found = outcome.trial
        self.launches.append(
            Launched(
                stage=stage,
                round=number,
                changes=arm,
                step_seconds=None if stage == "filling" else step_seconds(self.first, found),
                steps=found.steps,
                doubt_seconds=found.doubt_seconds,
                elapsed_seconds=found.elapsed_seconds,
                failure=_failure_of(found),
                allocated_bytes=found.allocated_bytes,
                resident_bytes=found.resident_bytes,
            )
        )
        took = (found.elapsed_seconds,) if found.elapsed_seconds and stage != "turns" else ()
        self.budget = replace(
            self.budget, left=outcome.left, launches=(*self.budget.launches, *took)
        )

    def list_launch_seconds(self, arm: Arm) -> list[float]:
        """What each launch with these changes took, turns and such that prepare samples left out."""
        return [
            each.elapsed_seconds
            for each in self.launches
            if each.changes == arm
            and each.elapsed_seconds
            and each.stage not in ("turns", "filling")
        ]

    def launch_seconds(self, arm: Arm) -> float:
        """Seconds of a launch with these changes: what such launches took, else what all did."""
        return fmean(self.list_launch_seconds(arm) or [self.budget.launch])

    def describe_arm(self, arm: Arm) -> str:
        """What a launch with these changes has."""
        changes = [each.change.new_value for each in self.find_candidates(arm)]
        return join_names(changes) or "the unmodified script"

    def changes_of(self, arm: Arm) -> tuple[ScriptChange, ...]:
        return tuple(each.change for each in self.find_candidates(arm))


Stage = Generator[StartScript | TakeTurns, LaunchEnded, Any]
"""Decides launch after launch."""


def begin_search(
    changes: Iterable[ScriptChange],
    first: TrialRun,
    left: float,
    takes_turns: bool = False,
    allowed: frozenset[str] = frozenset(),
) -> Search:
    """A search whose first launch as typed is known."""
    step = step_seconds(first, first)
    assert step is not None
    starting = max(0.0, first.elapsed_seconds - first.steps * step)
    budget = TimeBudget(left, step, starting)
    candidates = {each.name: Candidate(each) for each in changes}
    search = Search(first, candidates, budget, takes_turns, allowed)
    search.note_launch("screening", 0, TYPED, LaunchEnded(first, left))
    return search


def step_seconds(first: TrialRun, found: TrialRun) -> float | None:
    """Seconds of a step, with what beginning epochs and evaluations takes of it."""
    step = found.step_seconds
    if step is None:
        return None
    for name in ("epoch_seconds", "evaluation_seconds"):
        before, after = getattr(first, name), getattr(found, name)
        if before is not None:  # an epoch that did not end saves nothing
            step += before if after is None else after
    return step


def launch(search: Search, stage: SearchStage, number: int, arm: Arm) -> Stage:
    """Launch an arm once; the value says why it is out, or is empty. Raises OutOfTimeError instead of being late.

    That is told by what launches took so far; one that takes longer is ended by whoever runs it.
    """
    filled = {name for each in search.launches if each.stage == "filling" for name in each.changes}
    is_fresh = any(each.fills and each.name not in filled for each in search.changes_of(arm))
    longest = max([search.budget.launch, *search.list_launch_seconds(arm)])
    if search.budget.left < (2 if is_fresh else 1) * longest:
        raise OutOfTimeError
    action = StartScript(f"{_DOING[stage]} {search.describe_arm(arm)}", search.changes_of(arm))
    if is_fresh:
        prepares = replace(action, text=f"{_DOING['filling']} {search.describe_arm(arm)}")
        search.note_launch("filling", 0, arm, (yield prepares))
    again = f", round {number + 1}" if number else ""
    outcome = yield replace(action, text=f"{action.text}{again}")
    search.note_launch(stage, number, arm, outcome)
    found = outcome.trial
    new = [name for name in arm if name not in search.base] or arm
    blamed = new if len(new) == 1 else ()
    if outcome.left <= 0 and found.step_seconds is None:
        raise OutOfTimeError  # it was ended
    if found.failure is not None or found.step_seconds is None:
        why = _failure_of(found) or "no step of it was timed"
        search.settle(blamed, "failed", why)
        return why
    if arm == TYPED:
        distance = loss_distance(search.first.evidence, found.evidence) or 0.0
        search.own = max(search.own or 0.0, distance)
        return ""
    typed, effect = search.first.evidence, combined_effect(search.changes_of(arm))
    shown = judge_training(typed, found.evidence, effect, search.own)
    if not shown.holds and search.own is None:  # does the script repeat itself?
        yield from launch(search, "screening", len(search.rounds("screening")), TYPED)
        shown = judge_training(typed, found.evidence, effect, search.own)
    search.proofs[frozenset(arm)] = shown
    search.note(blamed, proof=shown)
    if not shown.holds:
        search.settle(blamed, "other training", shown.text)
        return shown.text
    return ""


def launch_in_turns(
    search: Search,
    text: str,
    rungs: Mapping[Arm, Mapping[str, Any]],
    stage: SearchStage,
    beside: Arm = TYPED,
) -> Stage:
    """One launch in which the script as typed and these arms take turns, all of it with the changes ``beside`` them.

    The value: its rounds, and whether it failed.
    """
    outcome = yield TakeTurns(text, ({}, *rungs.values()), search.changes_of(beside))
    names = dict.fromkeys([*beside, *(name for arm in rungs for name in arm)])
    search.note_launch("turns", 0, tuple(names), outcome)
    arms = [TYPED, *rungs]
    rows = [{arms[index]: seconds for index, seconds in row.items()} for row in outcome.rows]
    search.launches.extend(
        Launched(stage=stage, round=number, changes=(*beside, *arm), step_seconds=seconds)
        for number, row in enumerate(rows)
        for arm, seconds in row.items()
    )
    return rows, outcome.trial.failure is not None


def run_search(
    search: Search,
    stages: Stage,
    run: Callable[[Sequence[ScriptChange], int | None], TrialRun],
    take_turns: Callable[..., tuple[list[dict[int, float]], TrialRun]],
    seconds_left: Callable[[], float],
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Do what the stages ask for, until they are done; a Ctrl-C is theirs to know of."""
    outcome = None
    while True:
        try:
            action = next(stages) if outcome is None else stages.send(outcome)
        except StopIteration:
            return
        say(action.text)
        try:
            if isinstance(action, StartScript):
                outcome = LaunchEnded(run(action.changes, action.steps), seconds_left())
            else:
                rows, trial = take_turns(action.rungs, TURNS, action.changes)
                outcome = LaunchEnded(trial, seconds_left(), rows)
        except KeyboardInterrupt as interrupt:
            try:
                stages.throw(interrupt)
            except StopIteration:
                return


def _failure_of(found: TrialRun) -> str:
    return "" if found.failure is None else found.failure.sentence


def combined_effect(changes: Sequence[ScriptChange]) -> Effect:
    """What all of them together do to training."""
    return max((each.effect for each in changes), key=_EFFECTS.index)


def leave_out(arm: Arm, out: Iterable[str]) -> Arm:
    """The arm without some of its changes."""
    return tuple(name for name in arm if name not in set(out))


_LOADERS = {"num_workers", "prefetch_factor", "pin_memory", "in_order"}
"""Settings of a loader that can be switched between blocks."""
_SWITCHED = {
    "flags",
    "autocast",
    "zero_grad",
    "optimizer",
    "skip",
    "late",
    "non_blocking",
    "exchange_every",
    "threads",
}
"""Settings that can be, as they are."""


def switchable_settings(changes: Iterable[ScriptChange]) -> dict[str, Any] | None:
    """The settings of all of these, which are switched between blocks; ``None`` if one of any cannot be."""
    settings = merge_settings([each.settings for each in changes])
    if any(not each.settings for each in changes) or not settings.keys() <= {*_SWITCHED, "loader"}:
        return None
    if any(each.variables and "threads" not in each.settings for each in changes):
        return None
    if isinstance(loader := settings.get("loader"), Mapping):
        settings["loader"] = {name: value for name, value in loader.items() if name != "site"}
        return settings if settings["loader"].keys() <= _LOADERS else None
    return settings
