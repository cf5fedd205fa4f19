"""A server's checkpoints on disk: whole or not there, checked when read, the one before kept in case.

A file is a line of JSON (what is in it, how many bytes, their SHA-256) and then those bytes. What they mean, the
server knows. Raises UserError for what cannot be read, OSError for what cannot be written.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stash.core.errors import UserError
from stash.core.files import opened_regular, parse_json, write_whole

FORMAT = 1
KEPT = 2
"""Of each shard: the newest, and the one before."""
_LONGEST_HEAD = 2**24


@dataclass(frozen=True)
class StoredState:
    """What a checkpoint holds, and what was wrong with newer ones."""

    path: Path
    facts: dict[str, Any]
    content: bytes
    skipped: tuple[str, ...] = ()


def shard_name(shard: int, number: int) -> str:
    return f"shard{shard}-{number:08d}.ckpt"


def save_shard(
    folder: Path, shard: int, facts: dict[str, Any], content: bytes | memoryview
) -> Path:
    """Write one more checkpoint of a shard's, then remove all but the newest two."""
    earlier = _numbers(folder, shard)
    path = folder / shard_name(shard, earlier[-1] + 1 if earlier else 0)
    head = {
        "format": FORMAT,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "facts": facts,
    }
    write_whole(path, json.dumps(head), "\n", content)
    for number in earlier[: 1 - KEPT]:
        (folder / shard_name(shard, number)).unlink(missing_ok=True)
    for half in folder.glob(f".shard{shard}-*.tmp"):  # of a server that was killed while it saved
        half.unlink(missing_ok=True)
    return path


def newest_shard(folder: Path, shard: int) -> StoredState | None:
    """The newest checkpoint that is whole; ``None`` if there is none. Raises UserError if none of several is."""
    skipped: list[str] = []
    for number in reversed(_numbers(folder, shard)):
        path = folder / shard_name(shard, number)
        try:
            found = read_shard(path)
        except UserError as error:
            skipped.append(str(error))
            continue
        return replace(
            found,
            skipped=tuple(f"{why}; the one before it, {path.name}, is used" for why in skipped),
        )
    if skipped:
        raise UserError(
            f"{skipped[0]}, and no earlier one is whole; remove {folder} to start again"
        )
    return None


def read_shard(path: Path) -> StoredState:
    """Read one shard; raises UserError if it is not whole."""
    try:
        with opened_regular(path) as file:
            line = file.readline(_LONGEST_HEAD)
            content = file.read()
        head = parse_json(line)
        made_by = int(head["format"])
        facts = head["facts"]
        whole = (
            len(content) == head["bytes"] and hashlib.sha256(content).hexdigest() == head["sha256"]
        )
    except OSError as error:
        raise UserError(
            f"the checkpoint {path} cannot be read: {error.strerror or error}"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the checkpoint {path} is damaged: it has no readable first line"
        ) from error
    if made_by > FORMAT:
        raise UserError(
            f"the checkpoint {path} is from a newer Stash (format {made_by}); upgrade Stash"
        )
    if not whole:
        raise UserError(
            f"the checkpoint {path} is truncated or damaged: its checksum does not agree"
        )
    return StoredState(path, facts, content)


def _numbers(folder: Path, shard: int) -> list[int]:
    pattern = re.compile(rf"shard{shard}-(\d{{8}})\.ckpt")
    found = (pattern.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)
