"""Rented gangs for tests: clouds of ``spot_fleets``, a head with a list of members, a script that takes time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from spot_fleets import TODAY, FakeFleet, plan, with_on_demand

from stash import catalog
from stash.spot.records.fleets import FleetPlan
from stash.spot.rented import rent_request
from stash.spot.rented.job_tasks import GangRequest

BUCKET = "s3://mine/run1"


def gang_plan(workers: dict[str, int] | None = None, dearer: float | None = None, **changes: object) -> FleetPlan:
    """One p3.2xlarge and two g4dn.4xlarge unless told otherwise, for a deadline of twice what it takes."""
    of = plan() if dearer is None else with_on_demand(plan(), dearer)
    assert of.chosen is not None
    chosen = of.chosen.model_copy(
        update={"workers": workers or {"p3.2xlarge": 1, "g4dn.4xlarge": 2}, "seconds": 3660.0, "dollars": 2.0}
    )
    return of.model_copy(update={"chosen": chosen, "deadline_seconds": 7200.0, **changes})


def gang(folder: Path, of: FleetPlan | None = None, infra: str = "aws/us-east-1", least: int = 1) -> GangRequest:
    (folder / "train.py").write_text("")
    run_folder = rent_request.run_folder(folder / "job.plan.json", folder.resolve())
    return rent_request.gang(
        of or gang_plan(), (f"{folder}/train.py", "--epochs", "3"), infra, run_folder, catalog.load(), TODAY, BUCKET,
        least, 60.0,
    )  # fmt: skip


@dataclass
class FakeGang(FakeFleet):
    """All who are there train together, a group as soon as somebody comes or goes; ``updates`` are node-seconds."""

    updates: int = 9000
    missed: float = 30.0
    """Seconds until the head misses a node."""
    _formed: tuple[str, ...] = ()
    _missing: dict[str, float] = field(default_factory=dict)

    def preempt(self, name: str, noticed: bool = False) -> None:
        before = len(self.lines)
        super().preempt(name, noticed)
        del self.lines[before:]
        if not noticed:
            self._missing[name] = self.clock + self.missed

    def leave(self, name: str) -> None:
        """After its notice, in order."""
        job = next(job for job in self.jobs if job.endswith(f"-{name}"))
        self.jobs[job] = "SUCCEEDED"
        self.say("left", name)

    def _train(self, seconds: float) -> None:
        for name, when in list(self._missing.items()):
            if self.clock >= when and not self.stopped:
                del self._missing[name]
                self.say("lost", name)
        super()._train(seconds)
        there = tuple(sorted(name.rpartition("-")[2] for name in self.training))
        if not self.stopped and there and there != self._formed:
            self._formed = there
            self.say("formed", ", ".join(there), size=len(there))
        elif not self.stopped and there:
            self.say("saved", there[0], seconds=1.0)
        for line in self.lines:
            if line.get("reason") == "loss reached":
                line["reason"] = "the script ended"
