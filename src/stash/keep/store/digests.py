"""What is derived from one artefact, kept beside it so that nobody has to derive it again: a cache, never the truth.

A digest is two lines of JSON: the row of ``artefacts``, which a list reads, and the rows of all other tables but
blocks. One that is of another version, or that does not hold what it should, counts as missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from stash.base.records import Probe, Profile
from stash.keep.store.names import id_of
from stash.keep.store.tables import DERIVED, VERSION, TableRow, TableRows, fits

HEAD = "artefacts"
_REST = tuple(name for name in DERIVED if name != HEAD)


class Deriver(NamedTuple):
    """How rows come of an artefact and its file's name; given by whoever opens a store."""

    digest: Callable[[Profile | Probe, str, str], TableRows]
    """Of the artefact, its id and its file: rows of every table of ``DERIVED``."""
    blocks: Callable[[Profile, str], list[TableRow]]
    """Of the artefact and its id: rows of ``blocks``."""


def path_of(name: str) -> str:
    """Where the digest of the artefact called ``name`` is."""
    return f"index/digests/{name}.jsonl"


def written(name: str, rows: TableRows) -> bytes:
    """The file of a digest."""
    head = {"version": VERSION, "file": name, HEAD: rows[HEAD]}
    rest = {table: rows.get(table, []) for table in _REST}
    return "".join(
        json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in (head, rest)
    ).encode("utf-8", "backslashreplace")


def head_of(name: str, content: bytes | None) -> TableRow | None:
    """The row of ``artefacts`` in a digest; ``None`` if there is no good one."""
    first = _line(content, 0)
    if first is None or first.get("version") != VERSION or first.get("file") != name:
        return None
    rows = first.get(HEAD)
    if not isinstance(rows, list) or len(rows) != 1 or not fits(HEAD, rows[0]):
        return None
    return rows[0] if rows[0][:2] == [id_of(name), name] else None


def rows_of(name: str, content: bytes | None) -> TableRows | None:
    """The rows of all tables but blocks in a digest; ``None`` if there is no good one."""
    head, rest = head_of(name, content), _line(content, 1)
    if head is None or rest is None:
        return None
    for table in _REST:
        rows = rest.get(table)
        if not isinstance(rows, list) or not all(fits(table, row) and row[0] == head[0] for row in rows):
            return None
    return {HEAD: [head], **{table: rest[table] for table in _REST}}


def _line(content: bytes | None, number: int) -> dict[str, Any] | None:
    """A line of the file as an object; the others are not parsed."""
    if content is None:
        return None
    start = 0
    for _ in range(number):
        start = content.find(b"\n", start) + 1
        if start == 0:
            return None
    end = content.find(b"\n", start)
    try:
        found = json.loads(content[start:] if end < 0 else content[start:end])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
