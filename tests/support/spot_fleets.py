"""Rented fleets for tests: a fake ``sky`` and a fake head at the process seam, by a clock that passes in ``sleep``.

It hears the very words that would be run. Clusters and managed jobs come up, refuse, are preempted and are ended as a
test says; the head's lines are what a real one would write. What is there in the end costs money, and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from fleet_pools import published

from stash import catalog
from stash.spot.choose.fleet_costs import FleetWish
from stash.spot.choose.provision import provision
from stash.spot.records.fleets import FleetPlan
from stash.spot.rented import rent_request
from stash.spot.rented.job_tasks import FleetRequest
from stash.spot.rented.rent_controller import COOLDOWN_SECONDS, FleetOutcome, RentController, RentPolicy
from stash.spot.rented.replace_machines import FleetPolicy
from stash.spot.rented.tasks import RentRequest
from stash.study import study_folder
from stash.study.backend import JobBackend, open_leases, spent
from stash.study.programs import Called
from stash.study.study_folder import CellFolder

TODAY = date(2026, 11, 22)
JOB = "import stash.spot\njob = stash.spot.Job(None, None, None, None, batch=1)\n"
QUOTA = "sky.exceptions.ResourcesUnavailableError: VcpuLimitExceeded: more vCPU capacity than your current quota of 0"


def plan(loss: float = 0.8, seconds: float = 2400.0, **pool_fields: object) -> FleetPlan:
    """Of the published pool, dated today, with a server that costs; two p3.2xlarge and four g3.8xlarge."""
    pool = published()
    server = pool.server.model_copy(update={"dollars_per_hour": 0.2})
    pool = pool.model_copy(
        update={"as_of": TODAY.isoformat(), "server": server, "start_seconds": 60.0, **pool_fields}
    )
    return provision(FleetWish(pool, loss, seconds), "0", "2026-11-22T00:00:00+00:00")


def with_on_demand(of: FleetPlan, dearer: float = 3.0) -> FleetPlan:
    """The plan where machines can be had on demand too, so many times as dear as spot ones."""
    types = tuple(
        kind.model_copy(update={"on_demand_dollars_per_hour": dearer * kind.dollars_per_hour})
        for kind in of.pool.types
    )
    return of.model_copy(update={"pool": of.pool.model_copy(update={"types": types})})


def request(folder: Path, of: FleetPlan | None = None, infra: str = "aws/us-east-1") -> FleetRequest:
    (folder / "job.py").write_text(JOB)
    run_folder = rent_request.run_folder(folder / "job.plan.json", folder.resolve())
    return rent_request.request(of or plan(), f"{folder}/job.py:job", infra, run_folder, catalog.load(), TODAY)


@dataclass
class FakeFleet:
    """Clouds, processes and a head; survives the controllers that use it."""

    clock: float = 1_000_000.0
    updates: int = 30_000
    """That the training takes."""
    refuses: Callable[[str], str | None] = lambda text: None
    """Why a task cannot be had, by its YAML."""
    fails: Callable[[str], str | None] = lambda name: None
    """What a worker's program prints and then ends, by its name."""
    starves: Callable[[str], bool] = lambda text: False
    """Whether a task is asked for forever, by its YAML."""
    deaf: int = 0
    """How often ending something says that it worked, and does not."""
    script: dict[int, Callable[[FakeFleet], None]] = field(default_factory=dict)
    """What happens once so many updates are done."""
    stops: Callable[[Sequence[str]], BaseException | None] = lambda words: None
    """What breaks into the controller, by the words that it would have run."""
    stops_after: Callable[[Sequence[str]], BaseException | None] = lambda words: None
    """The same, once they have been run."""
    clusters: set[str] = field(default_factory=set)
    jobs: dict[str, str] = field(default_factory=dict)
    """Status by name."""
    commands: list[tuple[str, ...]] = field(default_factory=list)
    lines: list[dict[str, object]] = field(default_factory=list)
    done: float = 0.0
    stopped: bool = False
    running: dict[Path, float] = field(default_factory=dict)
    """Until when each command runs."""
    dead: bool = False
    _coming: list[tuple[float, tuple[str, ...], CellFolder]] = field(default_factory=list)
    _joining: dict[str, float] = field(default_factory=dict)

    def has(self, program: str) -> bool:
        return True

    def start(self, command: Sequence[str], work: Path, cell: CellFolder) -> None:
        self._listen(command)
        took = {("sky", "launch"): 120.0, ("sky", "jobs"): 30.0}.get(tuple(command[:2]), 5.0)
        if "tail -n +1" in command[-1]:
            took = float("inf")
        self.running[cell.path] = self.clock + took
        if command[:3] == ("sky", "jobs", "launch"):  # whoever asked for it may be gone when it comes
            self._coming.append((self.clock + took, tuple(command), cell))
            self._after(command)
            return
        called = self._done(command)
        cell.log.write_text(called.output)
        cell.status.write_text(str(called.code))

    def alive(self, cell: CellFolder) -> bool:
        self.settle()
        if self.running.get(cell.path) == float("inf"):
            cell.log.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return self.clock < self.running.get(cell.path, 0.0)

    def interrupt(self, cell: CellFolder) -> None: ...

    def kill(self, cell: CellFolder) -> None:
        self.running.pop(cell.path, None)

    def call(self, command: Sequence[str], seconds: float) -> Called:
        self._listen(command)
        self.clock += 1.0
        self.settle()
        return self._done(command)

    def now(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        if self.dead:
            raise KeyboardInterrupt
        passed = max(seconds, 10.0)  # fewer turns of the loop
        self.clock += passed
        self._train(passed)

    def _listen(self, command: Sequence[str]) -> None:
        self.commands.append(tuple(command))
        error = self.stops(command)
        if error is not None:
            raise error

    def _done(self, command: Sequence[str]) -> Called:
        called = self._do(command)
        self._after(command)
        return called

    def _after(self, command: Sequence[str]) -> None:
        error = self.stops_after(command)
        if error is not None:
            raise error

    def settle(self) -> None:
        """What was asked for comes, whoever waits for it."""
        for each in [each for each in self._coming if each[0] <= self.clock]:
            self._coming.remove(each)
            called = self._do(each[1])
            each[2].log.write_text(called.output)
            each[2].status.write_text(str(called.code))

    def _do(self, words: Sequence[str]) -> Called:
        if words[:2] == ("sky", "launch"):
            return self._launch(words[words.index("--cluster") + 1], Path(words[-1]).read_text(), cluster=True)
        if words[:3] == ("sky", "jobs", "launch"):
            return self._launch(words[words.index("--name") + 1], Path(words[-1]).read_text(), cluster=False)
        if words[:2] == ("sky", "down") or words[:3] == ("sky", "jobs", "cancel"):
            return self._end(words[-1])
        if words[:2] == ("sky", "status"):
            return _listed([{"name": name, "status": "UP"} for name in sorted(self.clusters)])
        if words[:3] == ("sky", "jobs", "queue"):
            numbered = enumerate(self.jobs.items(), start=1)
            return _listed([{"job_id": n, "job_name": name, "status": status} for n, (name, status) in numbered])
        if words[:3] == ("sky", "jobs", "logs"):
            return Called(0, self.fails(words[-1]) or "")
        return self._ssh(words)

    def _launch(self, name: str, text: str, cluster: bool) -> Called:
        why = self.refuses(text)
        if why is not None:
            return Called(1, f"{why}\n")
        if cluster:
            self.clusters.add(name)
        elif self.starves(text):
            self.jobs[name] = "STARTING"
        else:
            self.jobs[name] = "FAILED" if self.fails(name) else "RUNNING"
            self._joining[name] = self.clock + 60.0
        return Called(0, "launched\n")

    def _end(self, name: str) -> Called:
        if self.deaf:
            self.deaf -= 1
        else:
            self.clusters.discard(name)
            if name in self.jobs:
                self.jobs[name] = "CANCELLED"
        return Called(0, "ended\n")

    def _ssh(self, words: Sequence[str]) -> Called:
        if not self.clusters:
            return Called(255, "ssh: connect to host 1.2.3.4 port 22: no route to host\n")
        if words[-1].startswith("cat "):
            return Called(0, "10.0.0.5\n")
        if words[-1].startswith("wc "):
            rows = [
                json.dumps({"seconds": n / 10, "worker": "worker1", "samples": 100, "staleness": 0, "loss": 3.0})
                for n in range(60)
            ]
            return Called(0, "\n".join([str(int(self.done)), *rows]) + "\n")
        if words[-1].startswith("echo ") and '"stop"' in words[-1]:
            self.stopped = True
            self.say("ended", reason="interrupted", updates=int(self.done), loss=3.0)
        return Called(0, "")

    def say(self, what: str, who: str = "", **facts: object) -> None:
        self.lines.append({"at": self.clock, "what": what, "who": who, **facts})

    def preempt(self, name: str, noticed: bool = False) -> None:
        """A worker's machine goes; SkyPilot begins to recover it."""
        job = next((job for job in self.jobs if job.endswith(f"-{name}")), None)
        if job is None:
            return  # it was never asked for
        if not noticed:
            self.say("lost", name, leases=1)
        self.jobs[job] = "RECOVERING"
        self._joining.pop(job, None)

    @property
    def training(self) -> list[str]:
        return [name for name, status in self.jobs.items() if status == "RUNNING" and name not in self._joining]

    @property
    def left(self) -> list[str]:
        """What still costs money."""
        return [
            *self.clusters,
            *(name for name, status in self.jobs.items() if status in ("STARTING", "RUNNING", "RECOVERING")),
        ]

    def _train(self, seconds: float) -> None:
        for name, when in list(self._joining.items()):
            if self.jobs[name] != "RUNNING":
                del self._joining[name]
            elif self.clock >= when:
                del self._joining[name]
                self.say("joined", name.rpartition("-")[2])
        if not self.clusters or self.stopped:
            return
        self.done += len(self.training) * 5.0 * seconds
        for due in sorted(each for each in self.script if each <= self.done):
            self.script.pop(due)(self)
        if self.done >= self.updates and not self.stopped:
            self.stopped = True
            self.say("ended", reason="loss reached", updates=self.updates, loss=0.79)


def _listed(records: list[dict[str, object]]) -> Called:
    return Called(0, f"some notice of a newer version\n{json.dumps(records, indent=2)}\n")


def run(
    of: RentRequest, world: FakeFleet, cap: float = 50.0, notes: list[str] | None = None,
    cooldown: float = COOLDOWN_SECONDS, policy: RentPolicy | None = None,
) -> FleetOutcome:  # fmt: skip
    """One controller in that world, going on where the journal ends."""
    lines: list[str] = [] if notes is None else notes
    with of.folder.held():
        events = study_folder.read(of.folder.journal)
        if policy is None:
            assert isinstance(of, FleetRequest)
            policy = FleetPolicy(of)
        backend = JobBackend(of.folder, world, spent(events))
        return RentController(of, policy, backend, lines.append, cap, cooldown).run(open_leases(events))
