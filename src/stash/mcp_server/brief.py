"""What an agent is told first of a command's JSON: the keys that answer questions, within a few kilobytes.

Everything else is kept under a handle, by which it is asked for piece by piece. Knows documents, no tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from stash.core.errors import UserError
from stash.core.units import format_count

MAX_BYTES = 4096
"""Of a tool's answer."""
_KEPT = 50
"""Documents, the latest."""
_CUTS = ((50, 1200), (20, 600), (12, 400), (8, 300), (5, 240), (3, 200), (2, 120), (1, 80))
"""Items of each list, and characters of each text, from what is hoped for to what surely fits."""
_DIGITS = 5
_ALL = "all"

Keys = Mapping[str, Any]
"""Of a document the keys that are told, and of what is in them: a mapping again, names, or ``all``."""


def _read_keys() -> dict[str, Keys]:
    text = (Path(__file__).parent / "answers.yaml").read_text(encoding="utf-8")
    found: dict[str, Keys] = yaml.safe_load(text)
    return found


ANSWERS = _read_keys()
"""The keys of each kind of document (``answers.yaml``)."""
_SHOWN = {
    "windows": "watch",
    "tried": "fix",
    "stalls": "profile",
    "choices": "plan",
    "takeovers": "spot_log",
    "probe": "probe",
    "p_deadline": "fleet_plan",
}
"""What ``stash show`` prints, by what only its kind has."""


def output_schema(keys: Keys | None) -> dict[str, Any]:
    """The JSON schema of brief answers with these keys; all of them but ``more`` may be left out for want of room."""
    found = _schema({} if keys is None else keys)
    if keys is ANSWERS["more"]:
        return {"type": "object", **found, "required": ["text"]}
    handle = {"type": "string", "description": "What the tool `more` reads the whole document by."}
    file = {"type": "string", "description": "Where what was measured is saved."}
    return {
        "type": "object",
        "properties": {**found["properties"], "more": handle, "file": file},
        "required": ["more"],
    }


def _schema(keys: Keys | Sequence[str]) -> dict[str, Any]:
    """Of an object, or of each object of a list."""
    inner = keys if isinstance(keys, Mapping) else dict.fromkeys(keys)
    properties = {
        name: {} if below in (None, _ALL) else _schema(below) for name, below in inner.items()
    }
    return {"properties": properties, "items": {"properties": properties}}


def keys_of(document: Mapping[str, Any]) -> Keys | None:
    """Those of a document that ``stash show`` prints; ``None`` of a kind that is not known: all."""
    return next((ANSWERS[kind] for mark, kind in _SHOWN.items() if mark in document), None)


class Handles:
    """The latest documents, each under a name that its brief answer gives."""

    def __init__(self) -> None:
        self._documents: dict[str, Any] = {}
        self._given = 0

    def answer(self, document: Any, keys: Keys | None, **about: Any) -> str:
        """The brief answer, JSON of at most ``MAX_BYTES``; ``about`` is said before it."""
        self._given += 1
        handle = f"r{self._given}"
        self._documents[handle] = document
        for old in list(self._documents)[:-_KEPT]:
            del self._documents[old]
        chosen = {**about, **pick_keys(document, keys), "more": handle}
        for items, length in _CUTS:
            if is_within_limit(text := _json(shorten_value(chosen, items, length))):
                return text
        # too many to say more of any
        return _json({"keys": [name[:20] for name in document][:50], "more": handle})

    def piece(self, handle: str, path: str, offset: int) -> str:
        """What stands at ``path`` of a document, from a character on; raises UserError."""
        if handle not in self._documents:
            raise UserError(f"there is no result {handle}; ask again", code="handle")
        found = self._documents[handle]
        for part in filter(None, path.split("/")):
            found = _inside(found, part, path)
        text = json.dumps(found, ensure_ascii=False, indent=1)
        if not 0 <= offset <= len(text):
            raise UserError(f"offset={offset}: {path or handle} has {len(text)} characters")
        pieces = (
            _json({"text": text[offset:end], "next_offset": end if end < len(text) else None})
            # letters of several bytes, and escapes
            for end in (offset + length for length in (3400, 1600, 500))
        )
        return next(filter(is_within_limit, pieces))


def is_within_limit(text: str) -> bool:
    return len(text.encode()) <= MAX_BYTES


def pick_keys(value: Any, keys: Keys | Sequence[str] | None) -> Any:
    """Only these keys of a mapping, or of each mapping of a list; those that it has."""
    if keys in (None, _ALL) or value is None:
        return value
    if isinstance(value, list):
        return [pick_keys(each, keys) for each in value]
    inner = keys if isinstance(keys, Mapping) else dict.fromkeys(keys)
    return {name: pick_keys(value[name], below) for name, below in inner.items() if name in value}


def shorten_value(value: Any, items: int, length: int) -> Any:
    """The same with lists and texts no longer than this, which say what is missing; numbers to five digits."""
    if isinstance(value, dict):
        return {name: shorten_value(each, items, length) for name, each in value.items()}
    if isinstance(value, list):
        more = [f"… {len(value) - items} more"] if len(value) > items else []
        return [*(shorten_value(each, items, length) for each in value[:items]), *more]
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[:length]} …"
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _inside(value: Any, part: str, path: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
        return value[int(part)]
    there = "nothing below"
    if value and isinstance(value, dict):
        there = ", ".join(value)
    elif value and isinstance(value, list):
        there = format_count(len(value), "item")
    raise UserError(f"path={path}: there is no {part}; there is {there}", code="handle")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
