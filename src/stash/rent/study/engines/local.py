"""This machine: ``stash profile`` in a process of its own."""

from __future__ import annotations

from stash.derive.study.cells import Cell
from stash.rent.study.engines import words
from stash.rent.study.folder import StudyFolder
from stash.rent.study.submission import Submission


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    own = folder.cell(cell.id)
    run = words.line((*words.profile(cell, own.profile), *words.job(cell)))
    script = f"#!/bin/sh\n{words.head(cell)}\nexec {run}\n"
    return Submission({"cell.sh": script}, ("sh", str(own.path / "cell.sh")), words.HERE, cell.id)
