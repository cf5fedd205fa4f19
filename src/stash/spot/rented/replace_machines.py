"""What is rented when machines go: a fleet is planned again, nodes of a gang are replaced one for one.

How far a training is follows from the head's lines and, of a fleet, from the last of its updates.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stash.core.units import format_seconds
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.runs import LOSS_WINDOW, mean_loss
from stash.spot.rented import tasks
from stash.spot.rented.job_tasks import FleetRequest, GangRequest
from stash.spot.rented.workers import SpotWorkers
from stash.spot.replacement.outlook import FleetSituation, GangSituation, RentDecision
from stash.spot.replacement.replanning import replan, succeed
from stash.spot.sync.group_monitor import ENDED
from stash.study.backend import ProgramWords

_LAST_ROWS = 400
"""Of updates that are looked at."""
_MIN_UPDATES = 3
"""Of one worker, that show its speed."""


@dataclass(frozen=True)
class TrainingProgress:
    """How far an asynchronous training is."""

    updates: int = 0
    loss: float | None = None
    speeds: dict[str, float] = field(default_factory=dict)
    """Updates per second of each worker that made some lately."""

    @classmethod
    def of(cls, printed: str) -> TrainingProgress | None:
        """Read what ``tasks.progress`` prints: how many updates, and the last of them; ``None`` of anything else."""
        count, _, rest = printed.partition("\n")
        if not count.strip().isdecimal():
            return None
        rows = []
        for line in rest.splitlines():
            try:
                row = json.loads(line)
                rows.append((float(row["seconds"]), str(row["worker"]), int(row["samples"]), float(row["loss"])))
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
        last = [(row[3], row[2]) for row in rows[-LOSS_WINDOW:]]
        loss = mean_loss(last) if len(last) == LOSS_WINDOW and any(samples for _, samples in last) else None
        moments: dict[str, list[float]] = defaultdict(list)
        for seconds, worker, _, _ in rows:
            moments[worker].append(seconds)
        speeds = {
            worker: (len(at) - 1) / (at[-1] - at[0])
            for worker, at in moments.items()
            if len(at) >= _MIN_UPDATES and at[-1] > at[0]
        }
        return cls(int(count), None if loss is None or math.isnan(loss) else loss, speeds)

    def speeds_by_type(self, types: dict[str, str | None]) -> dict[str, float]:
        """The mean speed of one worker of each type; ``types`` by worker's name."""
        found: dict[str, list[float]] = defaultdict(list)
        for worker, speed in self.speeds.items():
            kind = types.get(worker)
            if kind is not None:
                found[kind].append(speed)
        return {name: sum(each) / len(each) for name, each in found.items()}


@dataclass
class FleetPolicy:
    """Replaces workers of an asynchronous training: when one goes, the rest is planned again, by the loss so far."""

    request: FleetRequest
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    complete: str = "loss reached"
    _before: int | None = None
    """Updates of the checkpoint that it resumed from; ``None``: no server has joined."""

    def looks(self) -> Mapping[str, ProgramWords]:
        return {"progress": tasks.progress(self.request, _LAST_ROWS)}

    def on_look(self, name: str, printed: str) -> None:
        found = TrainingProgress.of(printed)
        if found is not None:
            self.progress = replace(found, updates=found.updates + (self._before or 0))

    def on_message(self, message: Mapping[str, Any]) -> None:
        if message["what"] == "server joined" and self._before is None:  # later ones go on within this run
            self._before = int(message.get("version") or 0)
            self.progress = replace(self.progress, updates=self._before)
        elif message["what"] == "ended":
            loss = message.get("loss")
            updates = int(message.get("updates") or 0) + (self._before or 0)
            self.progress = TrainingProgress(updates, loss if isinstance(loss, float) else None)

    def decide(self, workers: SpotWorkers, seconds_left: float, dollars_left: float) -> RentDecision:
        types = {worker.name: worker.type for worker in workers.members.values()}
        situation = FleetSituation(
            workers=workers.staying(),
            updates=self.progress.updates,
            loss=self.progress.loss,
            seconds_left=max(0.0, seconds_left),
            dollars_left=dollars_left,
            join_seconds=workers.join_seconds,
            speeds=self.progress.speeds_by_type(types),
            cooling=workers.cooling_now(on_demand=False),
            on_demand=workers.staying(on_demand=True),
            refused=workers.cooling_now(on_demand=True),
        )
        found = replan(self.request.plan, situation)
        left = "no worker trains"
        if found.seconds is not None and found.dollars is not None:
            left = f"about {format_seconds(found.seconds)} and ${found.dollars:.2f} to the loss"
        why = f"{found.why} ({left}; decided in {found.decided_seconds:.2f} s)"
        again = found.look_again_seconds if found.later or not found.in_time else None
        return replace(found, why=why, look_again_seconds=again)


_BREAKS = ("lost", "left", "restarted")


@dataclass
class TrainedTime:
    """Seconds of the whole gang that were trained and saved, from the head's lines and by the head's clock."""

    most: int
    """Nodes of a whole one."""
    kept: float = 0.0
    _since: float | None = None
    """When the group that trains was formed, or last saved; ``None``: no group trains."""
    _share: float = 0.0

    def count(self, message: Mapping[str, Any]) -> None:
        what, at = message["what"], float(message.get("at") or 0.0)
        if what == "formed":
            self._since, self._share = at, min(1.0, int(message.get("size") or 0) / self.most)
        elif what == "saved" and self._since is not None:
            self.kept += max(0.0, at - self._since) * self._share
            self._since = at
        elif what in _BREAKS:
            self._since = None


@dataclass
class GangPolicy:
    """Replaces nodes of a synchronous script, one for one.

    How far a script is is unknown: its work is what the plan expects, less the time that groups have trained, each
    counted by its share of the nodes, and only as far as it was saved. Lost work so counts as work again.
    """

    request: GangRequest
    trained: TrainedTime = field(init=False)
    complete: str = ENDED

    def __post_init__(self) -> None:
        self.trained = TrainedTime(self.request.most)

    def looks(self) -> Mapping[str, ProgramWords]:
        return {}

    def on_look(self, name: str, printed: str) -> None:
        """Do nothing: there is nothing to watch."""

    def on_message(self, message: Mapping[str, Any]) -> str | None:
        self.trained.count(message)
        what = message["what"]
        if what == "formed":
            return f"the script is started on {message.get('who')}"
        if what == "restarted":
            seconds = float(message.get("seconds") or 0)
            return f"torchrun put no group together for {seconds:.0f} s; all start again"
        return None

    def decide(self, workers: SpotWorkers, seconds_left: float, dollars_left: float) -> RentDecision:
        plan: FleetPlan = self.request.plan
        whole = 0.0 if plan.chosen is None else plan.chosen.seconds - plan.pool.start_seconds
        work = max(0.0, whole - self.trained.kept)
        situation = GangSituation(
            workers=workers.staying(),
            least=self.request.least,
            work_seconds=work,
            seconds_left=seconds_left,
            join_seconds=workers.join_seconds,
            cooling=workers.cooling_now(on_demand=False),
            refused=workers.cooling_now(on_demand=True),
        )
        found = succeed(plan, situation)
        return replace(found, why=f"{found.why} (about {format_seconds(work)} of training left by the plan)")
