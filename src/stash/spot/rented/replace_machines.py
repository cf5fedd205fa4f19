"""Decides for rented machines when some go: replans a fleet, or replaces nodes of a gang one for one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from stash.core.units import format_seconds
from stash.spot.rented import tasks
from stash.spot.rented.gang import GangRequest
from stash.spot.rented.rent_controller import SpotController
from stash.spot.rented.training_progress import TrainingSight, by_type, sight
from stash.spot.replacement.outlook import FleetSituation
from stash.spot.replacement.replanning import GangSituation, Replanning, replan, succeed
from stash.spot.sync.group_monitor import ENDED
from stash.study.submission import ProgramWords

# Takeover --------------------------------------------------------------------------------------------------
# Decides for an asynchronous fleet: whenever somebody goes, the rest is planned anew, by the loss that is seen.

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


# Succession ------------------------------------------------------------------------------------------------
# Decides for a gang: a synchronous job on rented machines, whose nodes that go are replaced one for one.
#
# How far a script is nobody tells: its work is what the plan expects, less the time that groups have trained, each
# counted by its share of the nodes, and only as far as it was saved. Lost work is so done again in these books,
# too.

_BREAKS = ("lost", "left", "restarted")


@dataclass
class TrainedTime:
    """Seconds of the whole gang, from the head's lines and by the head's clock."""

    most: int
    """Nodes of a whole one."""
    kept: float = 0.0
    _since: float | None = None
    """When the group that trains was formed, or last saved; ``None``: no group trains."""
    _share: float = 0.0

    def hear(self, message: dict[str, Any]) -> None:
        what, at = message["what"], float(message.get("at") or 0.0)
        if what == "formed":
            self._since, self._share = at, min(1.0, int(message.get("size") or 0) / self.most)
        elif what == "saved" and self._since is not None:
            self.kept += max(0.0, at - self._since) * self._share
            self._since = at
        elif what in _BREAKS:
            self._since = None

    @property
    def trains(self) -> bool:
        return self._since is not None


@dataclass
class GangController(SpotController):
    """One run of a synchronous script, to its end."""

    complete: ClassVar[str] = ENDED
    trained: TrainedTime = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.trained = TrainedTime(len(self._planned))

    @property
    def _planned(self) -> list[str]:
        chosen = self.request.plan.chosen
        return [] if chosen is None else [name for name, count in chosen.workers.items() for _ in range(count)]

    def _heard(self, message: dict[str, Any]) -> None:
        self.trained.hear(message)
        what = message["what"]
        if what == "formed":
            self.say(f"the script is started on {message.get('who')}")
        elif what == "restarted":
            self.say(f"torchrun put no group together for {float(message.get('seconds') or 0):.0f} s; all begin anew")

    def _decide(self) -> None:
        assert self._head is not None
        self.workers.changed, self._again = False, None
        found = succeed(self.request.plan, self._situation())
        self.say(f"{found.why} ({self._left()})")
        if found.look_again_seconds is not None:
            self._again = self.programs.now() + found.look_again_seconds
        patience = self._patience(found.last_moment_seconds if found.last_moment_seconds > 0 else None)
        for added, on_demand in ((found.add, False), (found.add_on_demand, True)):
            for name in [name for name, count in added.items() for _ in range(count)]:
                kind = self.request.kind(name)
                self.workers.rent(kind, self._head, on_demand or kind.fixed, patience)

    def _left(self) -> str:
        return f"about {format_seconds(self._work_seconds)} of training left by the plan"

    @property
    def _work_seconds(self) -> float:
        plan = self.request.plan
        whole = 0.0 if plan.chosen is None else plan.chosen.seconds - plan.pool.start_seconds
        return max(0.0, whole - self.trained.kept)

    def _situation(self) -> GangSituation:
        assert isinstance(self.request, GangRequest)
        return GangSituation(
            workers=self.workers.staying(),
            least=self.request.least,
            work_seconds=self._work_seconds,
            seconds_left=self._began + self.request.plan.deadline_seconds - self.programs.now(),
            join_seconds=self._join_seconds,
            cooling=self.workers.cooling_now(on_demand=False),
            refused=self.workers.cooling_now(on_demand=True),
        )
