"""A partition of Slurm: one job a cell, through ``sbatch --wait``, whose end and exit code are the job's.

The study's folder has to be seen by the nodes. ``stash profile`` finds its nodes and ranks by what ``srun`` tells it.
A job that is preempted is requeued by Slurm where the partition allows it, and then the command just waits longer.
One that asks for more than a partition or a quality of service allows would wait for ever, and is not let.
"""

from __future__ import annotations

import math

from stash.core.errors import UserError
from stash.study.cells import Cell
from stash.study.engines import words
from stash.study.fields import SlurmTarget
from stash.study.study_folder import StudyFolder
from stash.study.submission import Submission

_ROOM = 3.0
"""The limit of a job's time, in times of what the cell is estimated to take."""
_AGAIN = "# Slurm starts it again"
LOST = rf"(?s)DUE TO (PREEMPTION|NODE FAILURE)(?!.*{_AGAIN})"
"""As slurmstepd prints it into a job's output, and nothing came after it."""
HOPELESS = (
    r"(?m)^\S+ PENDING \(?(Partition(?:TimeLimit|NodeLimit|Config)|BadConstraints|Invalid(?:QOS|Account)|JobHeld\w+"
    r"|(?:QOS|Assoc)\w*PerJob\w*|(?:QOS|Assoc)MaxWall\w*|launch failed requeued held)"
)
"""Reasons of ``squeue`` that time does not heal (slurm.schedmd.com/job_reason_codes.html)."""


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    target, own = cell.place.target, folder.cell(cell.id)
    if not isinstance(target, SlurmTarget):
        raise UserError(f"{cell.title}: it is no partition of Slurm")
    name = f"stash-{cell.id}"
    estimate = cell.settings.start + cell.settings.budget
    minutes = math.ceil((target.time or _ROOM * estimate) / 60)
    options = {
        "job-name": name,
        "partition": target.partition,
        "constraint": target.constraint,
        "qos": target.qos,
        "account": target.account,
        "nodes": str(cell.nodes),
        "ntasks-per-node": "1",
        "gpus-per-node": None if target.gpus is None else str(target.gpus),
        "time": str(minutes),
        "chdir": str(folder.work),
        "output": str(own.log),
        "open-mode": "append",
    }
    asked = [f"#SBATCH --{option}={value}" for option, value in options.items() if value is not None]
    asked += ["#SBATCH --requeue", *(f"#SBATCH {option}" for option in target.options)]
    stash = ("stash",) if target.setup else words.OURS
    profile = words.with_probe(cell, words.profile(cell, own.profile, stash))
    part = f"{words.probe(cell, words.line((str(folder.probes),)), '$(hostname)', stash)}{profile} "
    part += words.line(words.job(cell))
    run = ("srun", "--kill-on-bad-exit=1")
    line = f"{words.line(run)} {words.line(('sh', '-c', part)) if cell.settings.probe else part}"
    setup = [target.setup.rstrip()] if target.setup else []
    again = f'[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || echo {words.line((_AGAIN,))}'
    script = "\n".join(["#!/bin/bash", words.head(cell), *asked, again, *setup, line, ""])
    return Submission(
        files={"cell.sbatch": script},
        command=("sbatch", "--wait", str(own.path / "cell.sbatch")),
        lane=f"{cell.place.name} {int(cell.id, 16) % target.at_once}",
        lease=name,
        release=(("scancel", f"--name={name}"),),
        check=("squeue", "--noheader", "--format=%j %T %r", f"--name={name}"),
        hopeless=HOPELESS,
        lost=LOST,
    )
