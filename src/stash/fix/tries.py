"""Launches of a script with changes, kept account of: times by arm and round, what each trained, what it takes off.

Which launch comes next, and what is decided by it, is ``change_search``'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import Any, Protocol

from stash.core.fix_records import ChangeStanding, Effect, Launched, Proof, SearchStage
from stash.core.intervals import Interval
from stash.core.units import format_seconds
from stash.fix.decision import ERROR_RATE, LOOKS, WORTH, Round, Spread, pooled, saving
from stash.fix.script_changes import ScriptChange
from stash.fix.training_proof import apart, proof
from stash.measure.launcher.trials import TrialRun

_TURNS, _MOST_TURNS = 3, 6
"""Rounds of a launch in which loaders take turns; more than the least only within twice what its start takes."""
_TURNS_SHARE, _BLOCK_SECONDS, _TURN_STEPS = 0.3, 1.5, 8
"""Share of the time that is left for it; seconds that a block takes at least, and its steps."""
ARMS = 2
"""Of a final comparison, as far as its time is set aside beforehand."""
_SMALL, _FEW = 0.1, 4
"""Where all of them save less of the step than this by forecast, so many values take turns."""
_SWITCHED = {"num_workers", "prefetch_factor", "pin_memory"}
"""Settings of a loader that can."""
NO_DIFFERENCE = 0.02
"""Of the step: less is none."""
_EFFECTS: tuple[Effect, ...] = ("none", "rounding", "order", "numerics", "batch")
Arm = tuple[str, ...]
"""Names of changes; none: as typed."""
TYPED: Arm = ()


NO_TIME, NO_PROOF = "no time for it: give more with --within", "no time to prove it: give more with --within"


class OutOfTimeError(Exception):
    """No further launch would end in time."""


class Runner(Protocol):
    """Launches the script with some changes, for as long as a launch takes, or for so many steps."""

    def __call__(self, changes: Sequence[ScriptChange], steps: int | None = None) -> TrialRun: ...


class Turns(Protocol):
    """Launches the script once, with settings of its loader in turns; by round, a step's seconds with each.

    The second value is the launch; no rounds where the loader cannot be switched.
    """

    def __call__(
        self, rungs: Sequence[Mapping[str, Any]], rounds: int
    ) -> tuple[list[dict[int, float]], TrialRun]: ...


@dataclass
class Candidate:
    """A change, and what is known of it by now."""

    change: ScriptChange
    standing: ChangeStanding = "left out"
    why: str = ""
    saves: Interval | None = None
    proof: Proof | None = None


@dataclass
class Tries:
    """All launches so far; ``run`` makes one, ``clock`` tells seconds, of which ``within`` may pass."""

    candidates: list[Candidate]
    run: Runner
    clock: Callable[[], float]
    within: float
    first: TrialRun
    """A launch as typed, which led to the candidates."""
    turns: Turns | None = None
    say: Callable[[str], None] = lambda text: None
    error_rate: float = ERROR_RATE
    worth: float = WORTH
    """Of the step: the smallest saving that is worth a change."""
    launches: list[Launched] = field(default_factory=list)
    repeats: bool | None = None

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._own: float | None = None
        """How far losses of two launches as typed are apart."""
        self.stages: dict[str, list[dict[Arm, float]]] = {}
        """By stage and round, the step's seconds of each arm."""
        self._doubts: dict[Arm, list[float]] = {}
        self._counts_epochs = self.first.epoch_seconds is not None
        self.last_proof: dict[Arm, Proof] = {}
        self._filled: set[str] = set()
        self._note("screening", 0, TYPED, self.first)
        self.typed = self.step = self._seconds(self.first)
        """Seconds of a step as typed, and of what changes are compared with."""
        self.base: Arm = TYPED
        """What they are compared with."""
        proof_takes = LOOKS[0] * ARMS * self.each()
        self.reserve = proof_takes if self.left() >= proof_takes + self.each() else 0.0
        """Seconds set aside for a proof; where there is no time for one, all goes into what may be worth one."""

    def of(self, names: Iterable[str]) -> list[Candidate]:
        wanted = set(names)
        return [each for each in self.candidates if each.change.name in wanted]

    def _seconds(self, found: TrialRun) -> float:
        assert found.step_seconds is not None
        return found.step_seconds + ((found.epoch_seconds or 0.0) if self._counts_epochs else 0.0)

    def _note(self, stage: SearchStage, number: int, arm: Arm, found: TrialRun) -> None:
        failure = found.failure.sentence if found.failure is not None else ""
        self.launches.append(
            Launched(
                stage=stage, round=number, changes=arm, step_seconds=found.step_seconds, steps=found.steps,
                doubt_seconds=found.doubt_seconds, elapsed_seconds=found.elapsed_seconds, failure=failure,
                allocated_bytes=found.allocated_bytes, resident_bytes=found.resident_bytes,
            )
        )  # fmt: skip
        if found.step_seconds is not None and stage != "filling":
            rounds = self.stages.setdefault(stage, [])
            while len(rounds) <= number:
                rounds.append({})
            rounds[number][arm] = self._seconds(found) / math.prod(each.change.samples for each in self.of(arm))
            self._doubts.setdefault(arm, []).append(found.doubt_seconds)

    def launch(self, stage: SearchStage, number: int, arm: Arm) -> str:
        """Launch an arm once; the value says why it is out, or is empty. Raises OutOfTimeError instead of being late.

        That is told by what launches took so far; one that takes longer is ended by whoever runs it.
        """
        members = self.of(arm)
        fresh = {each.change.name for each in members if each.change.fills} - self._filled
        own = [each.elapsed_seconds for each in self.launches if each.changes == arm and each.stage != "turns"]
        if self.left() < (2 if fresh else 1) * max(self.each(), *own, 0.0):
            raise OutOfTimeError
        if fresh:
            self._filled |= fresh
            self.say(f"filling: {' + '.join(arm)}")
            self._note("filling", 0, arm, self.run([each.change for each in members]))
        self.say(f"{stage}, round {number + 1}: {' + '.join(arm) or 'as typed'}")
        found = self.run([each.change for each in members])
        self._note(stage, number, arm, found)
        new = [each for each in members if each.change.name not in self.base] or members
        blamed = new if len(new) == 1 else []
        if self.left() <= 0 and found.step_seconds is None:
            raise OutOfTimeError  # it was ended
        if found.failure is not None or found.step_seconds is None:
            why = found.failure.sentence if found.failure is not None else "no step of it was timed"
            self.stand(blamed, "failed", why)
            return why
        if arm == TYPED:
            self._own = max(self._own or 0.0, apart(self.first.evidence, found.evidence) or 0.0)
            self.repeats = self._own == 0
            return ""
        shown = self._shown(found, _effect(members))
        self.last_proof[arm] = shown
        for each in blamed:
            each.proof = shown
        if not shown.holds:
            self.stand(blamed, "other training", shown.text)
            return shown.text
        return ""

    def _shown(self, found: TrialRun, effect: Effect) -> Proof:
        shown = proof(self.first.evidence, found.evidence, effect, self._own)
        if not shown.holds and self._own is None:  # does the script repeat itself?
            if self.left() < self.each():
                raise OutOfTimeError
            again = self.run([])
            self._own = apart(self.first.evidence, again.evidence) or 0.0
            self.repeats = self._own == 0
            shown = proof(self.first.evidence, found.evidence, effect, self._own)
        return shown

    def compared(self, typed: TrialRun, changed: TrialRun, members: Sequence[Candidate]) -> Proof:
        """What the changes of ``members`` did to training, by two launches of their own."""
        return proof(typed.evidence, changed.evidence, _effect(members), self._own)

    def stand(self, members: Iterable[Candidate], standing: ChangeStanding, why: str) -> None:
        for each in members:
            each.standing, each.why = standing, why

    def left(self) -> float:
        """Seconds until time is up."""
        return self.within - (self.clock() - self._began)

    def each(self) -> float:
        """Seconds of a launch."""
        return fmean(each.elapsed_seconds for each in self.launches if each.stage != "turns")

    def hurry(self, launches: int = 1) -> bool:
        """Whether after so many more launches there would be no time left to prove a change, if there was any."""
        return self.reserve > 0 and self.left() < launches * self.each() + self.reserve

    def in_turns(self, wanted: list[Candidate]) -> list[Candidate]:
        """Settle in one launch which settings of the loader are worth more; the value is what is left to try.

        Of each knob that is its best value.
        """
        switched = [each for each in wanted if _rung(each.change) is not None]
        if self.turns is None or len(switched) < 2:
            return wanted
        switched, turns = self._that_take_turns(switched)
        wanted = [each for each in wanted if not each.why]
        if len(switched) < 2:
            return wanted
        names = ", ".join(each.change.name for each in switched)
        self.say(f"as typed and {names} in turns, in one launch")
        rows, found = self.turns([{}, *(_rung(each.change) or {} for each in switched)], turns)
        failure = found.failure.sentence if found.failure is not None else ""
        launched = Launched(
            stage="turns", round=0, changes=tuple(each.change.name for each in switched), step_seconds=None,
            steps=found.steps, elapsed_seconds=found.elapsed_seconds, failure=failure,
        )  # fmt: skip
        self.launches.append(launched)
        if len(rows) < _TURNS:
            return wanted
        arms = [TYPED, *((each.change.name,) for each in switched)]
        rows_by_arm = [{arms[index]: seconds for index, seconds in row.items()} for row in rows]
        for number, row in enumerate(rows_by_arm):
            self.launches += [
                Launched(stage="turns", round=number, changes=arm, step_seconds=seconds)
                for arm, seconds in row.items()
            ]
        spread = pooled([[{" + ".join(arm): value for arm, value in row.items()} for row in rows_by_arm]])
        for index, each in enumerate(switched, 1):
            named = [{"as typed": row[0], "changed": row[index]} for row in rows]
            each.saves = saving(named, "as typed", "changed", spread, 0.05)
        best: dict[str, Candidate] = {}
        for each in sorted(switched, key=gained, reverse=True):
            first = best.setdefault(each.change.knob, each)
            alike = gained(first) - gained(each) < NO_DIFFERENCE * self.typed
            if alike and _workers(each) < _workers(first):  # what does as well with less
                best[each.change.knob] = each
        for each in switched:
            saved, first = gained(each), best[each.change.knob]
            if saved < self.worth * self.typed or not beyond_noise(each.saves):
                self.stand([each], "slower" if saved < -NO_DIFFERENCE * self.typed else "no difference", "")
            elif each is not first:
                self.stand([each], "no difference", f"{first.change.text} was chosen of these")
        return [each for each in wanted if each.standing == "left out"]

    def _that_take_turns(self, switched: list[Candidate]) -> tuple[list[Candidate], int]:
        """Those of which there is time for turns, with a final comparison after them, and how many rounds."""
        most = max(math.inf if each.change.forecast is None else each.change.forecast for each in switched)
        if most < _SMALL * self.typed:  # then the next value of the same saves hardly more
            at_most = format_seconds(max(0.0, most))
            self.stand(switched[_FEW:], "left out", f"saves {at_most} of the step at most, by forecast, as others do")
            switched = switched[:_FEW]
        costs = [max(_BLOCK_SECONDS, self.typed * 2 * max(_TURN_STEPS, _workers(each))) for each in switched]
        seconds = [_TURNS * (costs[0] + spent) for spent in accumulate(costs)]
        starting = max(0.0, self.first.elapsed_seconds - self.first.steps * self._seconds(self.first))
        spare = self.left() - starting - self.reserve
        room = min(spare, max(seconds[1], _TURNS_SHARE * self.left() - starting))
        fit = sum(spent <= room for spent in seconds)
        if fit < 2:
            return [], 0
        self.stand(switched[fit:], "left out", NO_TIME)
        return switched[:fit], min(_MOST_TURNS, max(_TURNS, int(2 * starting * _TURNS / seconds[fit - 1])))

    def saving(self, stage: str, slow: Arm, fast: Arm, rate: float, number: int | None = None) -> Interval:
        rounds = self.stages[stage][:number]
        doubt = abs(fmean(self._doubts[slow]) - fmean(self._doubts[fast]))
        named = [{" + ".join(arm): seconds for arm, seconds in row.items()} for row in rounds]
        return saving(named, " + ".join(slow), " + ".join(fast), self.spread(), rate, doubt)

    def spread(self) -> Spread | None:
        stages: list[list[Round]] = []
        for rounds in self.stages.values():
            stages.append([{" + ".join(arm): each for arm, each in row.items()} for row in rounds])
        return pooled(stages)


def _effect(members: Sequence[Candidate]) -> Effect:
    """What all of them together do to training."""
    return max((each.change.effect for each in members), key=_EFFECTS.index)


def _rung(change: ScriptChange) -> Mapping[str, Any] | None:
    """The loader's settings of a change that is nothing else, and that can be switched between blocks."""
    loader = change.settings.get("loader")
    if not isinstance(loader, Mapping) or len(change.settings) > 1 or change.variables or change.cores:
        return None
    rung = {name: value for name, value in loader.items() if name != "site"}
    return rung if rung.keys() <= _SWITCHED else None


def _workers(each: Candidate) -> int:
    return int((_rung(each.change) or {}).get("num_workers", 0))


def beyond_noise(saves: Interval | None) -> bool:
    """Whether it is more than chance does in two of three cases."""
    return saves is None or saves.half_width is None or saves.value > saves.half_width / 2


def gained(each: Candidate) -> float:
    return each.saves.value if each.saves is not None else 0.0
