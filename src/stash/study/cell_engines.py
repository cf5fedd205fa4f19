"""The engines of a study: how a cell is done on this machine, its testbed, Slurm or a cloud.

An engine only describes: the files and commands of a ``Submission``, around one ``stash profile`` with the study's
settings. It starts nothing and asks no service; ``controller`` does all of them alike.
"""

from __future__ import annotations

import hashlib
import math
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stash.api import AUTOSTOP, plain_name, sky_place, sky_resources, sky_task_yaml
from stash.core.ladder import NAMES
from stash.core.version import __version__, install_requirement
from stash.study.backend import ProgramWords, Submission
from stash.study.cells import Cell
from stash.study.emulating import BUCKET_BYTES
from stash.study.status import CELL_START
from stash.study.study_file import SkyTarget, SlurmTarget
from stash.study.study_folder import StudyFolder

_OURS = (sys.executable, "-m", "stash")
"""This very Stash, wherever this machine's folders are seen."""


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    """How a cell is done by the engine of its place."""
    return ENGINES[cell.place.target.engine](cell, folder)


def _profile(cell: Cell, output: Path | str, stash: ProgramWords = _OURS) -> ProgramWords:
    """``stash profile`` with the study's settings, up to the job."""
    how = cell.settings
    words = [
        *stash,
        "profile",
        "-o",
        str(output),
        "--noise",
        f"{how.noise:g}",
        "--budget",
        f"{how.budget:g}",
    ]
    words += ["--start-timeout", f"{how.patience:g}"]
    if tuple(how.rungs) != NAMES:
        words += ["--rungs", ",".join(how.rungs)]
    if cell.emulated is None and cell.place.target.devices is not None:
        words += ["--nproc-per-node", str(cell.place.target.devices)]
    return tuple(words)


def _job(cell: Cell) -> str:
    """What is profiled, as ``stash profile`` takes it."""
    if cell.zoo is None:
        return shlex.join(cell.words)
    data = () if cell.data is None else (cell.data,)
    return shlex.join(("--workload", cell.zoo, "--batch", str(cell.batch), *data))


def _head(cell: Cell) -> str:
    """The comment on top of a cell's script."""
    return f"# {cell.title}, repeat {cell.repeat + 1}"


def _shell_submission(cell: Cell, folder: StudyFolder, lines: str) -> Submission:
    """A script that runs in a process of its own."""
    script = f"#!/bin/sh\n{_head(cell)}\n{lines}\n"
    return Submission(
        {"cell.sh": script}, ("sh", str(folder.cell(cell.id).path / "cell.sh")), cell.id
    )


def _local_submission(cell: Cell, folder: StudyFolder) -> Submission:
    """``stash profile`` on this machine."""
    return _shell_submission(
        cell,
        folder,
        f"exec {shlex.join(_profile(cell, folder.cell(cell.id).profile))} {_job(cell)}",
    )


def _emulated_submission(cell: Cell, folder: StudyFolder) -> Submission:
    """An instance of the catalog on this machine's testbed: its links scaled, its devices taking known times.

    The model is made once for all cells that train it on that GPU (``emulated_model``); each cell scales it. The
    buckets of its gradients shrink as its gradients do, so that as many of them overlap with the backward pass.
    """
    bed = cell.emulated
    batch = str(cell.batch)
    assert bed is not None
    assert cell.zoo is not None
    made = (cell.zoo, batch, bed.gpu, bed.precision, f"{bed.samples_per_second:.6g}")
    model = folder.models / f"{'-'.join((*made, __version__))}.yaml".replace(" ", "-").replace(
        "/", "-"
    )
    make = (sys.executable, "-m", "stash.study.emulated_model", str(model), *made)
    testbed: ProgramWords = (
        *_OURS,
        "lab",
        "testbed",
        "run",
        "--nodes",
        str(cell.nodes),
        "--devices",
        str(bed.ranks),
    )
    testbed += (
        () if bed.shaping_limit is None else ("--loopback", f"{math.floor(bed.shaping_limit)}B/s")
    )
    testbed += () if bed.network is None else ("--network", f"{bed.network:.0f}B/s")
    job: ProgramWords = (
        "-m",
        "stash.lab.testbed.train_emulated",
        "--model",
        str(model),
        "--batch",
        batch,
    )
    job += ("--size-scale", f"{bed.scale:.6g}", "--time-scale", f"{bed.time_scale:.6g}")
    job += ("--bucket-mb", f"{BUCKET_BYTES / 2**20 * bed.scale:.6g}")
    run = (*testbed, "--", *_profile(cell, folder.cell(cell.id).profile), *job)
    return _shell_submission(cell, folder, f"{shlex.join(make)} || exit\nexec {shlex.join(run)}")


_ROOM = 3.0
"""The limit of a job's time, in times of what the cell is estimated to take."""
_AGAIN = "# Slurm starts it again"
SLURM_LOST = rf"(?s)DUE TO (PREEMPTION|NODE FAILURE)(?!.*{_AGAIN})"
"""As slurmstepd prints it into a job's output, and nothing came after it."""


