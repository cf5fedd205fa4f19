"""Which changes to try, and which to keep: ordered by forecast, decided by launches side by side.

*Screening* launches every single change twice, beside the script as typed. The best of each knob that look worth it
are put together, and *combining* launches them all, and all but each one, since two that are good alone may want the
same cores. What is left goes into the *final* comparison, of fresh rounds only: what was seen before chose it, and
would flatter it. Only the final rounds decide what is kept (``decision``). How a launch is made is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from stash.core.intervals import Interval
from stash.core.units import format_seconds
from stash.fix.changes import Change
from stash.fix.decision import ERROR_RATE, LOOKS, WORTH, Round, Spread, level, pooled, proven, saving
from stash.fix.proof import apart, proof
from stash.fix.records import Effect, Launched, Proof, Stage, Standing
from stash.measure.launcher.trials import TrialRun

_SCREENED = 2
"""Rounds of screening."""
_OF_TIME = 0.5
"""Share of the time that screening may take."""
_SLOWER = 0.02
"""Of the step: what is so much slower in the first round is not launched again."""
_FINALS = 2
"""Final comparisons at most: one again with less, where more than one change was not shown."""
_EFFECTS: tuple[Effect, ...] = ("none", "rounding", "order", "numerics")
Arm = tuple[str, ...]
"""Names of changes; none: as typed."""
TYPED: Arm = ()


class Runner(Protocol):
    """Launches the script with some changes."""

    def __call__(self, changes: Sequence[Change]) -> TrialRun: ...


@dataclass
class Candidate:
    """A change, and what is known of it by now."""

    change: Change
    standing: Standing = "left out"
    why: str = ""
    saves: Interval | None = None
    proof: Proof | None = None


@dataclass
class Final:
    """What the last comparison says."""

    kept: tuple[str, ...] = ()
    together: Interval | None = None
    typed_seconds: float | None = None
    after_seconds: float | None = None
    rounds: int = 0


@dataclass
class Search:
    """One search; ``run`` launches, ``clock`` tells seconds, of which it takes ``within`` at most."""

    candidates: list[Candidate]
    run: Runner
    clock: Callable[[], float]
    within: float
    first: TrialRun
    """A launch as typed, which led to the candidates."""
    allowed: frozenset[str] = frozenset()
    say: Callable[[str], None] = lambda text: None
    error_rate: float = ERROR_RATE
    launches: list[Launched] = field(default_factory=list)
    repeats: bool | None = None
    interrupted: bool = False
    final: Final = field(default_factory=Final)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._own: float | None = None
        self._stages: dict[str, list[dict[Arm, float]]] = {}
        self._doubts: dict[Arm, list[float]] = {}
        self._counts_epochs = self.first.epoch_seconds is not None
        self._last_proof: dict[Arm, Proof] = {}
        self._note("screening", 0, TYPED, self.first)
        self._typed = self._seconds(self.first)

    def search(self) -> Final:
        """Try, combine, prove; what was proven until an interrupt is kept."""
        try:
            chosen = self._combined(self._screened())
            self._prove(chosen)
        except KeyboardInterrupt:
            self.interrupted = True
            if self.final.rounds:
                self._settle_interrupted()
        for each in self.candidates:
            if each.standing == "left out" and not each.why:
                each.why = "interrupted before it was tried" if self.interrupted else "not tried"
        return self.final

    # Launching

    def _of(self, names: Iterable[str]) -> list[Candidate]:
        wanted = set(names)
        return [each for each in self.candidates if each.change.name in wanted]

    def _seconds(self, found: TrialRun) -> float:
        assert found.step_seconds is not None
        return found.step_seconds + ((found.epoch_seconds or 0.0) if self._counts_epochs else 0.0)

    def _note(self, stage: Stage, number: int, arm: Arm, found: TrialRun) -> None:
        failure = found.failure.sentence if found.failure is not None else ""
        self.launches.append(
            Launched(
                stage=stage, round=number, changes=arm, step_seconds=found.step_seconds, steps=found.steps,
                doubt_seconds=found.doubt_seconds, elapsed_seconds=found.elapsed_seconds, failure=failure,
                allocated_bytes=found.allocated_bytes, resident_bytes=found.resident_bytes,
            )
        )  # fmt: skip
        if found.step_seconds is not None:
            rounds = self._stages.setdefault(stage, [])
            while len(rounds) <= number:
                rounds.append({})
            rounds[number][arm] = self._seconds(found)
            self._doubts.setdefault(arm, []).append(found.doubt_seconds)

    def _launch(self, stage: Stage, number: int, arm: Arm) -> str:
        """Launch an arm once; the value says why it is out, or is empty."""
        members = self._of(arm)
        self.say(f"{stage}, round {number + 1}: {' + '.join(arm) or 'as typed'}")
        found = self.run([each.change for each in members])
        self._note(stage, number, arm, found)
        if found.failure is not None or found.step_seconds is None:
            why = found.failure.sentence if found.failure is not None else "no step of it was timed"
            self._stand(members if len(members) == 1 else (), "failed", why)
            return why
        if arm == TYPED:
            self._own = max(self._own or 0.0, apart(self.first.evidence, found.evidence) or 0.0)
            self.repeats = self._own == 0
            return ""
        effect = max((each.change.effect for each in members), key=_EFFECTS.index)
        shown = self._shown(found, effect)
        self._last_proof[arm] = shown
        for each in members if len(members) == 1 else ():
            each.proof = shown
        if not shown.holds:
            self._stand(members if len(members) == 1 else (), "other training", shown.text)
            return shown.text
        return ""

    def _shown(self, found: TrialRun, effect: Effect) -> Proof:
        shown = proof(self.first.evidence, found.evidence, effect, self._own)
        if not shown.holds and self._own is None:  # does the script repeat itself?
            again = self.run([])
            self._own = apart(self.first.evidence, again.evidence) or 0.0
            self.repeats = self._own == 0
            shown = proof(self.first.evidence, found.evidence, effect, self._own)
        return shown

    def _stand(self, members: Iterable[Candidate], standing: Standing, why: str) -> None:
        for each in members:
            each.standing, each.why = standing, why

    def _left(self) -> float:
        return self.within - (self.clock() - self._began)

    def _each(self) -> float:
        """Seconds of a launch."""
        return fmean(each.elapsed_seconds for each in self.launches)

    # Screening

    def _screened(self) -> list[Candidate]:
        """Launch what may pay, twice; the value is what looks worth more."""
        active = self._affordable(self._that_may_pay())
        for number in range(_SCREENED):
            order = active if number % 2 == 0 else active[::-1]
            if number and (why := self._launch("screening", number, TYPED)):
                self._stand(active, "left out", f"as typed the script failed at its second start: {why}")
                return []
            for each in list(order):
                if self._launch("screening", number, (each.change.name,)):
                    active.remove(each)
            typed = self._typed = fmean(row[TYPED] for row in self._stages["screening"])
            for each in list(active):
                each.saves = self._saving("screening", TYPED, (each.change.name,), 0.05)
                limit = WORTH if number + 1 == _SCREENED else -_SLOWER
                if each.saves.value < limit * typed:
                    slower = each.saves.value < -_SLOWER * typed
                    self._stand([each], "slower" if slower else "no difference", "")
                    active.remove(each)
            if not active:
                break
        for each in active:
            if each.change.consent and each.change.consent not in self.allowed:
                self._stand([each], "asks", f"changes {each.change.effect}: --allow {each.change.consent}")
        return [each for each in active if each.standing != "asks"]

    def _that_may_pay(self) -> list[Candidate]:
        found = []
        for each in self.candidates:
            most = each.change.forecast
            if most is not None and most < WORTH * self._typed:
                self._stand(
                    [each], "left out", f"saves {format_seconds(max(0.0, most))} of the step at most, by forecast"
                )
            else:
                found.append(each)
        place: dict[str, int] = {}
        for each in found:
            place[each.change.knob] = place.get(each.change.knob, -1) + 1
            each.order = (place[each.change.knob], -(each.change.forecast or 0.05 * self._typed))  # type: ignore[attr-defined]
        return sorted(found, key=lambda each: each.order)  # type: ignore[attr-defined]

    def _affordable(self, wanted: list[Candidate]) -> list[Candidate]:
        most = max(2, int(_OF_TIME * self._left() / self._each() / _SCREENED) - 1)
        self._stand(wanted[most:], "left out", "no time for it: give more with --within")
        return wanted[:most]

    # Combining

    def _combined(self, worth: list[Candidate]) -> tuple[str, ...]:
        """The best of each knob, without those that the others are faster without."""
        best: dict[str, Candidate] = {}
        for each in worth:
            other = best.get(each.change.knob)
            better = other is None or _value(each) > _value(other)
            if other is not None:
                self._stand([other if better else each], "no difference", "another value of the same is faster")
            if better:
                best[each.change.knob] = each
        chosen = sorted(best.values(), key=_value, reverse=True)
        while len(chosen) > 1:
            arm = tuple(each.change.name for each in chosen)
            why = self._launch("combining", 0, TYPED) or self._launch("combining", 0, arm)
            if not why:
                break
            self._stand([chosen.pop()], "failed", f"together with the others: {why}")
        if len(chosen) < 2:
            return tuple(each.change.name for each in chosen)
        for each in list(chosen):
            rest = tuple(name for name in arm if name != each.change.name)
            if len(arm) == 2:  # the other one alone is known
                alone = fmean(row[rest] for row in self._stages["screening"] if rest in row)
            elif self._launch("combining", 0, rest):
                continue
            else:
                alone = self._stages["combining"][0][rest]
            if alone - self._stages["combining"][0][arm] < -WORTH / 2 * self._typed:
                self._stand([each], "slower", "beside the others it costs more than it saves")
                chosen.remove(each)
        return tuple(each.change.name for each in chosen)

    # Proving

    def _prove(self, chosen: tuple[str, ...]) -> None:
        """The final comparisons."""
        for number in range(_FINALS):
            if not chosen:
                return
            self._stages.pop("final", None)
            unproven = self._compare(chosen)
            if not unproven:
                return
            left = tuple(name for name in chosen if name not in unproven)
            if len(unproven) == 1 and left and self._alternative(chosen, left):
                return
            for each in self._of(unproven):
                if each.standing not in ("failed", "other training"):
                    self._stand([each], "unproven", f"not shown in {self.final.rounds} rounds")
            if left == chosen or self._left() < len(LOOKS) * self._each():
                left = ()
            if not left or number + 1 == _FINALS:
                self._stand(
                    [each for each in self._of(chosen) if each.standing == "left out"],
                    "unproven",
                    "not shown in time",
                )
                self.final.kept, self.final.together = (), None
            chosen = left

    def _arms(self, chosen: Arm) -> list[Arm]:
        if len(chosen) == 1:
            return [TYPED, chosen]
        return [TYPED, chosen, *(tuple(name for name in chosen if name != each) for each in chosen)]

    def _statements(self, chosen: Arm) -> int:
        """Statements that a final comparison may make: of all, of each one's part, of all without each."""
        return _FINALS * (1 if len(chosen) == 1 else 2 * len(chosen) + 1)

    def _compare(self, chosen: Arm) -> tuple[str, ...]:
        """Fresh rounds until all is shown, or time is up; the value is what was not shown."""
        arms, number = self._arms(chosen), 0
        self.final = Final()
        while number < LOOKS[-1]:
            for arm in arms if number % 2 == 0 else arms[::-1]:
                if why := self._launch("final", number, arm):
                    out = self._of(chosen)
                    self._stand(out, "failed" if "batch" not in why else "other training", why)
                    return chosen
            number += 1
            if number not in LOOKS:
                if number > LOOKS[0] and self._left() < 0:
                    break
                continue
            unproven = self._look(chosen, number)
            if not unproven:
                return ()
            together = self.final.together
            hopeless = together is not None and together.high is not None and together.high < WORTH * self._typed
            if hopeless or self._left() < (_following(number) - number) * len(arms) * self._each():
                return unproven
        return self._look(chosen, max(each for each in LOOKS if each <= number))

    def _look(self, chosen: Arm, number: int) -> tuple[str, ...]:
        """Judge after so many rounds; the value is what is not shown."""
        rate = level(self._statements(chosen), self.error_rate)
        rounds = self._stages["final"][:number]
        together = self._saving("final", TYPED, chosen, rate, number)
        self.final = Final(
            kept=chosen, together=together, rounds=number, typed_seconds=fmean(row[TYPED] for row in rounds),
            after_seconds=fmean(row[chosen] for row in rounds),
        )  # fmt: skip
        self._typed = self.final.typed_seconds or self._typed
        unproven = []
        for each in self._of(chosen):
            rest = tuple(name for name in chosen if name != each.change.name)
            each.saves = self._saving("final", rest, chosen, rate, number)
            each.proof = self._last_proof.get(chosen) if len(chosen) == 1 else each.proof
            if not proven(each.saves):
                unproven.append(each.change.name)
        if not proven(together):
            unproven = list(chosen)
        if not unproven:
            self._stand(self._of(chosen), "kept", "")
        return tuple(unproven)

    def _alternative(self, chosen: Arm, left: Arm) -> bool:
        """Keep all but the one that was not shown, if that was shown to be faster in the same rounds."""
        number = self.final.rounds
        rate = level(self._statements(chosen), self.error_rate)
        together = self._saving("final", TYPED, left, rate, number)
        if not proven(together):
            return False
        rounds = self._stages["final"][:number]
        self.final = Final(left, together, self.final.typed_seconds, fmean(row[left] for row in rounds), number)
        self._stand(self._of(left), "kept", "")
        if len(left) == 1:
            self._of(left)[0].saves = together
        dropped = [each for each in self._of(chosen) if each.change.name not in left]
        self._stand(dropped, "unproven", f"not shown beside the others in {number} rounds")
        return True

    def _settle_interrupted(self) -> None:
        """After an interrupt: what the last look has shown stands, the rest does not."""
        kept = [each for each in self._of(self.final.kept) if each.standing == "kept"]
        if not kept:
            self._stand(self._of(self.final.kept), "unproven", "interrupted before it was shown")
            self.final.kept, self.final.together = (), None

    def _saving(self, stage: str, slow: Arm, fast: Arm, rate: float, number: int | None = None) -> Interval:
        rounds = self._stages[stage][:number]
        doubt = abs(fmean(self._doubts[slow]) - fmean(self._doubts[fast]))
        named = [{" + ".join(arm): seconds for arm, seconds in row.items()} for row in rounds]
        return saving(named, " + ".join(slow), " + ".join(fast), self._spread(), rate, doubt)

    def _spread(self) -> Spread | None:
        stages: list[list[Round]] = []
        for rounds in self._stages.values():
            stages.append([{" + ".join(arm): each for arm, each in row.items()} for row in rounds])
        return pooled(stages)


def _value(each: Candidate) -> float:
    return each.saves.value if each.saves is not None else 0.0


def _following(number: int) -> int:
    """The next look."""
    return next((each for each in LOOKS if each > number), number)


def standings(candidates: Sequence[Candidate]) -> Mapping[Standing, list[Candidate]]:
    """Candidates by what became of them."""
    found: dict[Standing, list[Candidate]] = {}
    for each in candidates:
        found.setdefault(each.standing, []).append(each)
    return found
