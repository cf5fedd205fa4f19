"""Studies for tests: read from text, and run on programs that only pretend, by a clock that passes in ``sleep``.

The fake stands at the process seam (``study/programs.py``): it hears the very words that would be run. What they
do is scripted by the cell's title or by the cluster's fate; what was rented and not released is counted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from breakdowns import CALM
from profile_builder import build

from stash import catalog
from stash.core.artefact import encode_artefact
from stash.core.user_files import loads
from stash.study import study_folder
from stash.study.backend import Leases, open_leases, spent_dollars
from stash.study.cells import make_cells
from stash.study.controller import StudyController
from stash.study.places import find_places
from stash.study.programs import CommandOutcome
from stash.study.status import read_standings
from stash.study.study_file import Study, StudyFile
from stash.study.study_folder import folder_of_study

PROFILE = encode_artefact(build(CALM))
LOCAL = """
workloads: [{zoo: resnet18}, {zoo: vgg11}]
batches: [32, 64]
targets: [{engine: local}]
"""
SKY = """
workloads: [{zoo: resnet18}]
batches: [32, 64]
targets: [{engine: sky, instance: p3.8xlarge, price: "$12/h"}]
"""


class Killed(BaseException):
    """What no controller can catch: from here on it does nothing more."""


@dataclass
class Ending:
    """How a cell's command ends."""

    code: int | None = 0
    printed: str = ""
    seconds: float = 60.0
    profile: bool = True
    preempts: bool = False
    """Its cluster is gone afterwards."""


@dataclass
class FakeWorld:
    """Processes, clouds and a clock; survives the controllers that use it."""

    endings: Callable[[str], Ending] = lambda _: Ending()
    """By the first line of the cell's script: its title."""
    clock: float = 1_000_000.0
    down_fails: int = 0
    """How often taking a cluster down says that it worked, and does not."""
    fetch_fails: int = 0
    missing: tuple[str, ...] = ()
    """Programs that are not installed."""
    kill_at: float | None = None
    """When the controller is killed."""
    commands: list[tuple[str, ...]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    """Titles, in order."""
    boot: float = 0.0
    """Seconds until machines that are asked for are there, which clouds bill too, nearly all of them."""
    clusters: set[str] = field(default_factory=set)
    billed: dict[str, float] = field(default_factory=dict)
    """Seconds for which a cluster was there, by its name."""
    running: dict[Path, tuple[float, Ending]] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)

    def has(self, program):
        return program not in self.missing

    def start(self, command, work, cell):
        self.commands.append(tuple(command))
        script = next(
            path
            for path in cell.path.iterdir()
            if path.name in ("cell.sh", "task.yaml", "cell.sbatch")
        )
        title = next(
            line for line in script.read_text().splitlines() if line.startswith("# ")
        ).removeprefix("# ")
        self.started.append(title)
        ending = self.endings(title)
        booting = 0.0
        if command[:2] == ("sky", "launch"):
            cluster = command[command.index("--cluster") + 1]
            if cluster not in self.clusters:
                booting = self.boot
                self._since[cluster] = self.clock
            self.clusters.add(cluster)
        self.running[cell.path] = (self.clock + booting + ending.seconds, ending)

    def alive(self, cell):
        if cell.path not in self.running:
            return False
        until, ending = self.running[cell.path]
        if self.clock < until:
            return True
        self._end(cell, ending)
        return False

    def interrupt(self, cell):
        if cell.path in self.running:
            self._end(cell, Ending(code=130, profile=False))

    def kill(self, cell):
        self.running.pop(cell.path, None)

    def call(self, command, seconds):
        self.commands.append(tuple(command))
        self.clock += 1
        if command[:2] == ("sky", "down"):
            if self.down_fails:
                self.down_fails -= 1
                return CommandOutcome(0, "Terminating cluster: done")
            self._gone(command[-1])
            return CommandOutcome(0, "")
        if command[:2] == ("sky", "status"):
            listed = [f"{name}  aws  UP" for name in self.clusters]
            return CommandOutcome(0, "\n".join(["NAME  INFRA  STATUS", *listed]))
        if command[0] == "scp":
            if self.fetch_fails:
                self.fetch_fails -= 1
                return CommandOutcome(255, "ssh: connect to host 1.2.3.4 port 22: no route to host")
            Path(command[-1]).write_bytes(PROFILE)
        return CommandOutcome(0, "")

    def now(self):
        return self.clock

    def sleep(self, seconds):
        self.clock += max(seconds, 5.0)  # fewer turns of the loop
        if self.kill_at is not None and self.clock >= self.kill_at:
            self.kill_at = None
            raise Killed

    def _end(self, cell, ending):
        del self.running[cell.path]
        cell.log.write_text(ending.printed)
        if ending.code is not None:
            cell.status.write_text(str(ending.code))
        if ending.profile and ending.code == 0 and not (cell.path / "task.yaml").exists():
            cell.profile.write_bytes(PROFILE)
        if ending.preempts:
            for cluster in list(self.clusters):
                self._gone(cluster)

    def _gone(self, cluster):
        if cluster in self.clusters:
            self.clusters.discard(cluster)
            self.billed[cluster] = self.billed.get(cluster, 0.0) + self.clock - self._since[cluster]


class DeadOnKill(FakeWorld):
    """A world whose controller, once killed, cannot tidy up: nothing it sends later has an effect."""

    dead: bool = False

    def sleep(self, seconds):
        try:
            super().sleep(seconds)
        except Killed:
            self.dead = True
            raise

    def now(self):
        if self.dead:
            raise Killed
        return super().now()

    def interrupt(self, cell):
        if self.dead:
            raise Killed
        super().interrupt(cell)

    def call(self, command, seconds):
        if self.dead:
            raise Killed
        return super().call(command, seconds)


def study(text, folder, name="grid.yaml"):
    """As if it were the text of a file there."""
    file = loads(text, folder / name, Study)
    return StudyFile(folder / name, file.content, file)


def cells_of(file, version="1.0"):
    return make_cells(file, find_places(file, catalog.load()), version)


def reading_of(file, retry=False):
    return read_standings(
        file.name,
        cells_of(file),
        study_folder.read_events(folder_of_study(file.path).journal),
        retry,
    )


def states(file):
    """How its cells stand, in the order of running."""
    reading = reading_of(file)
    return [reading.standings[cell.id].state for cell in reading.cells]


def run(
    file,
    world,
    dollars=None,
    retry=False,
    notes=None,
    keep=lambda cell: f"{cell.id}.stash.json",
):
    """One run of a study in that world, going on where its journal ends."""
    folder = folder_of_study(file.path)
    lines = [] if notes is None else notes
    with folder.lock():
        events, reading = study_folder.read_events(folder.journal), reading_of(file, retry)
        controller = StudyController(
            folder=folder,
            programs=world,
            leases=Leases(folder.journal, world, spent_dollars(events)),
            keep=keep,
            max_dollars=dollars,
            seconds=reading.seconds,
            say=lines.append,
        )
        return controller.run_cells(reading.cells, reading.standings, open_leases(events))
