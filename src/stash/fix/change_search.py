"""Which changes to try, and which to keep: ordered by forecast, decided by launches side by side.

What can be switched while the script runs, like settings of its loader, takes *turns* in one launch, which leaves the
best of them. *Screening* launches what else seldom costs anything all at once, and only if that is faster each change
alone, twice, beside the script as typed. The best of each knob that look worth it are put together, and *combining*
launches them all, and all but each one, since two that are good alone may want the same cores, and two that wait for
the same save nothing but together. What is left goes into the final comparison. How a launch is made is not known
here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from stash.core.formatting import listed
from stash.core.units import format_seconds
from stash.fix.decision import LOOKS, SCREENED, proven
from stash.fix.final_comparison import Final, FinalComparison, without
from stash.fix.tries import (
    JOINED,
    LARGE,
    NO_PROOF,
    NO_TIME,
    TYPED,
    Arm,
    Candidate,
    OutOfTimeError,
    beyond_noise,
    gained,
)

_MOST_OF_IT = 0.25
"""Of what a change saves alone: where it takes off less beside another that saves as much, they do the same."""
_UNKNOWN = 0.05
"""Of the step: what a change without a forecast is ranked as."""


@dataclass
class Search(FinalComparison):
    """One search, of changes that need no consent but what is ``allowed``."""

    allowed: frozenset[str] = frozenset()
    interrupted: bool = False
    _joined: Arm = TYPED
    """What was faster all at once."""
    _inseparable: Arm = TYPED
    """What of it saves only together."""

    def search(self) -> Final:
        """Try, combine, prove; what was proven until an interrupt, or the end of the time, is kept."""
        try:
            self.prove(self._combined(self._screened()))
            self.train_on()
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
        large = [each for each in active if gained(each) > LARGE * self.typed and proven(each.saves)]
        largest = max(large, key=gained, default=None)
        if largest is not None and not self.hurry() and not self.launch("screening", 0, (largest.change.name,)):
            self.base = (largest.change.name,)
            active = self._that_act([each for each in active if each is not largest], [largest])
            self.step = self.stages["screening"][0][self.base]
        shown = [each for each in active if proven(each.saves)]
        active = self._screen(self._that_join([each for each in active if each not in shown]))
        while not (active or shown or self.base) and (late := self._late()) and not self.hurry():
            self.stand(late, "left out", "")  # what was set aside for others is there for these
            active = self._screen(late)
        return [*self.of(self.base), *shown, *active]

    def _late(self) -> list[Candidate]:
        """Those that there seemed to be no time for."""
        return [each for each in self.candidates if each.why == NO_TIME and each.saves is None]

    def _screen(self, active: list[Candidate]) -> list[Candidate]:
        """As many of these as there is time for, each alone."""
        active = self._affordable(active)
        for number in range(SCREENED):
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
                self.base = TYPED
                return []
            for each in list(order):
                if number and self._asks(each):
                    continue  # it is shown, and kept by no one: once will do
                if not number and not self._may_go_beyond(each.change.beyond):
                    self.stand([each], "left out", f"{each.change.beyond} saves nothing")
                    active.remove(each)
                    continue
                if not number and self.hurry():
                    if gained(each) < self.worth * self.step:
                        self.stand([each], "left out", NO_TIME)
                        active.remove(each)  # what looked good in turns goes on to be proven
                elif self.launch("screening", number, arm := (*self.base, each.change.name)):
                    active.remove(each)
                else:
                    each.saves = self.saving("screening", self.base, arm, 0.05)
            self.step = fmean(row[self.base] for row in self.stages["screening"] if self.base in row)
            active = self._that_look_worth_it(active, number)
        active += self._only_together(active)
        for each in active:
            if self._asks(each):
                self._ask(each)
        return [each for each in active if each.standing != "asks"]

    def _that_look_worth_it(self, active: Sequence[Candidate], number: int) -> list[Candidate]:
        """Those that screening, so far, does not dismiss."""
        found = []
        for each in active:
            arm = (*self.base, each.change.name)
            if not any(arm in row for row in self.stages["screening"]):
                found.append(each)
                continue
            each.saves = self.saving("screening", self.base, arm, 0.05)
            worth = each.saves.value >= (1 if number else JOINED) * self.worth * self.step
            sure = beyond_noise(each.saves) or each.saves.value >= LARGE * self.step or self._asks(each)
            if worth and (number + 1 < SCREENED or sure):
                found.append(each)
                continue
            most = each.saves.high if each.saves.high is not None else each.saves.value + LARGE * self.step
            self.stand([each], "slower" if most < 0 else "no difference", "")
        return found

    def _that_act(self, others: list[Candidate], beside: Sequence[Candidate]) -> list[Candidate]:
        """Those that change anything where loaders have no workers, if one ``beside`` them leaves none."""
        if all(each.change.leaves_workers != 0 for each in beside):
            return others
        self.stand([each for each in others if each.change.needs_workers], "no difference", "no worker is left")
        return [each for each in others if not each.change.needs_workers]

    def _may_go_beyond(self, milder: str) -> bool:
        return all(gained(each) >= self.worth * self.step for each in self.of((milder,)))

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
        for number in range(SCREENED):
            if number and self.launch("screening", number, self.base):
                return active
            if self.launch("screening", number, arm):
                return active
            saves = self.saving("screening", self.base, arm, 0.05)
            if saves.value >= JOINED * self.worth * self.step and (not number or beyond_noise(saves)):
                self._joined = arm
                continue
            if saves.value < -LARGE * self.step and not number:  # one of them or noise does harm, which hides others
                if self.launch("screening", 1, arm):
                    return active
                if self.stages["screening"][1][arm] > (1 + LARGE) * self.step:
                    return active
            out = [each for each in active if each.change.knob in first]
            self.stand(out, "no difference", f"no faster with all of {', '.join(first)} at once")
            self._joined = TYPED
            return [each for each in active if each.standing == "left out"]
        return active

    def _only_together(self, active: Sequence[Candidate]) -> list[Candidate]:
        """Of those launched all at once the rest, if they save only together; combining takes out who has no part."""
        rest = [each for each in self.of(self._joined) if each.standing in ("no difference", "slower", "left out")]
        rest = [each for each in rest if each not in active and each.change.name not in self.base]
        if not rest:
            return []
        shown = [each for each in active if each.change.name in self._joined]
        if not self.only_together(shown, self.saving("screening", self.base, self._joined, 0.05)):
            return []
        self._inseparable = tuple(each.change.name for each in (*shown, *rest))
        self.say(f"{listed([each.change.new_value for each in rest])} may save something only together")
        self.stand(rest, "left out", "")
        return rest

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
        most = max(1, int(spare / SCREENED) - 1 if self.reserve else int(spare))
        self.stand(wanted[most:], "left out", NO_TIME)
        return wanted[:most]

    # Combining

    def _combined(self, worth: list[Candidate]) -> tuple[str, ...]:
        """The best of each knob, without those that the others are faster without."""
        best: list[Candidate] = []
        for each in sorted(worth, key=gained, reverse=True):
            if any(each.change.knobs & other.change.knobs for other in best):
                self.stand([each], "no difference", "another value of the same is faster")
            elif each.change.leaves_workers == 0 and (faster := [one for one in best if one.change.needs_workers]):
                self.stand([each], "no difference", f"{faster[0].change.name} saves more, with workers")
            else:
                best.append(each)
        chosen = self._that_act(best, best)
        if in_turns := self._combined_in_turns(chosen):
            return in_turns
        chosen = self._without_doubtful(chosen)
        if self.only_in_turns(arm := tuple(each.change.name for each in chosen)):
            return arm
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
            self.stand([chosen.pop()], self.fallen(arm), f"together with the others: {why}")
        if len(chosen) < 2:
            return tuple(each.change.name for each in chosen)
        for each in chosen:
            self.launch("combining", 0, without(arm, each.change.name))
        while less := [each for each in chosen if self._adds_little(each, arm)]:
            arm = self._without_least(chosen, less, arm)
        return arm

    def _combined_in_turns(self, chosen: list[Candidate]) -> Arm:
        """The same by turns, where launches take too long to combine these and prove them; empty if they cannot."""
        arm = tuple(each.change.name for each in chosen)
        if self.left() >= (LOOKS[0] + 1) * (len(chosen) + 2) * self.each():
            return ()
        while len(chosen) > 1:
            rungs = self.rungs(arm)
            if not rungs or self.left() < 2 * self.turns_take(rungs.values(), LOOKS[0]) + self.each():
                return ()
            self.say(f"trying all but one of {self.in_words(arm)} in turns, in one launch")
            rows, failed = self.turned(rungs, LOOKS[0], "combining")
            if failed or not rows:
                return ()
            self.stages["combining"] = rows
            less = [each for each in chosen if self._part(each, arm) < self.worth * self.step]
            if not less:
                return arm
            arm = self._without_least(chosen, less, arm)
        return arm

    def _without_least(self, chosen: list[Candidate], less: Sequence[Candidate], arm: Arm) -> Arm:
        """The arm without the one of those that adds least to it: one at a time, as two may do the same."""
        out = min(less, key=lambda each: self._part(each, arm))
        if self._part(out, arm) < -self.worth / 2 * self.step:
            self.stand([out], "slower", "beside the others it costs more than it saves")
        else:
            self.stand([out], "no difference", "too little beside the others")
        chosen.remove(out)
        return without(arm, out.change.name)

    def _part(self, each: Candidate, arm: Arm) -> float:
        """Seconds that it saves in an arm of combining; infinite if that was not launched with and without it."""
        rest = without(arm, each.change.name)
        both = [row[rest] - row[arm] for row in self.stages["combining"] if rest in row and arm in row]
        return fmean(both) if both else math.inf

    def _adds_little(self, each: Candidate, arm: Arm) -> bool:
        part, worth = self._part(each, arm), self.worth * self.step
        alike = [other for other in self.of(arm) if gained(other) >= gained(each) / 2 and other is not each]
        same = bool(alike) and gained(each) >= LARGE * self.step and part < _MOST_OF_IT * gained(each)
        return same or part < -worth / 2 or part + SCREENED * gained(each) < (1 + SCREENED) * worth

    def _without_doubtful(self, chosen: list[Candidate]) -> list[Candidate]:
        """Only those that screening showed, if there is no time to prove these again should the others not hold.

        What saves most, and much, counts as shown: a step as typed that varies widely leaves nothing else.
        """
        best = max(chosen, key=gained, default=None)
        sure = [each for each in chosen if proven(each.saves) or each.change.name in self._inseparable]
        if best is not None and best not in sure and gained(best) >= LARGE * self.step and beyond_noise(best.saves):
            sure.insert(0, best)
        arms = len(self.arms(tuple(each.change.name for each in chosen)))
        again = len(self.arms(tuple(each.change.name for each in sure)))
        enough = self.left() >= (arms + LOOKS[0] * (arms + again)) * self.each()
        if enough or not sure:
            return chosen
        doubtful = [each for each in chosen if each not in sure]
        self.stand(doubtful, "unproven", NO_PROOF)
        return sure
