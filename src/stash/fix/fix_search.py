"""Launches of a script with changes, kept account of: times by arm and round, what each trained, what it takes off.

Which launch comes next, and what is decided by it, is ``change_search``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from stash.core.fix_records import ChangeStanding, Effect, Launched, Proof, SearchStage
from stash.core.formatting import join_names
from stash.core.intervals import Interval
from stash.fix.decision import estimate_saving, pool_spread
from stash.fix.script_changes import ScriptChange
from stash.fix.time_budget import TimeBudget
from stash.fix.training_proof import judge_training, loss_distance
from stash.measure.launcher.trials import TrialRun

JOINED = 2
"""Times what is worth a change: what must be saved by changes launched all at once for each to be launched alone, and
by one that took turns and is no setting of the loader, of which there are many."""
NO_DIFFERENCE = 0.02
"""Of the step: less is none."""
LARGE = 0.1
"""Of the step: what saves more is there while all else is tried, goes on to be proven however noisy, and may be
proven by turns."""
_DOING: Mapping[SearchStage, str] = {
    "screening": "trying",
    "combining": "trying together",
    "final": "comparing",
}
"""What a launch of a stage is for."""
_EFFECTS: tuple[Effect, ...] = ("none", "rounding", "order", "numerics")
Arm = tuple[str, ...]
"""Names of changes; none: as typed."""
TYPED: Arm = ()


NO_TIME, NO_PROOF = (
    "no time for it: give more with --budget",
    "no time to prove it: give more with --budget",
)


class OutOfTimeError(Exception):
    """No further launch would end in time."""


Runner = Callable[[Sequence[ScriptChange], int | None], TrialRun]
"""Launches the script with some changes, for so many steps, or for as long as a launch takes."""
Turns = Callable[
    [Sequence[Mapping[str, Any]], int, Sequence[ScriptChange]],
    tuple[list[dict[int, float]], TrialRun],
]
"""Launches the script once, with settings in turns for so many rounds beside some changes that stay; by round, a
step's seconds with each of them.

