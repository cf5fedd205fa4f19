"""Which changes to try, and which to keep: ordered by forecast, decided by launches side by side.

What can be switched while the script runs, like settings of its loader, takes *turns* in one launch, which leaves the
best of them. *Screening* launches what else seldom costs anything all at once, and only if that is faster each change
alone, twice, beside the script as typed. The best of each knob that look worth it are put together, and *combining*
launches them all, and all but each one, since two that are good alone may want the same cores. What is left goes into
the *final* comparison, of fresh rounds only: what was seen before chose it, and would flatter it. Only those decide
what is kept (``decision``). How a launch is made is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from stash.core.fix_records import ChangeStanding, Proof
from stash.core.intervals import Interval
from stash.core.units import format_seconds
from stash.fix.decision import LOOKS, level, promising, proven
from stash.fix.tries import (
    JOINED,
    NO_PROOF,
    NO_TIME,
    TYPED,
    Arm,
    Candidate,
    OutOfTimeError,
    Tries,
    beyond_noise,
    gained,
)

PROVEN_STEPS = 200
"""Of which losses are compared at the end."""
_SCREENED = 2
"""Rounds of screening."""
_LARGE = 0.1
"""Of the step: what saves more is there while everything else is tried, and goes on to be proven however noisy."""
_UNKNOWN = 0.05
"""Of the step: what a change without a forecast is ranked as."""
_FUTILE = 2
"""Rounds after which a final comparison ends if they show nothing that is worth a change."""
_FINALS = 2
"""Final comparisons at most: one again with less, where more than one change was not shown."""


@dataclass
class Final:
    """What the last comparison says."""

    kept: tuple[str, ...] = ()
    together: Interval | None = None
    typed_seconds: float | None = None
    after_seconds: float | None = None
    rounds: int = 0


@dataclass
class Search(Tries):
    """One search, of changes that need no consent but what is ``allowed``."""

    allowed: frozenset[str] = frozenset()
    interrupted: bool = False
    final: Final = field(default_factory=Final)
    proven_long: Proof | None = None
    """What two longer launches show of all that is kept."""

    def search(self) -> Final:
        """Try, combine, prove; what was proven until an interrupt, or the end of the time, is kept."""
        try:
            self._prove(self._combined(self._screened()))
            self._train_on()
        except KeyboardInterrupt:
            self.interrupted = True
            self._settle("interrupted before it was tried", "interrupted before it was shown")
        except OutOfTimeError:
            self._settle(NO_TIME, NO_PROOF)
        self.stand(self._open(), "left out", "not tried")
        return self.final

    def _open(self) -> list[Candidate]:
        """Of which nothing was decided yet."""
        return [each for each in self.candidates if each.standing == "left out" and not each.why]

    def _settle(self, untried: str, unproven: str) -> None:
        """In the middle: what the last look has shown stands, the rest does not."""
        if not all(each.standing == "kept" for each in self.of(self.final.kept)):
            self.final.kept, self.final.together = (), None
        for each in self._open():
            self.stand([each], *(("left out", untried) if each.saves is None else ("unproven", unproven)))

    # Screening

    def _screened(self) -> list[Candidate]:
        """Launch what may pay, twice; the value is what looks worth more.

        Where one change saves much in turns, everything else is tried beside it: what hides behind a step that waits
        shows only once it does not. What turns have shown is not launched to be seen once more.
        """
        active = self.in_turns(self._that_may_pay())
        for each in [each for each in active if self._asks(each) and each.saves is not None]:
            self._ask(each)  # it is shown, and kept by no one
            active.remove(each)
        large = [each for each in active if gained(each) > _LARGE * self.typed and proven(each.saves)]
        largest = max(large, key=gained, default=None)
        if largest is not None and not self.hurry() and not self.launch("screening", 0, (largest.change.name,)):
            self.base = (largest.change.name,)
            active = self._that_act([each for each in active if each is not largest], [largest])
            self.step = self.stages["screening"][0][self.base]
        shown = [each for each in active if proven(each.saves)]
        active = [each for each in active if each not in shown]
        active = self._affordable(self._that_join(active))
        for number in range(_SCREENED):
            if not active:
                break
            if number and self.hurry(1 + len(active)):
                for each in [each for each in active if gained(each) < self.worth * self.step]:
                    self.stand([each], "no difference", "")
                    active.remove(each)
                break  # what looked good once goes on to be proven
            order = active if number % 2 == 0 else active[::-1]
            if number and (why := self.launch("screening", number, self.base)):
                self.stand(active, "left out", f"what it was to be compared with failed at a later start: {why}")
                return shown
            for each in list(order):
                if number and self._asks(each):
                    continue  # it is shown, and kept by no one: once will do
                if not number and self.hurry():
                    if gained(each) < self.worth * self.step:
                        self.stand([each], "left out", NO_TIME)
                        active.remove(each)  # what looked good in turns goes on to be proven
                elif self.launch("screening", number, arm := (*self.base, each.change.name)):
                    active.remove(each)
                else:
                    each.saves = self.saving("screening", self.base, arm, 0.05)
            step = self.step = fmean(row[self.base] for row in self.stages["screening"] if self.base in row)
            for each in list(active):
                arm = (*self.base, each.change.name)
                if not any(arm in row for row in self.stages["screening"]):
                    continue
                each.saves = self.saving("screening", self.base, arm, 0.05)
                worth = each.saves.value >= (1 if number else JOINED) * self.worth * step
                sure = beyond_noise(each.saves) or each.saves.value >= _LARGE * step or self._asks(each)
                if not worth or (number + 1 == _SCREENED and not sure):
                    slower = each.saves.high is not None and each.saves.high < 0
                    self.stand([each], "slower" if slower else "no difference", "")
                    active.remove(each)
        for each in active:
            if self._asks(each):
                self._ask(each)
        return [*self.of(self.base), *shown, *(each for each in active if each.standing != "asks")]

    def _that_act(self, others: list[Candidate], beside: Sequence[Candidate]) -> list[Candidate]:
        """Those that change anything where loaders have no workers, if one ``beside`` them leaves none."""
        if all(each.change.leaves_workers != 0 for each in beside):
            return others
        self.stand([each for each in others if each.change.needs_workers], "no difference", "no worker is left")
        return [each for each in others if not each.change.needs_workers]

    def _asks(self, each: Candidate) -> bool:
        return bool(each.change.consent) and each.change.consent not in self.allowed

    def _ask(self, each: Candidate) -> None:
        self.stand([each], "asks", f"changes {each.change.effect}: --allow {each.change.consent}")

    def _that_join(self, active: list[Candidate]) -> list[Candidate]:
        """Launch the first value of each knob that seldom costs anything, all at once.

        If that is no faster, nor once more, none of these knobs is tried alone: so a job with nothing to fix is soon
        known for one. If it is, or fails, each is tried by itself.
        """
        first: dict[str, Candidate] = {}
        for each in active:
            if each.change.joins:
                first.setdefault(each.change.knob, each)
        arm = (*self.base, *(each.change.name for each in first.values()))
        if len(first) < 2:
            return active
        if self.hurry() and any(gained(each) > 0 for each in self.candidates):
            self.stand([each for each in active if each.change.joins], "left out", NO_TIME)
            return [each for each in active if not each.change.joins]
        for number in range(_SCREENED):
            if number and self.launch("screening", number, self.base):
                return active
            if self.launch("screening", number, arm):
                return active
            saves = self.saving("screening", self.base, arm, 0.05)
            if saves.value >= JOINED * self.worth * self.step and (not number or beyond_noise(saves)):
                continue
            out = [each for each in active if each.change.knob in first]
            self.stand(out, "no difference", f"no faster with all of {', '.join(first)} at once")
            return [each for each in active if each.standing == "left out"]
        return active

    def _that_may_pay(self) -> list[Candidate]:
        found = []
        for each in self.candidates:
            most = each.change.forecast
            if most is not None and most < self.worth * self.typed:
                at_most = format_seconds(max(0.0, most))
                self.stand([each], "left out", f"saves {at_most} of the step at most, by forecast")
            else:
                found.append(each)
        places: dict[str, int] = {}
        order: dict[str, tuple[int, float]] = {}
        for each in found:
            place = places[each.change.knob] = places.get(each.change.knob, -1) + 1
            order[each.change.name] = (place, -(each.change.forecast or _UNKNOWN * self.typed))
        return sorted(found, key=lambda each: order[each.change.name])

    def _affordable(self, wanted: list[Candidate]) -> list[Candidate]:
        """As many as can be launched in time, with the final comparison after them; first what turns showed."""
        wanted = sorted(wanted, key=gained, reverse=True)
        spare = (self.left() - self.reserve) / self.each()
        most = max(1, int(spare / _SCREENED) - 1 if self.reserve else int(spare))
        self.stand(wanted[most:], "left out", NO_TIME)
        return wanted[:most]

    # Combining

    def _combined(self, worth: list[Candidate]) -> tuple[str, ...]:
        """The best of each knob, without those that the others are faster without."""
        best: dict[str, Candidate] = {}
        for each in worth:
            other = best.get(each.change.knob)
            better = other is None or gained(each) > gained(other)
            if other is not None:
                self.stand([other if better else each], "no difference", "another value of the same is faster")
            if better:
                best[each.change.knob] = each
        chosen = self._that_act(sorted(best.values(), key=gained, reverse=True), tuple(best.values()))
        chosen = self._without_doubtful(chosen)
        most = max(1, int(self.left() / self.each() / LOOKS[0]) - 2)
        self.stand(chosen[most:], "unproven", NO_PROOF)
        chosen = chosen[:most]
        if self.left() < (LOOKS[0] + 1) * (len(chosen) + 2) * self.each():
            return tuple(each.change.name for each in chosen)  # the final comparison has the same arms
        while len(chosen) > 1:
            arm = tuple(each.change.name for each in chosen)
            why = self.launch("combining", 0, TYPED) or self.launch("combining", 0, arm)
            if not why:
                break
            self.stand([chosen.pop()], self._fallen(arm), f"together with the others: {why}")
        if len(chosen) < 2:
            return tuple(each.change.name for each in chosen)
        for each in chosen:
            self.launch("combining", 0, _without(arm, each.change.name))
        while less := [each for each in chosen if self._adds_little(each, arm)]:
            out = min(less, key=lambda each: self._part(each, arm))  # one at a time: two may do the same
            if self._part(out, arm) < -self.worth / 2 * self.step:
                self.stand([out], "slower", "beside the others it costs more than it saves")
            else:
                self.stand([out], "no difference", "too little beside the others")
            chosen.remove(out)
            arm = _without(arm, out.change.name)
        return arm

    def _part(self, each: Candidate, arm: Arm) -> float:
        """Seconds that it saves in an arm of combining; infinite if that was not launched with and without it."""
        row, rest = self.stages["combining"][0], _without(arm, each.change.name)
        return row[rest] - row[arm] if rest in row and arm in row else math.inf

    def _adds_little(self, each: Candidate, arm: Arm) -> bool:
        part, worth = self._part(each, arm), self.worth * self.step
        return part < -worth / 2 or part + _SCREENED * gained(each) < (1 + _SCREENED) * worth

    def _fallen(self, arm: Arm) -> ChangeStanding:
        """Where changes stand whose launch together says that they are out."""
        return "failed" if arm not in self.last_proof or self.last_proof[arm].holds else "other training"

    def _without_doubtful(self, chosen: list[Candidate]) -> list[Candidate]:
        """Only those that screening showed, if there is no time to prove these again should the others not hold.

        What saves much, beyond noise, counts as shown: a step as typed that varies widely leaves nothing else.
        """
        large = _LARGE * self.step
        sure = [each for each in chosen if proven(each.saves) or (gained(each) >= large and beyond_noise(each.saves))]
        arms = len(self._arms(tuple(each.change.name for each in chosen)))
        again = len(self._arms(tuple(each.change.name for each in sure)))
        enough = self.left() >= (arms + LOOKS[0] * (arms + again)) * self.each()
        if enough or not sure:
            return chosen
        doubtful = [each for each in chosen if each not in sure]
        self.stand(doubtful, "unproven", NO_PROOF)
        return sure

    # Proving

    def _prove(self, chosen: tuple[str, ...]) -> None:
        """The final comparisons."""
        for number in range(_FINALS):
            if not chosen:
                return
            self.stages.pop("final", None)
            unproven = self._compare(chosen)
            if not unproven:
                return
            left = tuple(name for name in chosen if name not in unproven)
            if any(self._alternative(chosen, each) for each in self._shown_beside(chosen, unproven)):
                return
            for each in self.of(unproven):
                if each.standing not in ("failed", "other training"):
                    self.stand([each], "unproven", f"not shown in {self.final.rounds} rounds")
            if left == chosen or self.left() < len(LOOKS) * self.each():
                left = ()
            if not left or number + 1 == _FINALS:
                self.stand(
                    [each for each in self.of(chosen) if each.standing == "left out"],
                    "unproven",
                    "not shown in time",
                )
                self.final.kept, self.final.together = (), None
            if not left and number + 1 < _FINALS and not self.hurry(0):
                left = self._runner_up(chosen)
            chosen = left

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

    def _train_on(self) -> None:
        """Train as typed and with all that is kept for ``PROVEN_STEPS``, if there is time, and compare the losses.

        What turns out to train something else then is kept no more.
        """
        kept = self.of(self.final.kept)
        long = 2 * (self.each() + PROVEN_STEPS * (self.final.typed_seconds or 0.0))
        if not kept or self.left() < long:
            return
        self.say(f"{PROVEN_STEPS} steps as typed, and with all that is kept")
        typed, changed = self.run([], PROVEN_STEPS), self.run([each.change for each in kept], PROVEN_STEPS)
        if typed.failure is not None or changed.failure is not None:
            return
        self.proven_long = self.compared(typed, changed, kept)
        if not self.proven_long.holds:
            self.stand(kept, "other training", self.proven_long.text)
            self.final.kept, self.final.together = (), None

    def _arms(self, chosen: Arm) -> list[Arm]:
        if len(chosen) == 1:
            return [TYPED, chosen]
        return [TYPED, chosen, *(_without(chosen, each) for each in chosen)]

    def _statements(self, chosen: Arm) -> int:
        """Statements that a final comparison may make: of all, of each one's part, of all without each."""
        return _FINALS * (1 if len(chosen) == 1 else 2 * len(chosen) + 1)

    def _compare(self, chosen: Arm) -> tuple[str, ...]:
        """Fresh rounds until all is shown, or time is up; the value is what was not shown."""
        arms, number = self._arms(chosen), 0
        if self.left() < LOOKS[0] * len(arms) * self.each():
            raise OutOfTimeError
        self.final = Final()
        while number < LOOKS[-1]:
            try:
                for arm in arms if number % 2 == 0 else arms[::-1]:
                    if why := self.launch("final", number, arm):
                        self.stand(self.of(chosen), self._fallen(arm), why)
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

    def _may_be_shown(self, chosen: Arm, unproven: Arm, number: int) -> bool:
        """Whether more rounds may show what so many did not: all of it to be worth it, or a part to save anything."""
        least = self.worth * self.typed
        if not proven(self.final.together, least):
            return promising(self.final.together, number, least)
        return any(promising(each.saves, number, 0.0) for each in self.of(unproven))

    def _hopeless(self, chosen: Arm) -> bool:
        """Whether fresh rounds show nothing that is worth it; to stop for that never keeps anything falsely."""
        alone = [arm for arm in self._arms(chosen) if len(arm) == 1]
        saved = {arm: self.saving("final", TYPED, arm, 0.05) for arm in (chosen, *alone)}
        if any(each.value > self.worth * self.typed for each in saved.values()):
            return False
        self.final.rounds = _FUTILE
        if len(chosen) == 1:
            self.of(chosen)[0].saves = saved[chosen]
        return True

    def _look(self, chosen: Arm, number: int) -> tuple[str, ...]:
        """Judge after so many rounds; the value is what is not shown."""
        rate = level(self._statements(chosen), number, self.error_rate)
        rounds = self.stages["final"][:number]
        together = self.saving("final", TYPED, chosen, rate, number)
        self.final = Final(
            kept=chosen, together=together, rounds=number, typed_seconds=fmean(row[TYPED] for row in rounds),
            after_seconds=fmean(row[chosen] for row in rounds),
        )  # fmt: skip
        self.typed = self.final.typed_seconds or self.typed
        unproven = []
        for each in self.of(chosen):
            rest = _without(chosen, each.change.name)
            each.saves = self.saving("final", rest, chosen, rate, number)
            each.proof = self.last_proof.get(chosen) if len(chosen) == 1 else each.proof
            if not proven(each.saves):
                unproven.append(each.change.name)
        if not proven(together, self.worth * self.typed):
            unproven = list(chosen)
        if not unproven:
            self.stand(self.of(chosen), "kept", "")
        return tuple(unproven)

    def _shown_beside(self, chosen: Arm, unproven: Arm) -> list[Arm]:
        """Arms of the same rounds without a change that was not shown, and with no other such, the fastest first.

        Of one change alone it does not matter what the others did to its part.
        """
        rounds = self.stages.get("final", [])[: self.final.rounds] if self.final.rounds in LOOKS else []
        arms = [_without(chosen, each) for each in unproven]
        fit = [arm for arm in arms if len(arm) == 1 or (arm and not set(arm) & set(unproven))]
        whole = [arm for arm in fit if rounds and all(arm in row for row in rounds)]
        return sorted(whole, key=lambda arm: fmean(row[arm] for row in rounds))

    def _alternative(self, chosen: Arm, left: Arm) -> bool:
        """Keep what is ``left`` of those, if that was shown to be faster."""
        number = self.final.rounds
        rate = level(self._statements(chosen), number, self.error_rate)
        together = self.saving("final", TYPED, left, rate, number)
        if not proven(together, self.worth * self.typed):
            return False
        rounds = self.stages["final"][:number]
        self.final = Final(left, together, self.final.typed_seconds, fmean(row[left] for row in rounds), number)
        self.stand(self.of(left), "kept", "")
        if len(left) == 1:
            self.of(left)[0].saves = together
        dropped = [each for each in self.of(chosen) if each.change.name not in left]
        self.stand(dropped, "unproven", f"not shown beside the others in {number} rounds")
        return True


def _without(arm: Arm, out: str) -> Arm:
    return tuple(name for name in arm if name != out)
