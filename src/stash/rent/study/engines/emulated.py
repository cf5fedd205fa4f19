"""An instance of the catalog on this machine's testbed: its links at one scale, its devices taking published times.

The model is made by ``stash testbed model``, which reads the catalog's GPU; the buckets of its gradients shrink as
its gradients do, so that as many of them overlap with the backward pass.
"""

from __future__ import annotations

from stash.base.errors import UserError
from stash.derive.study.cells import Cell
from stash.rent.study.engines import words
from stash.rent.study.folder import StudyFolder
from stash.rent.study.submission import Submission

_BUCKET_MIB = 25
"""DistributedDataParallel's own size of a bucket."""


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    bed, own = cell.emulated, folder.cell(cell.id)
    if bed is None or cell.zoo is None:
        raise UserError(f"{cell.title}: nothing is known that could stand for it")
    model = own.path / "model.yaml"
    batch = [] if cell.batch is None else ["--batch", str(cell.batch)]
    make = [*words.OURS, "testbed", "model", cell.zoo, "--gpu", bed.gpu, "--precision", bed.precision, *batch]
    make += ["--size-scale", f"{bed.scale:.6g}"]
    make += [] if bed.samples_per_second is None else ["--speed", f"{bed.samples_per_second:.6g}"]
    run = [*words.OURS, "testbed", "run", "--nodes", str(cell.nodes), "--devices", str(bed.devices)]
    run += [] if bed.interconnect is None else ["--interconnect", f"{bed.interconnect:.0f}B/s"]
    run += [] if bed.network is None else ["--network", f"{bed.network:.0f}B/s"]
    job = ["-m", "stash.lab.testbed.train", "--model", str(model), *batch]
    job += ["--bucket-mb", f"{_BUCKET_MIB * bed.scale:.6g}"]
    run += ["--", *words.profile(cell, own.profile, devices=False), *job]
    script = (
        f"#!/bin/sh\n{words.head(cell)}\n{words.line(tuple(make))} >{words.line((str(model),))} || exit\n"
        f"exec {words.line(tuple(run))}\n"
    )
    return Submission({"cell.sh": script}, ("sh", str(own.path / "cell.sh")), words.HERE, cell.id)
