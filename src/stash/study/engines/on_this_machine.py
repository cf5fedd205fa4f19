"""This machine: ``stash profile`` in a process of its own."""

from __future__ import annotations

from stash.study.cells import Cell
from stash.study.engines import words
from stash.study.study_folder import StudyFolder
from stash.study.submission import Submission


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    own = folder.cell(cell.id)
    probe = words.probe(cell, words.line((str(folder.probes),)), "$(hostname)")
    run = f"{words.with_probe(cell, words.profile(cell, own.profile))} {words.line(words.job(cell))}"
    script = f"#!/bin/sh\n{words.head(cell)}\n{probe}exec {run}\n"
    return Submission({"cell.sh": script}, ("sh", str(own.path / "cell.sh")), words.HERE, cell.id)
