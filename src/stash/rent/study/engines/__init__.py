"""The engines of a study, by what its targets call them."""

from __future__ import annotations

from stash.derive.study.cells import Cell
from stash.rent.study.engines import emulated, hosts, local, sky, slurm
from stash.rent.study.folder import StudyFolder
from stash.rent.study.submission import StudyEngine, Submission

ENGINES: dict[str, StudyEngine] = {
    "local": local.describe,
    "emulated": emulated.describe,
    "slurm": slurm.describe,
    "hosts": hosts.describe,
    "sky": sky.describe,
}


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    """The submission of a cell by the engine of its place."""
    return ENGINES[cell.place.target.engine](cell, folder)
