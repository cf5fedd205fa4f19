"""What a study's controller costs beyond each cell's own command, and how long until it knows what is left.

    python -m bench.study.overhead

The first is read from the default study's folder, as far as that was run (``make study``): each cell's command has
written down when it began and ended. The second is a study of 1,000 emulated cells, half of them done by its journal.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import yaml

from bench.machine import DATA, arguments, machine
from bench.study.runs import STUDY
from bench.table import table
from stash.study import study_folder
from stash.study.study_file import read_study
from stash.study.study_folder import StudyEvent, of_study
from stash.study.study_run import cells_of

GOAL = 2.0
"""Seconds, of both."""
WORKLOADS = (
    "alexnet",
    "mobilenet_v2",
    "squeezenet1_0",
    "shufflenet_v2_x0_5",
    "resnet18",
    "resnet50",
    "vgg11",
    "vgg16",
)
TARGETS = ("p2.8xlarge", "p2.16xlarge", "p3.2xlarge", "p3.8xlarge", "p3.16xlarge")
BATCHES = 25
RUNS = 5


def of_cells() -> list[str] | None:
    """Between a cell's command and the next one's, less the command itself; ``None`` if no cell was run here."""
    place = DATA / "study" / STUDY.name
    if not place.exists():
        return None
    folder = of_study(place)
    events = study_folder.read(folder.journal)
    beyond = []
    for cell, began, released in _cells(events):
        own = folder.cell(cell)
        if own.status.exists() and own.process.exists():
            beyond.append(released - began - (own.status.stat().st_mtime - own.process.stat().st_mtime))
    if not beyond:
        return None
    return [
        "controller, beyond each cell's command",
        str(len(beyond)),
        f"{median(beyond):.2f} s",
        f"{max(beyond):.2f} s",
    ]


def _cells(events: tuple[StudyEvent, ...] | list[StudyEvent]) -> list[tuple[str, float, float]]:
    """Cells that ended, with the seconds at which their lease was opened and released."""
    found, opened, cell = [], 0.0, ""
    for event in events:
        if event.what == "opened":
            opened = event.at
        elif event.what == "started":
            cell = event.cell
        elif event.what == "released" and cell:
            found.append((cell, opened, event.at))
            cell = ""
    return found


def of_planning() -> list[list[str]]:
    """A fresh process that reads the study and its journal, and says what is left; wall clock and CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "large.yaml"
        place.write_text(_large())
        cells = cells_of(read_study(place), None)
        kept = of_study(place)
        kept.path.mkdir()
        for cell in cells[: len(cells) // 2]:
            at = time.time()
            study_folder.append(kept.journal, StudyEvent(at=at, what="started", lease=cell.id, cell=cell.id))
            study_folder.append(
                kept.journal, StudyEvent(at=at, what="ended", lease=cell.id, cell=cell.id, ending="done", seconds=9.0)
            )
        walls, busy = [], []
        command = [sys.executable, "-m", "stash", "characterize", str(place), "--dry-run", "--json"]
        for _ in range(RUNS):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            walls.append(time.monotonic() - began)
            busy.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    name = f"{len(cells):,} cells, half of them done: to know what is left"
    return [
        [f"{name}, wall clock", str(RUNS), f"{median(walls):.2f} s", f"{max(walls):.2f} s"],
        [f"{name}, CPU", str(RUNS), f"{median(busy):.2f} s", f"{max(busy):.2f} s"],
    ]


def _large() -> str:
    return yaml.safe_dump(
        {
            "workloads": [{"zoo": name} for name in WORKLOADS],
            "batches": [4 * (1 + number) for number in range(BATCHES)],
            "targets": [{"engine": "emulated", "instance": name, "ranks": 2} for name in TARGETS],
        }
    )


def main() -> None:
    arguments(__doc__)
    print(f"{machine()}\n")
    controller = of_cells()
    rows = [*([controller] if controller is not None else []), *of_planning()]
    print(table(["what", "times", "median", "worst"], rows))
    print(f"\nGoal: {GOAL:g} s of each.")
    if controller is None:
        print("The controller's share needs `make study`: no cell was run on this machine.")


if __name__ == "__main__":
    main()
