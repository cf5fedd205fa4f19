"""Names of everything a testbed makes: a prefix, and the process that owns it.

A name says which process made a thing, when that process started, and in which PID namespace its number is one: so a
leftover is told from a testbed in use without any file that could be lost or lie. Of another namespace's processes
(a container's) nothing can be told. Knows nothing of what carries the names.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

PREFIX = "stash-tb-"
MARK = "STASH_TESTBED"
"""Variable in the environment of everything run on a testbed: the name of its host."""
_NAME = re.compile(r"^stash-tb-(\d+)-([0-9a-f]+)-([0-9a-f]+)-(\d+)-(?:n\d+|sw)$")
_serials = itertools.count()


@dataclass(frozen=True)
class Owner:
    """A process (id, and start in clock ticks since boot) and the how-manieth testbed it is of that process."""

    pid: int
    start: int
    space: int
    """The PID namespace of its id, as the kernel numbers them."""
    serial: int

    @property
    def token(self) -> str:
        """What all names of this testbed begin with."""
        return f"{PREFIX}{self.pid}-{self.start:x}-{self.space:x}-{self.serial}"

    def host(self, node: int) -> str:
        """Name of a node's namespace and control groups."""
        return f"{self.token}-n{node}"

    @property
    def switch(self) -> str:
        """Name of the namespace that holds the bridge."""
        return f"{self.token}-sw"

    def alive(self) -> bool:
        """Whether that very process still runs; a zombie, or another process with its number, is not it."""
        return started(self.pid) == self.start


def next_owner() -> Owner:
    """This process, as the owner of one more testbed."""
    return Owner(os.getpid(), started(os.getpid()) or 0, _own_space(), next(_serials))


def owner_of(name: str) -> Owner | None:
    """Who made the thing of that name; None if it is not named as a testbed names things."""
    match = _NAME.match(name)
    return Owner(int(match[1]), int(match[2], 16), int(match[3], 16), int(match[4])) if match else None


def abandoned(name: str) -> bool:
    """Whether the name is a testbed's whose process is gone, as far as that can be seen from here."""
    owner = owner_of(name)
    return owner is not None and owner.space == _own_space() and not owner.alive()


def out_of_sight(name: str) -> bool:
    """Whether the name is a testbed's of another PID namespace, where alone its process can be seen."""
    owner = owner_of(name)
    return owner is not None and owner.space != _own_space()


def _own_space() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is none or only its zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything, ")" included
    return None if fields[0] in "ZX" else int(fields[19])
