"""How a profiled job is started on machines that are yet to be rented: its own command, for their number and devices.

A script or module gets torchrun; a torchrun of the job's own keeps its options but those that name nodes and ranks,
and so does ``accelerate launch``. Any other launcher is left as it was typed, with a note of what is to be done.
Knows shell words and nothing of who rents.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_PYTHON = re.compile(r"(.*/)?python[\d.]*")
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_WHERE_RANKS_ARE = frozenset((
    "nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "local-addr",
    "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf",
    "num-machines", "num-processes", "machine-rank", "main-process-ip", "main-process-port",
))  # fmt: skip
"""Options of torchrun and accelerate that say how many ranks there are and where they meet."""
_FLAGS = frozenset(("standalone", "multi-gpu", "use-env"))
"""Of those, the ones without a value."""


@dataclass(frozen=True)
class Meeting:
    """Shell words for what each node finds out of itself: numbers, and where rank 0 listens."""

    nodes: str
    node: str
    first_address: str
    devices: str
    port: int = 29_500


@dataclass(frozen=True)
class Relaunch:
    """A line of shell for every node, and what a person has to know or do before it is run."""

    line: str
    notes: tuple[str, ...] = ()


def relaunch(command: Sequence[str], nodes: int, devices: int, meeting: Meeting) -> Relaunch:
    """``command`` as it was profiled, on ``nodes`` machines with ``devices`` ranks each."""
    words = list(command)
    if not words:
        return Relaunch("", ("the profile does not hold the job's command: write it into run",))
    launcher, job = _split(words)
    if launcher is None:
        note = f"`{launcher_name(words)}` starts the job, and how it is told of {nodes} machines is its own affair"
        told = (f"{note}: edit run",) if nodes > 1 else (f"{note}: look at run",)
        return Relaunch(shlex.join(words), told)
    if not launcher and nodes * devices == 1:
        return Relaunch(shlex.join(["python", *job]))
    if launcher[:2] == ["accelerate", "launch"]:
        options = _accelerate(nodes, devices, meeting)
        return Relaunch(_lines(["accelerate launch", *options, *_quoted(_kept(launcher[2:])), shlex.join(job)]))
    # Without the dashes torchrun takes the script's --log or --max for abbreviations of its own options.
    dashed = ["-m", "--", *job[1:]] if job[0] in ("-m", "--module") else ["--", *job]
    kept = _quoted(_kept(launcher[1:]))
    return Relaunch(_lines(["torchrun", *_torchrun(meeting), *kept, shlex.join(dashed)]))


def launcher_name(words: Sequence[str]) -> str:
    """What starts the job, as a person would name it: ``deepspeed``, ``bash run.sh``."""
    return shlex.join(words[:2] if words[0] in ("bash", "sh", "sudo", "env") else words[:1])


def _split(words: list[str]) -> tuple[list[str] | None, list[str]]:
    """The launcher's words (none where Python starts the job, ``None`` where it is another) and the job's."""
    if words[0] == "-m" or words[0].endswith(".py"):
        return [], words
    python = _PYTHON.fullmatch(words[0]) is not None
    if python and words[1:2] == ["-m"] and words[2:3] and words[2] in _TORCHRUN_MODULES:
        return _at_the_job(["torchrun", *words[3:]])
    if words[0].rpartition("/")[2] == "torchrun":
        return _at_the_job(["torchrun", *words[1:]])
    if words[0].rpartition("/")[2] == "accelerate" and words[1:2] == ["launch"]:
        return _at_the_job(["accelerate", *words[1:]])
    if python:
        rest = [word for word in words[1:] if word != "-u"] if words[1:2] == ["-u"] else words[1:]
        if rest and (rest[0] == "-m" or rest[0].endswith(".py")):
            return [], rest
    return None, []


def _at_the_job(words: list[str]) -> tuple[list[str] | None, list[str]]:
    """Cut where the launcher's options end: at ``--``, ``-m`` or a script."""
    for number, word in enumerate(words):
        if word == "--":
            return words[:number], words[number + 1 :]
        if word in ("-m", "--module") or word.endswith(".py"):
            return words[:number], words[number:]
    return None, []


def _kept(options: Sequence[str]) -> list[str]:
    """A launcher's options without those that say where ranks are."""
    kept, skip = [], False
    for word in options:
        name, equals, _ = word.lstrip("-").replace("_", "-").partition("=")
        if skip and not word.startswith("-"):
            skip = False
            continue
        skip = False
        if word.startswith("--") and name in _FLAGS:
            continue
        if word.startswith("--") and name in _WHERE_RANKS_ARE:
            skip = not equals
            continue
        kept.append(word)
    return kept


def _torchrun(meeting: Meeting) -> list[str]:
    return [
        f"--nnodes={meeting.nodes}",
        f"--nproc-per-node={meeting.devices}",
        f"--node-rank={meeting.node}",
        f"--master-addr={meeting.first_address}",
        f"--master-port={meeting.port}",
    ]


def _accelerate(nodes: int, devices: int, meeting: Meeting) -> list[str]:
    return [
        *(["--multi_gpu"] if nodes * devices > 1 else []),
        f"--num_machines={meeting.nodes}",
        f"--num_processes={nodes * devices}",
        f"--machine_rank={meeting.node}",
        f"--main_process_ip={meeting.first_address}",
        f"--main_process_port={meeting.port}",
    ]


def _quoted(words: Sequence[str]) -> list[str]:
    return [shlex.quote(word) for word in words]


def _lines(words: Sequence[str]) -> str:
    """One command over several lines, indented below its first word."""
    return " \\\n  ".join(words)
