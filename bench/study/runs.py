"""The default study run, and what it found kept as tables, so that its page can be written again without it.

The study runs in ``data/study``, where it goes on after whatever ended it. Of each cell ``data/cells.csv`` keeps what
it took, and ``data/stalls.csv.gz`` each stall beside its truth: seconds of the instance, the testbed's scales undone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from bench import recorded
from bench.machine import DATA, ROOT, STASH
from bench.study.truth import truth
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.artefact import load
from stash.lab.testbed.emulation import Emulation
from stash.study import study_folder
from stash.study.cells import Cell
from stash.study.emulated_model import make_model
from stash.study.results import make_results
from stash.study.status import standings
from stash.study.study_file import read_study
from stash.study.study_folder import StudyEvent, folder_of_study
from stash.study.study_run import cells_of

STUDY = Path(__file__).parent / "paper.yaml"
KEPT = Path(__file__).parent / "data"
CELLS = KEPT / "cells.csv"
STALLS = KEPT / "stalls.csv.gz"
FACTS = KEPT / "facts.csv"
_CELL = (
    "workload",
    "batch",
    "place",
    "nodes",
    "devices",
    "ranks",
    "size_scale",
    "time_scale",
    "step",
    "low",
    "high",
    "samples_per_second",
    "dollars_per_million",
    "dollars_per_hour",
    "took",
    "as_of",
)
_STALL = ("workload", "batch", "place", "nodes", "stall", "seconds", "low", "high", "truth")


@dataclass(frozen=True)
class Row:
    """One cell as it is kept."""

    cell: Mapping[str, str]
    stalls: Mapping[str, Mapping[str, str]]
    """By name, in ladder order."""

    @property
    def workload(self) -> str:
        return self.cell["workload"]

    @property
    def batch(self) -> int:
        return int(self.cell["batch"])

    @property
    def where(self) -> str:
        """As tables have it: ``2 × p3.8xlarge``."""
        nodes = int(self.cell["nodes"])
        return self.cell["place"] if nodes == 1 else f"{nodes} × {self.cell['place']}"

    @property
    def step(self) -> float:
        return float(self.cell["step"])

    @property
    def true_step(self) -> float:
        return sum(float(stall["truth"]) for stall in self.stalls.values())

    def number(self, field: str) -> float | None:
        return float(self.cell[field]) if self.cell[field] else None

    def seconds(self, stall: str) -> float | None:
        """As measured; ``None`` where there can be none."""
        return float(self.stalls[stall]["seconds"]) if stall in self.stalls else None

    def error(self, stall: str) -> float:
        """Measured less true, as a fraction of the true step; of ``"step"`` that of the whole."""
        if stall == "step":
            return (self.step - self.true_step) / self.true_step
        return (
            float(self.stalls[stall]["seconds"]) - float(self.stalls[stall]["truth"])
        ) / self.true_step


def run() -> int:
    """Run what is left of the study; the command's exit code. Needs root."""
    place = DATA / "study" / STUDY.name
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(STUDY, place)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.run(
        [*STASH, "characterize", str(place)], env=environment, check=False
    ).returncode


def keep() -> int:
    """Write down what the study has found until now; how many cells that is."""
    place = DATA / "study" / STUDY.name
    cells = cells_of(read_study(place))
    folder = folder_of_study(place)
    standing = standings(cells, study_folder.read_events(folder.journal))
    measured = {
        cell.id: attribute(load(folder.cell(cell.id).profile))
        for cell in cells
        if standing[cell.id].state == "done"
    }
    last = {id: each.last for id, each in standing.items() if each.last is not None}
    done = [cell for cell in cells if cell.id in measured]
    recorded.write(CELLS, _CELL, [_cell_row(cell, measured, last[cell.id]) for cell in done])
    recorded.write(
        STALLS, _STALL, [row for cell in done for row in _stall_rows(cell, measured[cell.id])]
    )
    facts = dict.fromkeys(
        fact for cell in cells if cell.emulated is not None for fact in cell.emulated.facts
    )
    recorded.write(FACTS, ("fact",), [(fact,) for fact in facts])
    return len(measured)


def _cell_row(
    cell: Cell, measured: Mapping[str, Breakdown], last: StudyEvent
) -> tuple[object, ...]:
    bed, (found,) = cell.emulated, make_results([cell], measured)
    assert bed is not None
    day = datetime.fromtimestamp(last.at, tz=timezone.utc).date().isoformat()
    return (
        *_key(cell),
        bed.devices,
        bed.ranks,
        bed.scale,
        bed.time_scale,
        found.step.value,
        found.step.low,
        found.step.high,
        found.samples_per_second,
        found.dollars_per_million,
        found.dollars_per_hour,
        last.seconds,
        day,
    )


def _stall_rows(cell: Cell, breakdown: Breakdown) -> Iterator[tuple[object, ...]]:
    bed = cell.emulated
    assert bed is not None
    for name, true in truth(cell, model(cell)).items():
        stall = breakdown.stall(name)
        if stall is not None:
            values = (stall.time.value, stall.time.low, stall.time.high, true)
            yield (
                *_key(cell),
                name,
                *(None if value is None else value / bed.time_scale for value in values),
            )


def _key(cell: Cell) -> tuple[object, ...]:
    return (cell.workload, cell.batch, cell.place.name, cell.nodes)


def model(cell: Cell) -> Emulation:
    """What the cell trains, unscaled."""
    bed = cell.emulated
    assert bed is not None
    assert cell.zoo is not None
    return make_model(cell.zoo, cell.batch or 1, bed.gpu, bed.precision, bed.samples_per_second)


def kept() -> tuple[Row, ...]:
    """Every cell that was kept, in the study's order."""
    stalls: dict[tuple[str, ...], dict[str, Mapping[str, str]]] = {}
    for row in recorded.rows(STALLS):
        stalls.setdefault(tuple(row[field] for field in _STALL[:4]), {})[row["stall"]] = row
    return tuple(
        Row(row, stalls[tuple(row[field] for field in _STALL[:4])]) for row in recorded.rows(CELLS)
    )


def facts() -> tuple[str, ...]:
    """What the cells rest on, in sentences."""
    return tuple(row["fact"] for row in recorded.rows(FACTS))


def days() -> str:
    """When it was run."""
    found = sorted({row["as_of"] for row in recorded.rows(CELLS)})
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"
