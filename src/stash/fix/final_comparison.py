"""The final comparison, which alone decides what is kept: of fresh rounds, as what was seen before chose its arms.

Every arm is launched in every round. Where launches take so long that there is no time for that, and all of it can be
switched while the script runs, arms take *turns* in one more launch: what differs from launch to launch is in no
interval then, so that only large savings are taken from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from stash.core.fix_records import ChangeStanding, Proof
from stash.core.intervals import Interval
from stash.fix.decision import LOOKS, level, promising, proven
from stash.fix.tries import LARGE, NO_PROOF, TYPED, Arm, OutOfTimeError, gained
from stash.fix.turns import TakingTurns, rung_of

PROVEN_STEPS = 200
"""Of which losses are compared at the end."""
_FUTILE = 2
"""Rounds after which a final comparison ends if they show nothing that is worth a change."""
_FINALS = 2
"""Final comparisons at most: one again with less, where more than one change was not shown, or with the same where
that contradicts what was seen before."""
_SURE = 0.2
"""Of the step: what seemed so much before is not lost to noise that lasts for two rounds."""
_WORTH_TIME = 0.05
"""Of the step: while so much seems to be saved, rounds go on until time is up, however noisy."""


@dataclass
class Final:
    """What the last comparison says."""

    kept: tuple[str, ...] = ()
    together: Interval | None = None
    typed_seconds: float | None = None
    after_seconds: float | None = None
    rounds: int = 0
    in_turns: bool = False
    """Of one launch."""


@dataclass
class FinalComparison(TakingTurns):
    """Compares what was chosen with the script as typed."""

    final: Final = field(default_factory=Final)
    proven_long: Proof | None = None
    """What two longer launches show of all that is kept."""
    _statements: int = 1
    """That the comparison under way may make, and another one after it: they share the error rate."""

    def prove(self, chosen: tuple[str, ...]) -> None:
        """The final comparisons."""
        goes_on = False
        for number in range(_FINALS):
            if not chosen:
                return
            if not goes_on:
                self.stages.pop("final", None)
                self._statements = _FINALS * (1 if len(chosen) == 1 else 2 * len(chosen) + 1)
            alone = {each.change.name: gained(each) for each in self.of(chosen) if proven(each.saves)}
            unproven = self._compare(chosen, goes_on)
            if not unproven:
                return
            if any(self._alternative(chosen, each) for each in self._shown_beside(chosen, unproven)):
                return
            stays = max(unproven, key=lambda name: alone.get(name, 0.0))  # others of these may do the same
            if 1 < len(unproven) < len(chosen) and alone.get(stays, 0.0) >= LARGE * self.typed:
                unproven = without(unproven, stays)
            left = tuple(name for name in chosen if name not in unproven)
            why = NO_PROOF if self.final.in_turns else f"not shown in {self.final.rounds} rounds"
            self.stand(
                [each for each in self.of(unproven) if each.standing not in ("failed", "other training")],
                "unproven",
                why,
            )
            in_time = self.left() >= len(LOOKS) * self.each() or (left and self.only_in_turns(left))
            if left == chosen or not in_time:
                left = ()
            if not left or number + 1 == _FINALS:
                self.stand(
                    [each for each in self.of(chosen) if each.standing == "left out"],
                    "unproven",
                    "not shown in time",
                )
                self.final.kept, self.final.together = (), None
            if not left and number + 1 < _FINALS and not self.hurry(0):
                left = self._runner_up(chosen) or self._once_more(chosen, alone)
            goes_on = left != chosen and len(left) == 1 and self._looked_at(left)
            chosen = left

    def _looked_at(self, arm: Arm) -> bool:
        """Whether all rounds of the comparison that is over have this arm, so that more of them go on with it.

        What it saves was one of the statements that were counted before the first of them.
        """
        rounds = self.stages.get("final", [])
        return self.final.rounds in LOOKS and not self.final.in_turns and all(arm in row for row in rounds)

    def _once_more(self, chosen: Arm, before: Mapping[str, float]) -> Arm:
        """What was not shown though sure to save much ``before``: noise that lasts hides it for some rounds."""
        best = max(before, key=lambda name: before[name], default="")
        unshown = [each for each in self.of((best,)) if each.standing == "unproven"]
        goes_on = len(chosen) > 1 and self._looked_at((best,))
        least = LARGE if goes_on else _SURE
        if not unshown or before[best] < least * self.typed or self.final.in_turns:
            return ()
        self.stand(unshown, "left out", "")
        self.say(f"trying {self.in_words([best])} once more, as it saved much before")
        return (best,)

    def _runner_up(self, failed: Arm) -> Arm:
        """Of the knobs that were not shown, the other value that looked best before, if that was sure by then."""
        knobs = {each.change.knob for each in self.of(failed)}
        others = [each for each in self.candidates if each.change.knob in knobs and each.standing == "no difference"]
        sure = [each for each in others if proven(each.saves) and gained(each) >= self.worth * self.step]
        best = max(sure, key=gained, default=None)
        if best is None:
            return ()
        self.stand([best], "left out", "")
        return (best.change.name,)

    def train_on(self) -> None:
        """Train as typed and with all that is kept for ``PROVEN_STEPS``, if there is time, and compare the losses.

        What turns out to train something else then is kept no more.
        """
        kept = self.of(self.final.kept)
        long = 2 * (self.each() + PROVEN_STEPS * (self.final.typed_seconds or 0.0))
        if not kept or self.left() < long:
            return
        self.say(f"training {PROVEN_STEPS} steps as typed, and with all that is kept")
        typed, changed = self.run([], PROVEN_STEPS), self.run([each.change for each in kept], PROVEN_STEPS)
        if typed.failure is not None or changed.failure is not None:
            return
        self.proven_long = self.compared(typed, changed, kept)
        if not self.proven_long.holds:
            self.stand(kept, "other training", self.proven_long.text)
            self.final.kept, self.final.together = (), None

    def arms(self, chosen: Arm) -> list[Arm]:
        if len(chosen) == 1:
            return [TYPED, chosen]
        return [TYPED, chosen, *(without(chosen, each) for each in chosen)]

    def _compare(self, chosen: Arm, goes_on: bool) -> Arm:
        """Fresh rounds until all is shown, or time is up; the value is what was not shown.

        Statements of all, of each one's part, and of all without each: of these the rounds before them may hold some.
        """
        arms, number = self.arms(chosen), self.final.rounds if goes_on else 0
        if not goes_on:
            if self.left() < LOOKS[0] * len(arms) * self.each():
                return self._compare_in_turns(chosen)
            self.final = Final()
        while number < LOOKS[-1]:
            try:
                for arm in arms if number % 2 == 0 else arms[::-1]:
                    if why := self.launch("final", number, arm):
                        self.stand(self.of(chosen), self.fallen(arm), why)
                        return chosen
            except OutOfTimeError:
                if number < LOOKS[0]:
                    raise
                break
            number += 1
            if number == _FUTILE and self._hopeless(chosen):
                return chosen
            if number not in LOOKS:
                continue
            unproven = self._look(chosen, number)
            if not unproven:
                return ()
            following = next((each for each in LOOKS if each > number), number)
            in_time = self.left() >= (following - number) * len(arms) * self.each()
            if not in_time or not self._may_be_shown(chosen, unproven, number):
                return unproven
        return self._look(chosen, max(each for each in LOOKS if each <= number))

    def _compare_in_turns(self, chosen: Arm) -> Arm:
        """The same in one launch, and one before that shows what is trained, unless that is known."""
        looks = self._looks_in_turns(chosen)
        if not looks:
            raise OutOfTimeError
        if frozenset(chosen) not in self.proofs and (why := self.launch("combining", 0, chosen)):
            self.stand(self.of(chosen), self.fallen(chosen), why)
            return chosen
        rows, _ = self.turned(self.rungs(chosen), looks[-1], "final")
        if len(rows) < looks[0]:
            raise OutOfTimeError
        self.stages["final"], unproven = rows, chosen
        for number in [each for each in looks if each <= len(rows)]:
            unproven = self._look(chosen, number, in_turns=True)
            if not unproven:
                break
        return unproven

    def rungs(self, chosen: Arm) -> dict[Arm, Mapping[str, Any]]:
        """What is set in a block of each arm; empty where one cannot be switched while the script runs."""
        if self.turns is None:
            return {}
        rungs = {arm: rung_of([each.change for each in self.of(arm)]) for arm in self.arms(chosen) if arm}
        known = {arm: rung for arm, rung in rungs.items() if rung is not None}
        return known if len(known) == len(rungs) else {}

    def _looks_in_turns(self, chosen: Arm) -> list[int]:
        """Rounds after which turns of one launch may be judged, as far as there is time for them."""
        rungs = self.rungs(chosen)
        rounds = self.rounds_in_turns(rungs.values(), int(frozenset(chosen) not in self.proofs)) if rungs else 0
        return [each for each in LOOKS if each <= rounds]

    def only_in_turns(self, chosen: Arm) -> bool:
        """Whether there is time to prove these by turns of one launch, and by launches of their own there is not."""
        launched = LOOKS[0] * len(self.arms(chosen)) * self.each()
        return self.left() < launched and bool(self._looks_in_turns(chosen))

    def _may_be_shown(self, chosen: Arm, unproven: Arm, number: int) -> bool:
        """Whether more rounds may show what so many did not: all of it to be worth it, or a part to save anything."""
        least = self.worth * self.typed
        if not proven(self.final.together, least):
            seems = self.final.together is not None and self.final.together.value >= _WORTH_TIME * self.typed
            return seems or promising(self.final.together, number, least)
        return any(promising(each.saves, number, 0.0) for each in self.of(unproven))

    def _hopeless(self, chosen: Arm) -> bool:
        """Whether fresh rounds show nothing that is worth it; to stop for that never keeps anything falsely."""
        alone = [arm for arm in self.arms(chosen) if len(arm) == 1]
        saved = {arm: self.saving("final", TYPED, arm, 0.05) for arm in (chosen, *alone)}
        if any(each.value > self.worth * self.typed for each in saved.values()):
            return False
        self.final.rounds = _FUTILE
        if len(chosen) == 1:
            self.of(chosen)[0].saves = saved[chosen]
        return True

    def _look(self, chosen: Arm, number: int, in_turns: bool = False) -> Arm:
        """Judge after so many rounds; the value is what is not shown."""
        rate = level(self._statements, number, self.error_rate)
        rounds = self.stages["final"][:number]
        together = self.saving("final", TYPED, chosen, rate, number)
        self.final = Final(
            kept=chosen, together=together, rounds=number, typed_seconds=fmean(row[TYPED] for row in rounds),
            after_seconds=fmean(row[chosen] for row in rounds), in_turns=in_turns,
        )  # fmt: skip
        self.typed = self.final.typed_seconds or self.typed
        unproven = []
        for each in self.of(chosen):
            rest = without(chosen, each.change.name)
            each.saves = self.saving("final", rest, chosen, rate, number)
            each.proof = self.proofs.get(frozenset(chosen)) if len(chosen) == 1 else each.proof
            if not proven(each.saves):
                unproven.append(each.change.name)
        if not proven(together, self._least()):
            unproven = list(chosen)
        if not unproven:
            self.stand(self.of(chosen), "kept", "")
        return tuple(unproven)

    def _least(self) -> float:
        """Seconds that have to be saved."""
        return (max(self.worth, LARGE) if self.final.in_turns else self.worth) * self.typed

    def _shown_beside(self, chosen: Arm, unproven: Arm) -> list[Arm]:
        """Arms of the same rounds without a change that was not shown, and with no other such, the fastest first.

        Of one change alone it does not matter what the others did to its part.
        """
        rounds = self.stages.get("final", [])[: self.final.rounds] if self.final.rounds in LOOKS else []
        arms = [without(chosen, each) for each in unproven]
        fit = [arm for arm in arms if len(arm) == 1 or (arm and not set(arm) & set(unproven))]
        whole = [arm for arm in fit if rounds and all(arm in row for row in rounds)]
        return sorted(whole, key=lambda arm: fmean(row[arm] for row in rounds))

    def _alternative(self, chosen: Arm, left: Arm) -> bool:
        """Keep what is ``left`` of those, if that was shown to be faster."""
        number = self.final.rounds
        rate = level(self._statements, number, self.error_rate)
        together = self.saving("final", TYPED, left, rate, number)
        if not proven(together, self._least()) or frozenset(left) not in self.proofs:
            return False
        after = fmean(row[left] for row in self.stages["final"][:number])
        self.final = replace(self.final, kept=left, together=together, after_seconds=after)
        self.stand(self.of(left), "kept", "")
        if len(left) == 1:
            self.of(left)[0].saves = together
        dropped = [each for each in self.of(chosen) if each.change.name not in left]
        self.stand(dropped, "unproven", f"not shown beside the others in {number} rounds")
        return True

    def fallen(self, arm: Arm) -> ChangeStanding:
        """Where changes stand whose launch together says that they are out."""
        shown = self.proofs.get(frozenset(arm))
        return "failed" if shown is None or shown.holds else "other training"


def without(arm: Arm, out: str) -> Arm:
    """The arm without one of its changes."""
    return tuple(name for name in arm if name != out)
