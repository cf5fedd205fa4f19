"""The engines of a study, by what its targets call them."""

from __future__ import annotations

from stash.study.cells import Cell
from stash.study.engines import on_cloud, on_emulated, on_hosts, on_slurm, on_this_machine
from stash.study.study_folder import StudyFolder
from stash.study.submission import StudyEngine, Submission

ENGINES: dict[str, StudyEngine] = {
    "local": on_this_machine.describe,
    "emulated": on_emulated.describe,
    "slurm": on_slurm.describe,
    "hosts": on_hosts.describe,
    "sky": on_cloud.describe,
}


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    """The submission of a cell by the engine of its place."""
    return ENGINES[cell.place.target.engine](cell, folder)
