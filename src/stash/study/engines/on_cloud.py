"""Machines of a cloud, or pods of Kubernetes, through SkyPilot's task YAML and its ``sky`` command.

Cells that follow each other at one place and node count share a cluster: ``sky launch`` finds it there. It is taken
down after the last of them, and takes itself down when it was idle for a while, should nobody be left to do it. Knows
SkyPilot's keys (docs.skypilot.co, reference/yaml-spec and running-jobs/distributed-jobs); reads no cloud.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import yaml

from stash.catalog.machines import resources, where
from stash.core.errors import UserError
from stash.study.cells import Cell
from stash.study.engines import words
from stash.study.fields import SkyTarget
from stash.study.study_folder import StudyFolder
from stash.study.submission import Submission
from stash.study.wheel import own_wheel

_FIRST = '"$(echo "$SKYPILOT_NODE_IPS" | head -n1)":29500'
"""Where the nodes meet: the first one's address, which SkyPilot tells all of them."""
_LOST = r"(?i)preempted|has been terminated|cluster .{1,80} is not up|connection (closed|reset|timed out)"
"""What ``sky`` and ``ssh`` print when machines go away in the middle."""


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    target, own = cell.place.target, folder.cell(cell.id)
    if not isinstance(target, SkyTarget):
        raise UserError(f"{cell.title}: it is nothing that SkyPilot rents")
    cluster = _cluster(cell, folder)
    remote = f"stash-{cell.id}.stash.json"
    minutes = max(1, round(target.idle / 60))
    launch = ("sky", "launch", "--yes", "--cluster", cluster, "--idle-minutes-to-autostop", str(minutes), "--down")
    return Submission(
        files={"task.yaml": task(cell, target, folder, remote)},
        command=(*launch, str(own.path / "task.yaml")),
        lane=cell.place.name,
        lease=cluster,
        fetch=(("scp", "-q", f"{cluster}:{remote}", str(own.profile)),),
        release=(("sky", "down", "--yes", cluster),),
        check=("sky", "status", "--refresh", cluster),
        lost=_LOST,
        shared={} if target.setup is not None else own_wheel().shared,
    )


def task(cell: Cell, target: SkyTarget, folder: StudyFolder, remote: str) -> str:
    """The task's YAML: what to rent, what to install, what to run on every node."""
    found: dict[str, Any] = {"name": f"stash-{cell.id}", "num_nodes": cell.nodes}
    if cell.zoo is None:
        found["workdir"] = str(folder.work)  # the user's own job needs its files
    found["resources"] = _resources(cell, target)
    if target.setup is not None:
        found["setup"] = target.setup
    else:
        found["setup"] = own_wheel().install(folder.work if cell.zoo is None else None)
        found["file_mounts"] = own_wheel().mount(folder.path)
    found["run"] = _run(cell, remote)
    return f"{words.head(cell)}\n{yaml.safe_dump(found, sort_keys=False, width=4096)}"


def _resources(cell: Cell, target: SkyTarget) -> dict[str, Any]:
    instance = cell.place.instance
    cloud = target.cloud or (instance.cloud if instance is not None else "")
    if instance is not None:
        return resources(instance, cloud, target.region, target.spot)
    return {**where(cloud, target.region), "accelerators": target.accelerators, "use_spot": target.spot}


def _run(cell: Cell, remote: str) -> str:
    """The line for every node; those after the first write nothing."""
    probe = words.probe(cell, '"$HOME"/stash-probes', "machine", ("stash",))
    profile = words.with_probe(cell, words.profile(cell, "OUTPUT", ("stash",)))
    line = probe + profile.replace("OUTPUT", f'"$HOME/{remote}"')
    if cell.nodes > 1:
        line += f' --nnodes {cell.nodes} --node-rank "$SKYPILOT_NODE_RANK" --rdzv-endpoint {_FIRST}'
    return f"{line} {words.line(words.job(cell))}"


def _cluster(cell: Cell, folder: StudyFolder) -> str:
    """A name that says whose it is, and that no other study has; clouds take letters, digits and dashes."""
    plain = re.sub(r"[^a-z0-9]+", "-", cell.place.name.lower()).strip("-")[:20].strip("-")
    own = hashlib.sha256(f"{folder.path}\0{cell.place.name}\0{cell.nodes}".encode()).hexdigest()[:6]
    return f"stash-{plain}-{cell.nodes}-{own}"
