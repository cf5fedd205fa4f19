"""An instance of the catalog on this machine's testbed: its links scaled, its devices taking known times.

The model is made by ``stash testbed model``, which reads the catalog's GPU, once for all cells that train it on that
GPU; each cell scales it. The buckets of its gradients shrink as its gradients do, so that as many of them overlap
with the backward pass.
"""

from __future__ import annotations

import math
from pathlib import Path

from stash.core.errors import UserError
from stash.study.cells import Cell
from stash.study.emulating import BUCKET_BYTES, EmulatedCell
from stash.study.engines import words
from stash.study.study_folder import StudyFolder
from stash.study.submission import ProgramWords, Submission

_MAKE_ONCE = "[ -s {model} ] || {{ mkdir -p {folder} && {make} >{own} && mv {own} {model}; }} || exit"
"""Whole or not at all, should something end it."""


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    bed, own = cell.emulated, folder.cell(cell.id)
    if bed is None or cell.zoo is None:
        raise UserError(f"{cell.title}: nothing is known that could stand for it")
    batch = () if cell.batch is None else ("--batch", str(cell.batch))
    made = f"{cell.zoo}-{cell.batch or 'own'}-{bed.gpu}-{bed.precision}-{bed.samples_per_second:.6g}.yaml"
    model = folder.models / made.replace(" ", "-").replace("/", "-")
    make = (*words.OURS, "testbed", "model", cell.zoo, "--gpu", bed.gpu, "--precision", bed.precision, *batch)
    make += ("--speed", f"{bed.samples_per_second:.6g}")
    parts = {"model": model, "folder": folder.models, "own": own.path / "model.yaml"}
    quoted = {name: words.line((str(path),)) for name, path in parts.items()}
    first = _MAKE_ONCE.format(make=words.line(make), **quoted)
    run = (*_testbed(cell, bed), "--", *words.profile(cell, own.profile, devices=False), *_job(bed, model, batch))
    script = f"#!/bin/sh\n{words.head(cell)}\n{first}\nexec {words.line(run)}\n"
    return Submission({"cell.sh": script}, ("sh", str(own.path / "cell.sh")), words.HERE, cell.id)


def _testbed(cell: Cell, bed: EmulatedCell) -> ProgramWords:
    found: ProgramWords = (*words.OURS, "testbed", "run", "--nodes", str(cell.nodes), "--devices", str(bed.ranks))
    found += () if bed.shaped is None else ("--interconnect", f"{math.floor(bed.shaped)}B/s")
    return found + (() if bed.network is None else ("--network", f"{bed.network:.0f}B/s"))


def _job(bed: EmulatedCell, model: Path, batch: ProgramWords) -> ProgramWords:
    scales = ("--size-scale", f"{bed.scale:.6g}", "--time-scale", f"{bed.time_scale:.6g}")
    buckets = ("--bucket-mb", f"{BUCKET_BYTES / 2**20 * bed.scale:.6g}")
    return ("-m", "stash.lab.testbed.train_emulated", "--model", str(model), *batch, *scales, *buckets)
