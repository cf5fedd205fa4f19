"""Decides for an asynchronous fleet: whenever somebody goes, the rest is planned anew, by the loss that is seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from stash.base.words.units import format_seconds
from stash.derive.spot.takeover.outlook import FleetSituation
from stash.derive.spot.takeover.replanning import Replanning, replan
from stash.rent.spot import tasks
from stash.rent.spot.controlling import SpotController
from stash.rent.spot.sight import TrainingSight, by_type, sight
from stash.rent.study.submission import ProgramWords

_LAST_ROWS = 400
"""Of updates that are looked at."""


@dataclass
class FleetController(SpotController):
    """One run of an asynchronous plan, to its loss."""

    complete: ClassVar[str] = "loss reached"

    def _asks(self) -> dict[str, ProgramWords]:
        return {"progress": tasks.progress(self.request, _LAST_ROWS)}

    def _seen(self, name: str, printed: str) -> None:
        self._sight = sight(printed) or self._sight

    def _heard(self, message: dict[str, Any]) -> None:
        if message["what"] == "ended":
            loss = message.get("loss")
            self._sight = TrainingSight(int(message.get("updates") or 0), loss if isinstance(loss, float) else None)

    def _decide(self) -> None:
        assert self._head is not None
        self.workers.changed, self._again = False, None
        found = replan(self.request.plan, self._situation())
        self.say(f"{found.why} ({self._left(found)}; decided in {found.decided_seconds:.2f} s)")
        if (found.later or not found.in_time) and found.look_again_seconds is not None:
            self._again = self.programs.now() + found.look_again_seconds
        patience = self._patience(found.last_moment_seconds)
        for added, on_demand in ((found.add, False), (found.add_on_demand, True)):
            for name in [name for name, count in added.items() for _ in range(count)]:
                self.workers.rent(self.request.kind(name), self._head, on_demand, patience)

    def _left(self, found: Replanning) -> str:
        if found.seconds is None or found.dollars is None:
            return "nobody trains"
        return f"about {format_seconds(found.seconds)} and ${found.dollars:.2f} to the loss"

    def _situation(self) -> FleetSituation:
        plan, now = self.request.plan, self.programs.now()
        types = {worker.name: worker.kind.name for worker in self.workers.all.values()}
        return FleetSituation(
            workers=self.workers.staying(),
            updates=self._sight.updates,
            loss=self._sight.loss,
            seconds_left=max(0.0, self._began + plan.deadline_seconds - now),
            dollars_left=max(0.0, self.cap - self.leases.dollars),
            join_seconds=self._join_seconds,
            speeds=by_type(self._sight.speeds, types),
            cooling=self.workers.cooling_now(on_demand=False),
            on_demand=self.workers.staying(on_demand=True),
            refused=self.workers.cooling_now(on_demand=True),
        )
