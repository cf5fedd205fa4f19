"""``stash fix`` with a search that leaves nothing out, to hold the usual one to: ``python -m bench.fix.exhaustive``.

Takes the options of ``stash fix``. Every change is launched alone, whatever its forecast, in two rounds beside the
script as typed; then the best of each knob are put together one after the other, the largest gain first, each kept
if two launches with it are faster. So all single changes are tried, and all combinations that gain step by step.
"""

from __future__ import annotations

import sys
from statistics import fmean

from stash.fix import change_search
from stash.fix.change_search import Final, Search
from stash.fix.tries import TYPED, Arm, Candidate, gained

ROUNDS = 2


class Exhaustive(Search):
    """The same launches and records, decided by means alone."""

    def search(self) -> Final:
        for number in range(ROUNDS):
            for arm in (TYPED, *((each.change.name,) for each in self.candidates)):
                if number and arm and arm not in self.stages["screening"][0]:
                    continue  # it failed
                if number or arm:
                    self.launch("screening", number, arm)
        for each in self.candidates:
            if each.standing == "left out" and not each.why:
                each.saves = self.saving("screening", TYPED, (each.change.name,), 0.05)
                self.stand([each], "no difference", "")
        chosen: Arm = TYPED
        step = fmean(row[TYPED] for row in self.stages["screening"])
        for each in self._best():
            arm = (*chosen, each.change.name)
            if any(self.launch("combining", number, arm) for number in range(ROUNDS)):
                continue
            with_it = fmean(row[arm] for row in self.stages["combining"] if arm in row)
            if with_it < step:
                chosen, step = arm, with_it
        if chosen:
            self.stand(self.of(chosen), "kept", "")
            for number in range(ROUNDS):
                for arm in (TYPED, chosen):
                    self.launch("final", number, arm)
            typed, after = (fmean(row[arm] for row in self.stages["final"]) for arm in (TYPED, chosen))
            self.final = Final(chosen, self.saving("final", TYPED, chosen, 0.05), typed, after, ROUNDS)
        return self.final

    def _best(self) -> list[Candidate]:
        best: dict[str, Candidate] = {}
        for each in sorted(self.candidates, key=gained, reverse=True):
            allowed = each.standing == "no difference" and not each.change.consent
            if allowed and gained(each) > 0:
                best.setdefault(each.change.knob, each)
        return list(best.values())


def main() -> None:
    from stash.cli.main import app

    change_search.Search = Exhaustive  # type: ignore[misc]
    app(["fix", "--budget", "3h", *sys.argv[1:]])


if __name__ == "__main__":
    main()
