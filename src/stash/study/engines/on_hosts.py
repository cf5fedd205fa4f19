"""Machines that a hosts file names: ``stash profile`` on each of them through ``ssh``, or whatever else reaches them.

They share the study's folder, as machines behind Slurm do, and need no daemon. The first host is where all meet, and
writes the profile. Each node's part ends when its input does, so none outlives the connection that started it.
"""

from __future__ import annotations

import shlex
import sys

from stash.core.errors import UserError
from stash.study.cells import Cell
from stash.study.engines import words
from stash.study.fields import HostsTarget
from stash.study.study_file import address
from stash.study.study_folder import StudyFolder
from stash.study.submission import Submission

LOST = (
    r"(?i)connection to \S+ closed|client_loop: send disconnect|connection reset by|timeout, server .{1,80} not resp"
)
"""What ``ssh`` prints when a machine goes away in the middle."""
_PART = """#!/bin/sh
{head}
# One node's part: $1 is its number.
cd {work} || exit
{setup}{probe}exec 3<&0
{profile} --node-rank "$1" {job} </dev/null 3<&- &
profile=$!
{{ cat; kill -TERM "$profile"; }} <&3 >/dev/null 2>&1 3<&- &
watch=$!
exec 3<&-
wait "$profile"
code=$?
kill "$watch" 2>/dev/null
exit "$code"
"""


def describe(cell: Cell, folder: StudyFolder) -> Submission:
    target, own = cell.place.target, folder.cell(cell.id)
    if not isinstance(target, HostsTarget):
        raise UserError(f"{cell.title}: it is no hosts file")
    hosts = cell.place.hosts[: cell.nodes]
    endpoint = f"{address(hosts[0])}:{_port(cell)}"
    stash = ("stash",) if target.setup else words.OURS
    several = ("--nnodes", str(cell.nodes), "--rdzv-endpoint", endpoint)
    part = _PART.format(
        head=words.head(cell),
        work=words.line((str(folder.work),)),
        setup=f"{target.setup.rstrip()}\n" if target.setup else "",
        probe=words.probe(cell, words.line((str(folder.probes),)), "$(hostname)", stash),
        profile=words.with_probe(cell, (*words.profile(cell, own.profile, stash), *several)),
        job=words.line(words.job(cell)),
    )
    script = str(own.path / "cell.sh")
    each = [_reached(target, host, ("sh", script, str(number))) for number, host in enumerate(hosts)]
    return Submission(
        files={"cell.sh": part},
        command=(sys.executable, "-m", "stash.study.run_together", *each),
        lane=cell.place.name,
        lease=cell.id,
        lost=LOST,
    )


def _reached(target: HostsTarget, host: str, command: tuple[str, ...]) -> str:
    """The line of shell that has ``command`` done there: one word after the launcher's own, as ``ssh`` takes it."""
    return shlex.join((*(word.replace("{host}", host) for word in shlex.split(target.run)), shlex.join(command)))


def _port(cell: Cell) -> int:
    """Of its own for every cell: one that has just ended may still hold its port."""
    return 20_000 + int(cell.id, 16) % 10_000
