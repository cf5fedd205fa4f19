"""What is asked of a testbed, the names of all that it makes, and one command of its set-up, as data."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from stash.core.errors import UserError
from stash.core.units import parse_rate

# A name says which process made a thing, when that process started, and in which PID namespace its number is one:
# so a leftover is told from a testbed in use without any file that could be lost or lie.

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
        return start_ticks(self.pid) == self.start


def next_owner() -> Owner:
    """This process, as the owner of one more testbed."""
    return Owner(os.getpid(), start_ticks(os.getpid()) or 0, _own_space(), next(_serials))


def owner_of(name: str) -> Owner | None:
    """Who made the thing of that name; None if it is not named as a testbed names things."""
    match = _NAME.match(name)
    return (
        Owner(int(match[1]), int(match[2], 16), int(match[3], 16), int(match[4])) if match else None
    )


def is_abandoned(name: str) -> bool:
    """Whether the name is a testbed's whose process is gone, as far as that can be seen from here."""
    owner = owner_of(name)
    return owner is not None and owner.space == _own_space() and not owner.alive()


def _own_space() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is none or only its zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything, ")" included
    return None if fields[0] in "ZX" else int(fields[19])


Argv = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One command and, if it leaves something behind, the command that removes it."""

    argv: Argv
    undo: Argv | None = None

    def describe(self) -> str:
        """The command as it could be pasted into a shell."""
        return shlex.join(self.argv)


def write_command(text: str, file: str) -> Argv:
    """The command that writes ``text`` into a file of the kernel's, in one piece and without a line's end."""
    return ("sh", "-c", 'printf %s "$1" > "$2"', "stash-tb", text, file)


MAX_NODES = 64
Wish = str | float | None


@dataclass(frozen=True)
class HostSpec:
    """One emulated host. Rates in bytes per second; None means not limited."""

    network: float | None = None
    """Its uplink, each direction by itself."""
    interconnect: float | None = None
    """Its loopback: one medium that all its ranks share, both directions together (as a PCIe switch)."""
    disk: float | None = None
    """Reads from the block device."""


NAMES: tuple[str, ...] = tuple(field.name for field in fields(HostSpec))


@dataclass(frozen=True)
class Topology:
    """All hosts, and how many ranks each is meant to run."""

    hosts: tuple[HostSpec, ...]
    devices: int = 1


def make_topology(
    nodes: int,
    devices: int = 1,
    *,
    overrides: Mapping[int, Mapping[str, Wish]] | None = None,
    **wishes: Wish,
) -> Topology:
    """``nodes`` hosts alike but for ``overrides`` (node: {"network": "100mbit"}); raises UserError."""
    if not 1 <= nodes <= MAX_NODES:
        raise UserError(f"{nodes} nodes: a testbed has 1 to {MAX_NODES}")
    if devices < 1:
        raise UserError(f"{devices} devices: every node needs at least one")
    hosts = [_host(HostSpec(), wishes)] * nodes
    for node, own in (overrides or {}).items():
        if not 0 <= node < nodes:
            raise UserError(
                f"there is no node {node} to be different: the nodes are 0 to {nodes - 1}"
            )
        hosts[node] = _host(hosts[node], own)
    return Topology(tuple(hosts), devices)


def _host(base: HostSpec, wishes: Mapping[str, Wish]) -> HostSpec:
    for name in wishes:
        if name not in NAMES:
            raise UserError(f"a node has no {name!r}; it has {', '.join(NAMES)}")
    return replace(base, **{name: _number(name, value) for name, value in wishes.items()})


def _number(name: str, value: Wish) -> float | None:
    if value is None:
        return None
    number = parse_rate(value) if isinstance(value, str) else float(value)
    if not 0 < number < float("inf"):
        raise UserError(f"{name} {value}: it must be more than 0")
    return number
