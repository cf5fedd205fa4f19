"""A hosts file, as MPI, pdsh and scripts around torchrun have them: a host a line, the first one where all meet.

What follows a host on its line (``slots=8``) and what follows ``#`` is not looked at. Asks no host anything.
"""

from __future__ import annotations

import re
from pathlib import Path

from stash.base.errors import UserError
from stash.base.files import read_up_to

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9@._-]*")
"""A name or an address, ``user@`` before it; nothing that a shell or ``ssh`` would read otherwise."""
_MOST = 2**20
"""Characters."""


def read(path: Path) -> tuple[str, ...]:
    """The hosts in order; raises UserError for a file that cannot be read, and for what is no host with its line."""
    try:
        content = read_up_to(path, _MOST)
    except OSError as error:
        raise UserError(f"cannot read the hosts file {path}: {error.strerror or error}") from error
    if len(content) > _MOST:
        raise UserError(f"the hosts file {path} is larger than {_MOST // 2**20} MiB; write one host a line")
    found: dict[str, int] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if not _HOST.fullmatch(words[0]):
            raise UserError(f"{path} line {number}: {words[0]!r} is no host; write a name or an address")
        if words[0] in found:
            raise UserError(f"{path} line {number}: {words[0]} is in line {found[words[0]]} already")
        found[words[0]] = number
    if not found:
        raise UserError(f"{path} names no host; write one a line")
    return tuple(found)


def address(host: str) -> str:
    """Where the others find it."""
    return host.rpartition("@")[2]
