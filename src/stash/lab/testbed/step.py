"""One command of a testbed's set-up, as data, and the command that takes back what it leaves behind.

What makes steps (``wiring``, ``cgroups``) and what runs them (``execute``) meet here. Knows no namespace, no link.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

Argv = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One command and, if it leaves something behind, the command that removes it."""

    argv: Argv
    undo: Argv | None = None

    def describe(self) -> str:
        """As one could paste it into a shell."""
        return shlex.join(self.argv)


def write(text: str, file: str) -> Argv:
    """The command that writes ``text`` into a file of the kernel's, in one piece and without a line's end."""
    return ("sh", "-c", 'printf %s "$1" > "$2"', "stash-tb", text, file)
