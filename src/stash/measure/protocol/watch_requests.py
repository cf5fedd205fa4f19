"""What a run's watchers ask of its ranks: a file beside the rings; how many there were is counted in each ring.

Standard library only, because ranks read it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "request.json"


@dataclass(frozen=True)
class TraceRequest:
    """Steps to be traced."""

    steps: int
    ranks: tuple[int, ...]
    """None: all."""
    folder: str
    """Where traces go; it is made."""


@dataclass(frozen=True)
class WatchRequest:
    """What watchers want of ranks; a later one replaces an earlier one."""

    number: int
    paused: bool = False
    trace: TraceRequest | None = None

    def write(self, folder: Path) -> None:
        draft = folder / f"{FILE}.new"
        draft.write_text(json.dumps(asdict(self)))
        draft.rename(folder / FILE)

    @classmethod
    def read(cls, folder: Path) -> WatchRequest:
        """Raises OSError, ValueError, TypeError."""
        return cls.made(json.loads((folder / FILE).read_text()))

    @classmethod
    def made(cls, row: dict[str, Any]) -> WatchRequest:
        trace = row.get("trace")
        made = None if trace is None else TraceRequest(**{**trace, "ranks": tuple(trace["ranks"])})
        return cls(int(row["number"]), bool(row["paused"]), made)