def _slurm_submission(cell: Cell, folder: StudyFolder) -> Submission:
    """A partition: one job a cell, through ``sbatch --wait``, whose end and exit code are the job's.

    The study's folder has to be seen by the nodes. ``stash profile`` finds nodes and ranks by ``srun``'s variables. A
    job that is preempted is requeued by Slurm where the partition allows it, and then the command just waits longer.
    """
    target = cell.place.target
    own = folder.cell(cell.id)
    assert isinstance(target, SlurmTarget)
    # The same cell of another study, or of somebody else, is another job: scancel and squeue go by the name.
    name = f"stash-{cell.id}-{hashlib.sha256(str(folder.path).encode()).hexdigest()[:6]}"
    options = {
        "job-name": name,
        "partition": target.partition,
        "nodes": str(cell.nodes),
        "ntasks-per-node": "1",
        "time": str(math.ceil((target.time or _ROOM * (CELL_START + cell.settings.budget)) / 60)),
        "chdir": str(folder.work),
        "output": str(own.log),
        "open-mode": "append",
    }
    asked = [f"#SBATCH --{option}={value}" for option, value in options.items()]
    asked += ["#SBATCH --requeue", *(f"#SBATCH {option}" for option in target.options)]
    stash = ("stash",) if target.setup else _OURS
    line = (
        f"srun --kill-on-bad-exit=1 {shlex.join(_profile(cell, own.profile, stash))} {_job(cell)}"
    )
    setup = [target.setup.rstrip()] if target.setup else []
    again = f'[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || echo {shlex.quote(_AGAIN)}'
    script = "\n".join(["#!/bin/bash", _head(cell), *asked, again, *setup, line, ""])
    return Submission(
        files={"cell.sbatch": script},
        command=("sbatch", "--wait", str(own.path / "cell.sbatch")),
        lease=name,
        rented_from="slurm",
        lost=SLURM_LOST,
    )


_FIRST = '"$(echo "$SKYPILOT_NODE_IPS" | head -n1)":29500'
"""Where the nodes meet: the first one's address, which all of them have from SkyPilot."""
_SKY_LOST = r"(?i)preempted|has been terminated|cluster .{1,80} is not up|connection (closed|reset|timed out)"
"""What ``sky`` and ``ssh`` print when machines go away in the middle."""


def _sky_submission(cell: Cell, folder: StudyFolder) -> Submission:
    """Machines of a cloud, or pods of Kubernetes, through SkyPilot's task YAML and its ``sky`` command.

    Cells that follow each other at one place and node count share a cluster: ``sky launch`` finds it there. It is
    taken down after the last of them, and takes itself down when it was idle for a while, should no one be left to do
    it. The keys are SkyPilot's (docs.skypilot.co, reference/yaml-spec and running-jobs/distributed-jobs).
    """
    target = cell.place.target
    own = folder.cell(cell.id)
    assert isinstance(target, SkyTarget)
    # The name says whose it is, and no other study has it; clouds take letters, digits and dashes.
    plain = plain_name(cell.place.name, 20)
    whose = hashlib.sha256(f"{folder.path}\0{cell.place.name}\0{cell.nodes}".encode()).hexdigest()[
        :6
    ]
    cluster = f"stash-{plain}-{cell.nodes}-{whose}"
    remote = f"stash-{cell.id}.stash.json"
    minutes = str(AUTOSTOP["idle_minutes"])
    launch = (
        "sky",
        "launch",
        "--yes",
        "--cluster",
        cluster,
        "--idle-minutes-to-autostop",
        minutes,
        "--down",
    )
    return Submission(
        files={"task.yaml": _task(cell, target, folder, remote)},
        command=(*launch, str(own.path / "task.yaml")),
        lease=cluster,
        fetch=("scp", "-q", f"{cluster}:{remote}", str(own.profile)),
        rented_from="sky",
        lost=_SKY_LOST,
    )


def _task(cell: Cell, target: SkyTarget, folder: StudyFolder, remote: str) -> str:
    """The task's YAML: what to rent, what to install, what to run on every node."""
    found: dict[str, Any] = {"name": f"stash-{cell.id}", "num_nodes": cell.nodes}
    if cell.zoo is None:
        found["workdir"] = str(folder.work)  # the user's own job needs its files
    instance = cell.place.instance
    cloud = target.cloud or (instance.cloud if instance is not None else "")
    if instance is not None:
        found["resources"] = sky_resources(instance, cloud, target.region, target.spot)
    else:
        asked = {"accelerators": target.accelerators, "use_spot": target.spot}
        found["resources"] = sky_place(cloud, target.region) | asked
    found["setup"] = _install(cell, folder) if target.setup is None else target.setup
    # Nodes after the first write nothing.
    line = shlex.join(_profile(cell, "OUTPUT", ("stash",))).replace("OUTPUT", f'"$HOME/{remote}"')
    if cell.nodes > 1:
        line += f' --nnodes {cell.nodes} --node-rank "$SKYPILOT_NODE_RANK" --rdzv-endpoint {_FIRST}'
    found["run"] = f"{line} {_job(cell)}"
    return f"{_head(cell)}\n{sky_task_yaml(found)}"


def _install(cell: Cell, folder: StudyFolder) -> str:
    """Install this version of Stash beside what the job needs."""
    if cell.zoo is not None:
        return shlex.join(("pip", "install", install_requirement("zoo")))
    needed = ("-r", "requirements.txt") if (folder.work / "requirements.txt").is_file() else ()
    return shlex.join(("pip", "install", install_requirement(), "torch", *needed))


ENGINES: dict[str, Callable[[Cell, StudyFolder], Submission]] = {
    "local": _local_submission,
    "emulated": _emulated_submission,
    "slurm": _slurm_submission,
    "sky": _sky_submission,
}
"""By what a study's targets call them."""
