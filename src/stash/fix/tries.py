"""Launches of a script with changes, kept account of: times by arm and round, what each trained, what it takes off.

Which launch comes next, and what is decided by it, is ``change_search``'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean, median
from typing import Any, Protocol

from stash.core.fix_records import ChangeStanding, Effect, Launched, Proof, SearchStage
from stash.core.intervals import Interval
from stash.core.units import format_seconds
from stash.fix.decision import ERROR_RATE, LOOKS, WORTH, pooled, proven, saving
from stash.fix.script_changes import ScriptChange
from stash.fix.training_proof import apart, proof
from stash.measure.launcher.trials import TrialRun

_TURNS, _MOST_TURNS = 3, 6
"""Rounds of a launch in which loaders take turns; more than the least only within twice what its start takes."""
_TURNS_SHARE, _BLOCK_SECONDS, _TURN_STEPS = 0.3, 1.5, 8
"""Share of the time that is left for it; seconds that a block takes, half where no queue is filled, and its steps."""
_AGAIN_SHARE = 0.2
"""Likewise, for turns once more of what noise may hide."""
ARMS = 2
"""Of a final comparison, as far as its time is set aside beforehand."""
_LATE = 1.3
"""Times what blocks are thought to take, where a launch that is ended before its end shows nothing."""
_SMALL, _FEW = 0.1, 4
"""Where all of them save less of the step than this by forecast, so many values take turns."""
_LOADERS = {"num_workers", "prefetch_factor", "pin_memory"}
"""Settings of a loader that can."""
_SWITCHED = {
    "flags", "autocast", "zero_grad", "optimizer", "skip", "late", "non_blocking", "exchange_every", "threads",
}  # fmt: skip
"""Settings that can be switched between blocks as they are."""
JOINED = 2
"""Times what is worth a change: what must be saved by changes launched all at once for each to be launched alone, and
by one that took turns and is no setting of the loader, of which there are many."""
_FAR = 1.5
"""Times the step as typed: what takes longer, like threads that fight for cores, says nothing of others' spread. Nor
does a block that something held up: of more than three an arm's longest counts as the next, else as that many."""
NO_DIFFERENCE = 0.02
"""Of the step: less is none."""
LARGE = 0.1
"""Of the step: what saves more is there while all else is tried, goes on to be proven however noisy, and may be
proven by turns."""
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
    """Launches the script once, with settings in turns; by round, a step's seconds with each of them.

    The second value is the launch; no rounds where they cannot be switched.
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
        self.proofs: dict[frozenset[str], Proof] = {}
        self._filled: set[str] = set()
        self._note("screening", 0, TYPED, self.first)
        self.typed = self.step = self._seconds(self.first)
        """Seconds of a step as typed, and of what changes are compared with."""
        self.base: Arm = TYPED
        """What they are compared with."""
        self.reserve = self._set_aside()
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
        self.proofs[frozenset(arm)] = shown
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
        return fmean(each.elapsed_seconds for each in self.launches if each.stage != "turns" and each.elapsed_seconds)

    @property
    def starting(self) -> float:
        """Seconds of a launch until its steps are timed, and after it."""
        return max(0.0, self.first.elapsed_seconds - self.first.steps * self._seconds(self.first))

    def hurry(self, launches: int = 1) -> bool:
        """Whether after so many more launches there would be no time left to prove a change, if there was any."""
        return self.reserve > 0 and self.left() < launches * self.each() + self.reserve

    def in_turns(self, wanted: list[Candidate]) -> list[Candidate]:
        """Settle in one launch what can be switched while it runs; the value is what is left to try.

        Of each knob that is its best value.
        """
        turns, rounds = self._that_take_turns(_turns_of(wanted))
        wanted = [each for each in wanted if not each.why]
        if self.turns is None or len(turns) < 2:
            return wanted
        names = ", ".join(turn.member.change.name for turn in turns)
        self.say(f"as typed and {names} in turns, in one launch")
        rungs: dict[Arm, Mapping[str, Any]] = {(turn.member.change.name,): turn.rung for turn in turns}
        able = [turn.member for turn in turns if turn.member.change.joins and "loader" not in turn.rung]
        all_of = tuple(each.change.name for each in able)
        every = rung_of([each.change for each in able])
        rungs |= {all_of: every} if len(able) > 1 and every is not None else {}
        rows_by_arm, failed = self.turned(rungs, rounds, "turns")
        if len(rows_by_arm) < _TURNS:  # one broke the job, or the loader cannot be switched: the others once more
            others = [turn.member for turn in turns if ("loader" in turn.rung) == failed]
            rest = [each for each in wanted if each not in others]
            return [*self.in_turns(others), *rest] if len(others) < len(turns) else wanted
        saves = self._judged(rows_by_arm)
        hidden = {arm: rungs[arm] for arm, each in saves.items() if self._hidden(each)}
        room = min(self.left() - self.reserve, _AGAIN_SHARE * self.left())
        if hidden and self.turns_take(hidden.values(), rounds) <= room:
            self.say("what noise may hide once more")
            again, _ = self.turned(hidden, rounds, "turns", len(rows_by_arm))
            both = [*rows_by_arm, *again]
            saves |= self._judged([{arm: row[arm] for arm in (TYPED, *hidden) if arm in row} for row in both])
        for turn in turns:
            turn.member.saves = saves[(turn.member.change.name,)]
        if all_of in saves and self.only_together(able, saves[all_of]):
            turns = [turn for turn in turns if turn.member not in able]  # these go on as they are
        self._best_of(turns)
        return [each for each in wanted if each.standing == "left out"]

    def _judged(self, rows: Sequence[Mapping[Arm, float]]) -> dict[Arm, Interval]:
        """What each arm saves, by its turns."""
        arms = [arm for arm in rows[0] if all(arm in row for row in rows)]
        by_arm = {arm: sorted(row[arm] for row in rows) for arm in arms}
        middle = {arm: median(values) for arm, values in by_arm.items()}
        most = {arm: values[-2] if len(rows) > _TURNS else _FAR * middle[arm] for arm, values in by_arm.items()}
        bounded = [{arm: min(row[arm], most[arm]) for arm in arms} for row in rows]
        near = [arm for arm in arms if middle[arm] < _FAR * middle[TYPED]]
        spread = pooled([[{arm: row[arm] for arm in near} for row in bounded]])
        return {arm: saving(bounded, TYPED, arm, spread, 0.05) for arm in arms if arm}

    def _hidden(self, saves: Interval) -> bool:
        """Whether noise may hide that much is saved."""
        worth = saves.value >= self.worth * self.typed and not beyond_noise(saves)
        return worth and saves.high is not None and saves.high >= LARGE * self.typed

    def only_together(self, members: Sequence[Candidate], more: Interval) -> bool:
        """Whether all of these at once are shown to save ``more`` than twice what each saves alone.

        Where two calls wait for the same, either alone saves nothing.
        """
        alone = sum(max(0.0, gained(each)) for each in members)
        return proven(more) and more.value >= 2 * alone + JOINED * self.worth * self.step

    def turned(
        self, rungs: Mapping[Arm, Mapping[str, Any]], rounds: int, stage: SearchStage, before: int = 0
    ) -> tuple[list[dict[Arm, float]], bool]:
        """One launch in which the script as typed and these arms take turns: its rounds, and whether it failed.

        ``before``: rounds of an earlier one, which the record counts on from.
        """
        assert self.turns is not None
        rows, found = self.turns([{}, *rungs.values()], rounds)
        failure = found.failure.sentence if found.failure is not None else ""
        changes = tuple(dict.fromkeys(name for arm in rungs for name in arm))
        self.launches.append(
            Launched(
                stage="turns", round=0, changes=changes, step_seconds=None, steps=found.steps,
                elapsed_seconds=found.elapsed_seconds, failure=failure,
            )
        )  # fmt: skip
        arms = [TYPED, *rungs]
        by_arm = [{arms[index]: seconds for index, seconds in row.items()} for row in rows]
        for number, row in enumerate(by_arm, before):
            self.launches += [
                Launched(stage=stage, round=number, changes=arm, step_seconds=seconds) for arm, seconds in row.items()
            ]
        return by_arm, found.failure is not None

    def rounds_in_turns(self, rungs: Iterable[Mapping[str, Any]], launches: int) -> int:
        """Rounds of one launch in which these take turns, for which there is time after so many others."""
        spare = self.left() - self.starting - launches * self.each()
        each_takes = self.turns_take(rungs, 1) - self.starting
        return max(0, min(_MOST_TURNS, int(spare / each_takes)))

    def turns_take(self, rungs: Iterable[Mapping[str, Any]], rounds: int) -> float:
        """Seconds of a launch in which the script as typed and these take turns, at most."""
        return self.starting + _LATE * rounds * sum(self._block_takes(rung) for rung in ({}, *rungs))

    def _set_aside(self) -> float:
        """Seconds of a proof, if as many are left as are needed to find what it is to prove."""
        launched, block = LOOKS[0] * ARMS * self.each(), self._block_takes({"loader": {}})
        if self.left() >= launched + self.each():
            return launched
        in_turns = self.each() + self.turns_take([{"loader": {}}], LOOKS[0])
        found_by = self.starting + _TURNS * (ARMS + 1) * block
        return in_turns if self.turns is not None and self.left() >= in_turns + found_by else 0.0

    def _block_takes(self, rung: Mapping[str, Any]) -> float:
        workers = int(rung.get("loader", {}).get("num_workers", 0))
        full = _BLOCK_SECONDS if "loader" in rung else _BLOCK_SECONDS / 2
        return max(full, self.typed * 2 * max(_TURN_STEPS, workers))

    def _best_of(self, turns: Sequence[_Turn]) -> None:
        """Of each knob only its best value goes on, if it is worth that."""
        best: dict[str, Candidate] = {}
        measured = [turn.member for turn in turns]
        for each in sorted(measured, key=gained, reverse=True):
            first = best.setdefault(each.change.knob, each)
            alike = gained(first) - gained(each) < NO_DIFFERENCE * self.typed
            if alike and _workers(each) < _workers(first):  # what does as well with less
                best[each.change.knob] = each
        for turn in turns:
            each, bar = turn.member, (1 if "loader" in turn.rung else JOINED) * self.worth * self.typed
            saved, first = gained(each), best[each.change.knob]
            if saved < bar or not beyond_noise(each.saves):
                self.stand([each], "slower" if saved < -NO_DIFFERENCE * self.typed else "no difference", "")
            elif each is not first:
                self.stand([each], "no difference", f"{first.change.text} was chosen of these")

    def _that_take_turns(self, turns: list[_Turn]) -> tuple[list[_Turn], int]:
        """Those of which there is time for turns, with a final comparison after them, and how many rounds."""
        loaders = [turn for turn in turns if "loader" in turn.rung]
        forecasts = [turn.member.change.forecast for turn in loaders]
        most = max((math.inf if each is None else each for each in forecasts), default=math.inf)
        if most < _SMALL * self.typed:  # then the next value of the same saves hardly more
            at_most = format_seconds(max(0.0, most))
            out = [turn.member for turn in loaders[_FEW:]]
            self.stand(out, "left out", f"saves {at_most} of the step at most, by forecast, as others do")
            turns = [turn for turn in turns if turn.member not in out]
        if len(turns) < 2:
            return [], 0
        costs = [self._block_takes(turn.rung) for turn in turns]
        seconds = [_TURNS * (costs[0] + spent) for spent in accumulate(costs)]
        starting = self.starting
        room = min(self.left() - starting - self.reserve, max(seconds[1], _TURNS_SHARE * self.left() - starting))
        fit = sum(spent <= room for spent in seconds)
        if fit < 2:
            return [], 0
        self.stand([turn.member for turn in turns[fit:] if "loader" in turn.rung], "left out", NO_TIME)
        return turns[:fit], min(_MOST_TURNS, max(_TURNS, int(2 * starting * _TURNS / seconds[fit - 1])))

    def saving(self, stage: str, slow: Arm, fast: Arm, rate: float, number: int | None = None) -> Interval:
        doubts = [fmean(self._doubts.get(arm, [0.0])) for arm in (slow, fast)]  # of turns alone none is known
        doubt = abs(doubts[0] - doubts[1])
        spread = pooled(list(self.stages.values()))
        return saving(self.stages[stage][:number], slow, fast, spread, rate, doubt)


def _effect(members: Sequence[Candidate]) -> Effect:
    """What all of them together do to training."""
    return max((each.change.effect for each in members), key=_EFFECTS.index)


@dataclass(frozen=True)
class _Turn:
    """What is on in some blocks of a launch."""

    member: Candidate
    rung: Mapping[str, Any]


def _turns_of(wanted: Sequence[Candidate]) -> list[_Turn]:
    """What can take turns, settings of the loader first."""
    found = [_Turn(each, rung) for each in wanted if (rung := _rung(each.change)) is not None]
    return sorted(found, key=lambda turn: "loader" not in turn.rung)


def rung_of(changes: Sequence[ScriptChange]) -> Mapping[str, Any] | None:
    """The settings of all of them that can be switched between blocks; None if one of any cannot."""
    found: dict[str, Any] = {}
    for change in changes:
        rung = _rung(change)
        if rung is None:
            return None
        for name, value in rung.items():
            found[name] = {**found.get(name, {}), **value} if isinstance(value, Mapping) else value
    return found


def _rung(change: ScriptChange) -> Mapping[str, Any] | None:
    """The settings of a change that can be switched between blocks; None if one of them cannot."""
    settings = dict(change.settings)
    outside = change.variables and "threads" not in settings
    loader = settings.get("loader")
    once = outside or change.cores or change.samples != 1
    if once or not settings or not settings.keys() <= {*_SWITCHED, "loader"}:
        return None
    if isinstance(loader, Mapping):
        settings["loader"] = {name: value for name, value in loader.items() if name != "site"}
        return settings if settings["loader"].keys() <= _LOADERS else None
    return settings


def _workers(each: Candidate) -> int:
    return each.change.leaves_workers or 0


def beyond_noise(saves: Interval | None) -> bool:
    """Whether it is more than chance does in two of three cases."""
    return saves is None or saves.half_width is None or saves.value > saves.half_width / 2


def gained(each: Candidate) -> float:
    return each.saves.value if each.saves is not None else 0.0
