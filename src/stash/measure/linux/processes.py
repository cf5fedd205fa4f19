"""Processes of this machine, found by a setting that they inherited: whoever their parent is by now.

Standard library only, because a process of the user's job looks for the others with it.
"""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def carrying(variable: str, value: str, proc: Path = _PROC) -> list[int]:
    """Numbers of the live processes that were started with ``variable=value``; what may not be read is left out."""
    setting = f"{variable}={value}".encode()
    return [int(folder.name) for folder in proc.glob("[0-9]*") if setting in _environment(folder)]


def _environment(folder: Path) -> list[bytes]:
    """The settings a process was started with; none of one that has ended and is not yet forgotten."""
    try:
        return (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