The second value is the launch; no rounds where they cannot be switched.
"""


@dataclass
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

    def settle(self, standing: ChangeStanding, why: str) -> None:
        """Say where it stands, and why."""
        self.standing = standing
        self.why = why

    def note_saving(self, saves: Interval) -> None:
        """Take what was measured last of what it saves."""
        self.saves = saves

    def note_proof(self, proof: Proof) -> None:
        """Take what a launch has shown of what it trains."""
        self.proof = proof


@dataclass(frozen=True)
class Final:
    """What the search found so far: mostly what the last comparison says, and what came after it."""

    kept: tuple[str, ...] = ()
    together: Interval | None = None
    typed_seconds: float | None = None
    after_seconds: float | None = None
    rounds: int = 0
    in_turns: bool = False
    """Of one launch."""
    statements: int = 1
    """That the comparison may make, and another one after it: they share the error rate."""
    proof: Proof | None = None
    """What two longer launches show of all that is kept."""
    interrupted: bool = False
    """Whether the user ended the search."""
    joined: Arm = TYPED
    """What was faster all at once, before the comparison."""
    inseparable: Arm = TYPED
    """What of it saves only together."""


@dataclass
class Search:
    """One search of changes that need no consent but what is ``allowed``: all launches so far, and what they showed.

    ``run`` makes a launch.
    """

    candidates: list[Candidate]
    run: Runner
    budget: TimeBudget
    first: TrialRun
    """A launch as typed, which led to the candidates."""
    say: Callable[[str], None] = lambda text: None
    turns: Turns | None = None
    allowed: frozenset[str] = frozenset()
    launches: list[Launched] = field(default_factory=list)
    final: Final = field(default_factory=Final)
    stages: dict[str, list[dict[Arm, float]]] = field(default_factory=dict)
    """By stage and round, the step's seconds of each arm."""
    proofs: dict[frozenset[str], Proof] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._own: float | None = None
        """How far losses of two launches as typed are apart."""
        self._doubts: dict[Arm, list[float]] = {}
        self._note_launch("screening", 0, TYPED, self.first)
        self._compared = TYPED, self._step_seconds(self.first)
        """What changes are compared with, and its step."""
        starting = max(0.0, self.first.elapsed_seconds - self.first.steps * self.typed)
        self.budget.set_aside(self.typed, self.turns is not None, starting)

    @property
    def base(self) -> Arm:
        """What changes are compared with."""
        return self._compared[0]

    @property
    def step(self) -> float:
        """Seconds of a step of what changes are compared with."""
        return self._compared[1]

    @property
    def typed(self) -> float:
        """Seconds of a step as typed."""
        return self.final.typed_seconds or self._step_seconds(self.first)

    @property
    def repeats(self) -> bool | None:
        """Whether two launches as typed gave the same losses, bit for bit; ``None``: it was launched once."""
        return None if self._own is None else self._own == 0

    def find_candidates(self, names: Iterable[str]) -> list[Candidate]:
        wanted = set(names)
        return [each for each in self.candidates if each.name in wanted]

    def describe_arm(self, names: Iterable[str]) -> str:
        """What a launch with these changes has."""
        return (
            join_names([each.change.new_value for each in self.find_candidates(names)])
            or "the unmodified script"
        )

    def _step_seconds(self, found: TrialRun) -> float:
        assert found.step_seconds is not None
        step = found.step_seconds
        for name in ("epoch_seconds", "evaluation_seconds"):
            before, after = getattr(self.first, name), getattr(found, name)
            if before is not None:  # an epoch that did not end saves nothing
                step += before if after is None else after
        return step

    def _note_launch(self, stage: SearchStage, number: int, arm: Arm, found: TrialRun) -> None:
        self.launches.append(
            Launched(
                stage=stage,
                round=number,
                changes=arm,
                step_seconds=found.step_seconds,
                steps=found.steps,
                doubt_seconds=found.doubt_seconds,
                elapsed_seconds=found.elapsed_seconds,
                failure=_failure_of(found),
                allocated_bytes=found.allocated_bytes,
                resident_bytes=found.resident_bytes,
            )
        )
        if found.elapsed_seconds:
            self.budget.launches.append(found.elapsed_seconds)
        if found.step_seconds is not None and stage != "filling":
            rounds = self.stages.setdefault(stage, [])
            while len(rounds) <= number:
                rounds.append({})
            rounds[number][arm] = self._step_seconds(found)
            self._doubts.setdefault(arm, []).append(found.doubt_seconds)

    def launch(self, stage: SearchStage, number: int, arm: Arm) -> str:
        """Launch an arm once; the value says why it is out, or is empty. Raises OutOfTimeError instead of being late.

        That is told by what launches took so far; one that takes longer is ended by whoever runs it.
        """
        members = self.find_candidates(arm)
        filled = {
            name for each in self.launches if each.stage == "filling" for name in each.changes
        }
        fresh = [each for each in members if each.change.fills and each.name not in filled]
        own = [
            each.elapsed_seconds
            for each in self.launches
            if each.changes == arm and each.stage != "turns"
        ]
        if self.budget.seconds_left() < (2 if fresh else 1) * max(
            self.budget.launch_seconds(), *own, 0.0
        ):
            raise OutOfTimeError
        if fresh:
            self.say(f"preparing {self.describe_arm(arm)}")
            self._note_launch("filling", 0, arm, self.run([each.change for each in members], None))
        again = f", round {number + 1}" if number else ""
        self.say(f"{_DOING[stage]} {self.describe_arm(arm)}{again}")
        found = self.run([each.change for each in members], None)
        self._note_launch(stage, number, arm, found)
        new = [each for each in members if each.name not in self.base] or members
        blamed = new if len(new) == 1 else []
        if self.budget.seconds_left() <= 0 and found.step_seconds is None:
            raise OutOfTimeError  # it was ended
        if found.failure is not None or found.step_seconds is None:
            why = _failure_of(found) or "no step of it was timed"
            self.set_standing(blamed, "failed", why)
            return why
        if arm == TYPED:
            self._own = max(
                self._own or 0.0, loss_distance(self.first.evidence, found.evidence) or 0.0
            )
            return ""
        shown = self._check_training(found, _combined_effect(members))
        self.proofs[frozenset(arm)] = shown
        for each in blamed:
            each.note_proof(shown)
        if not shown.holds:
            self.set_standing(blamed, "other training", shown.text)
            return shown.text
        return ""

    def launch_in_turns(
        self,
        rungs: Mapping[Arm, Mapping[str, Any]],
        rounds: int,
        stage: SearchStage,
        before: int = 0,
        beside: Arm = TYPED,
    ) -> tuple[list[dict[Arm, float]], bool]:
        """One launch in which the script as typed and these arms take turns: its rounds, and whether it failed.

        All of it has the changes ``beside`` them; ``before``: rounds of an earlier one, which the record counts on
        from.
        """
        assert self.turns is not None
        stays = [each.change for each in self.find_candidates(beside)]
        rows, found = self.turns([{}, *rungs.values()], rounds, stays)
        self.launches.append(
            Launched(
                stage="turns",
                round=0,
                changes=tuple(dict.fromkeys([*beside, *(name for arm in rungs for name in arm)])),
                step_seconds=None,
                steps=found.steps,
                elapsed_seconds=found.elapsed_seconds,
                failure=_failure_of(found),
            )
        )
        arms = [TYPED, *rungs]
        by_arm = [{arms[index]: seconds for index, seconds in row.items()} for row in rows]
        for number, row in enumerate(by_arm, before):
            self.launches.extend(
                Launched(stage=stage, round=number, changes=(*beside, *arm), step_seconds=seconds)
                for arm, seconds in row.items()
            )
        return by_arm, found.failure is not None

    def _check_training(self, found: TrialRun, effect: Effect) -> Proof:
        shown = judge_training(self.first.evidence, found.evidence, effect, self._own)
        if not shown.holds and self._own is None:  # does the script repeat itself?
            if not self.budget.has_room(1):
                raise OutOfTimeError
            again = self.run([], None)
            self._own = loss_distance(self.first.evidence, again.evidence) or 0.0
            shown = judge_training(self.first.evidence, found.evidence, effect, self._own)
        return shown

    def compare_training(
        self, typed: TrialRun, changed: TrialRun, members: Sequence[Candidate]
    ) -> Proof:
        """What the changes of ``members`` did to training, by two longer launches of their own."""
        effect = _combined_effect(members)
        proof = judge_training(typed.evidence, changed.evidence, effect, self._own)
        self.conclude(proof=proof)
        return proof

    def set_standing(
        self, members: Iterable[Candidate], standing: ChangeStanding, why: str
    ) -> None:
        for each in members:
            each.settle(standing, why)

    def compare_with(self, base: Arm) -> None:
        """Compare further changes with an arm that was launched."""
        rows = self.stages["screening"]
        self._compared = base, fmean(row[base] for row in rows if base in row)

    def conclude(self, **found: Any) -> None:
        """Take what was found by now, by fields of ``Final``."""
        self.final = replace(self.final, **found)

    def estimate_saving(
        self, stage: str, slow: Arm, fast: Arm, rate: float, number: int | None = None
    ) -> Interval:
        # of turns alone none is known
        doubts = [fmean(self._doubts.get(arm, [0.0])) for arm in (slow, fast)]
        doubt = abs(doubts[0] - doubts[1])
        spread = pool_spread(list(self.stages.values()))
        return estimate_saving(self.stages[stage][:number], slow, fast, spread, rate, doubt)


def _failure_of(found: TrialRun) -> str:
    return "" if found.failure is None else found.failure.sentence


def _combined_effect(members: Sequence[Candidate]) -> Effect:
    """What all of them together do to training."""
    return max((each.change.effect for each in members), key=_EFFECTS.index)


def arm_of(members: Iterable[Candidate]) -> Arm:
    """The arm of these changes."""
    return tuple(each.name for each in members)


def is_beyond_noise(saves: Interval | None) -> bool:
    """Whether it is more than chance does in two of three cases."""
    return saves is None or saves.half_width is None or saves.value > saves.half_width / 2


def is_surely_slower(saves: Interval | None) -> bool:
    """Whether even the best end of what it saves is a loss; a value without an interval is taken as it is."""
    return saves is not None and (saves.value if saves.high is None else saves.high) < 0


def saved_seconds(each: Candidate) -> float:
    return each.saves.value if each.saves is not None else 0.0
