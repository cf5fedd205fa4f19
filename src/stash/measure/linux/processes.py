"""Processes of this machine: those below another, those that carry a setting, which cores each has.

A tree holds whatever its processes do to their environment, a setting whoever their parent is by now. Standard
library only, because a process of the user's job looks for the others with it.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC, _CPUS = Path("/proc"), Path("/sys/devices/system/cpu")
_TICKS = os.sysconf("SC_CLK_TCK")
"""In a second."""
_FEWEST_CORES = 2
"""Of a rank that is kept to its own: on a single one it would compete with the threads that exchange for it, which made
300 small collectives a step twice as slow as typed."""


class Status(NamedTuple):
    """What the kernel says of one process."""

    parent: int
    ended: bool
    """It is a zombie: only its exit code is left."""
    code: int
    """Once it has ended: its exit code, or the number of the signal that ended it, negative."""
    ticks: int
    """On cores: its own, and those of its children that have ended."""
    age: float
    """Seconds since it was started, to a hundredth of one."""


def node_name() -> str:
    """What tells one machine from another: the launcher's own numbering, else host, boot and network namespace."""
    for variable in ("STASH_NODE", "GROUP_RANK", "SLURM_NODEID"):
        if os.environ.get(variable):
            return f"{variable}={os.environ[variable]}"
    try:
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        network = 0
    return f"{socket.gethostname()} {boot_id()} {network}"


def boot_id() -> str:
    """What the running kernel is called, which all containers of one machine share; empty where unknown."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def shared_cores() -> str | None:
    """What all threads have in common that may run on the same cores of the same machine; ``None`` where unknown."""
    cores, boot = sorted(os.sched_getaffinity(0)), boot_id()
    listed = [f"{first}-{last}" for first, last in iter_spans(cores)]
    return f"{boot[:8]} {','.join(listed)}" if boot else None


def iter_spans(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of every run of consecutive numbers."""
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        yield found[0], found[-1]


def find_by_variable(variable: str, value: str, proc: Path = _PROC) -> list[int]:
    """Numbers of the live processes that were started with ``variable=value``; what may not be read is left out."""
    return _find_word(f"{variable}={value}", "environ", proc)


def find_by_word(word: str, proc: Path = _PROC) -> list[int]:
    """Numbers of the live processes in whose command ``word`` is one."""
    return _find_word(word, "cmdline", proc)


def _find_word(word: str, file: str, proc: Path) -> list[int]:
    found = []
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (folder / file).read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def list_descendants(ancestor: int, proc: Path = _PROC) -> list[int]:
    """Numbers of the live processes below one, parents before their children; who starts or ends now may be missing.

    A few reads where the kernel lists each thread's children; else all processes are asked for their parent.
    """
    listed = (proc / f"self/task/{os.getpid()}/children").exists()
    by_parent = {} if listed else _group_by_parent(proc)
    found, ahead = list[int](), [ancestor]
    while ahead:
        parent = ahead.pop(0)
        children = _list_children(parent, proc) if listed else by_parent.get(parent, [])
        found += children
        ahead += children
    return [number for number in found if is_alive(number, proc)]


def _list_children(parent: int, proc: Path) -> list[int]:
    found = list[int]()
    with suppress(OSError):
        for thread in (proc / f"{parent}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def _group_by_parent(proc: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for folder in proc.glob("[0-9]*"):
        if (status := status_of(int(folder.name), proc)) is not None:
            found.setdefault(status.parent, []).append(int(folder.name))
    return found


def status_of(number: int, proc: Path = _PROC) -> Status | None:
    """Status of one process; ``None`` once it is gone. Its own user and root see its exit code."""
    try:
        fields = (
            (proc / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    raw = int(fields[49]) if len(fields) > 49 else 0
    code = -(raw & 0x7F) if raw & 0x7F else raw >> 8
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS
    return Status(int(fields[1]), fields[0] in "ZX", code, sum(map(int, fields[11:15])), age)


def is_alive(number: int, proc: Path = _PROC) -> bool:
    """Whether a process is there, and has not ended."""
    status = status_of(number, proc)
    return status is not None and not status.ended


def seconds_since_start() -> float:
    """How long ago this process was started."""
    own = status_of(os.getpid())
    assert own is not None
    return own.age


def pin_rank(local_rank: int, ranks: int) -> None:
    """Keep this rank to its share of the cores, in order, so that ranks on CPUs do not take them from each other.

    Hyper-threads of one core stay together. What it starts inherits them. With fewer than two cores a rank all keep all.
    """
    cores = sorted(os.sched_getaffinity(0), key=lambda number: (_first_thread(number), number))
    share = len(cores) // ranks
    if share >= _FEWEST_CORES:
        os.sched_setaffinity(0, cores[local_rank * share : (local_rank + 1) * share])


def _first_thread(number: int) -> int:
    """The first hyper-thread of the core that this one is of; itself where Linux does not say."""
    with suppress(OSError, ValueError):
        siblings = (_CPUS / f"cpu{number}/topology/thread_siblings_list").read_text()
        return int(siblings.replace("-", ",").partition(",")[0])
    return number
