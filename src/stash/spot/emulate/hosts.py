"""Machines that a rehearsal plays on: hosts of an emulated cluster, and what runs there.

A host is known by the name of the member that it is of. What runs on it, and why it is taken away, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stash.core.errors import StashError
from stash.lab.testbed.bed import Started, Testbed

HEAD = "head"
"""The name of what no revocation takes."""
MARK = "STASH_SPOT_RUN"
"""Variable in the environment of everything that a run starts: its folder."""


class EmulatedHosts:
    """A host for the head and for every member, and spare ones for successors."""

    def __init__(self, names: Sequence[str], spares: int) -> None:
        self._hosts = {name: number for number, name in enumerate((HEAD, *names))}
        self._free = list(range(len(self._hosts), len(self._hosts) + spares))
        self.bed = Testbed(len(self._hosts) + spares, verify=False)

    def number(self, name: str) -> int:
        """Number a member's host; raises StashError if none is left, which the number of spares should rule out."""
        if name not in self._hosts:
            if not self._free:
                raise StashError(f"there is no emulated host left for {name}")
            self._hosts[name] = self._free.pop(0)
        return self._hosts[name]

    def address(self, name: str) -> str:
        """The address of a member's host, the same as before if it had one; raises StashError if none is left."""
        return self.bed.address(self.number(name))

    def shape(self, name: str, rate: float) -> None:
        """Let the link of a member's host carry so many bytes per second, each way."""
        self.bed.set_network(self.number(name), rate)

    def run(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> Started:
        """Start a command there; its output is kept."""
        return self.bed.run(command, self.number(name), variables)

    def lose(self, name: str) -> None:
        """Take the machine away without a word, and whatever runs on it."""
        self.bed.kill(self.number(name))


def last_line(text: str) -> str:
    """The last line that a program printed."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
