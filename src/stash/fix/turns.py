"""One launch in which changes take turns: what can be switched while the script runs is settled without launches.

Such a launch trains on what no other does, so it is no evidence of what is trained; and what differs from launch to
launch is in none of its intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Any, Protocol

from stash.core.fix_records import Launched, SearchStage
from stash.core.formatting import listed
from stash.core.intervals import Interval
from stash.core.units import format_seconds
from stash.fix.decision import ARMS, LOOKS, pooled, proven, saving
from stash.fix.script_changes import ScriptChange
from stash.fix.tries import (
    JOINED,
    LARGE,
    NO_DIFFERENCE,
    NO_TIME,
    TYPED,
    Arm,
    Candidate,
    Tries,
    beyond_noise,
    gained,
)
from stash.measure.launcher.trials import TrialRun

_TURNS, _MOST_TURNS = 3, 6
"""Rounds of a launch in which loaders take turns; more than the least only within twice what its start takes."""
_TURNS_SHARE, _BLOCK_SECONDS, _TURN_STEPS = 0.3, 1.5, 8
"""Share of the time that is left for it; seconds that a block takes, half where no queue is filled, and its steps."""
_AGAIN_SHARE = 0.2
"""Likewise, for turns once more of what noise may hide."""
_LATE = 1.3
"""Times what blocks are thought to take, where a launch that is ended before its end shows nothing."""
_SMALL, _FEW = 0.1, 4
"""Where all of them save less of the step than this by forecast, so many values take turns."""
_LOADERS = {"num_workers", "prefetch_factor", "pin_memory", "in_order"}
"""Settings of a loader that can."""
_SWITCHED = {
    "flags", "autocast", "zero_grad", "optimizer", "skip", "late", "non_blocking", "exchange_every", "threads",
}  # fmt: skip
"""Settings that can be switched between blocks as they are."""
_FAR = 1.5
"""Times the step as typed: what takes longer, like threads that fight for cores, says nothing of others' spread. Nor
does a block that something held up: of more than three an arm's longest counts as the next, else as that many."""


class Turns(Protocol):
    """Launches the script once, with settings in turns; by round, a step's seconds with each of them.

    The second value is the launch; no rounds where they cannot be switched.
    """

    def __call__(
        self, rungs: Sequence[Mapping[str, Any]], rounds: int
    ) -> tuple[list[dict[int, float]], TrialRun]: ...


@dataclass
class TakingTurns(Tries):
    """Tries of which some take turns."""

    turns: Turns | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reserve = self._set_aside()
        """Seconds set aside for a proof; where there is no time for one, all goes into what may be worth one."""

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
        values = listed([turn.member.change.new_value for turn in turns])
        self.say(f"trying {values} in turns, in one launch")
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
            self.say("trying once more what noise may hide")
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
