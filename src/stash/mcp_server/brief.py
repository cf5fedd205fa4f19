"""What an agent is told first of a command's JSON: the keys that answer questions, within a few kilobytes.

Everything else is kept under a handle, by which it is asked for piece by piece. Knows documents, no tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stash.core.errors import UserError
from stash.core.units import format_count

MAX_BYTES = 4096
"""Of a tool's answer."""
_KEPT = 50
"""Documents, the latest."""
_CUTS = ((50, 1200), (20, 600), (12, 400), (8, 300), (5, 240), (3, 200), (2, 120), (1, 80))
"""Items of each list, and characters of each text, from what is hoped for to what surely fits."""
_DIGITS = 5

_STALL = ("name", "seconds", "low", "high", "share", "within_noise")
_TIME = ("value", "low", "high")
Keys = Mapping[str, Any]
"""Of a document the keys that are told, and of what is in them: a mapping again, names, or ``None`` for all of it."""

PROFILE: Keys = {
    "verdict": ("text", "stall", "next_steps"),
    "step_seconds": None,
    "step_low": None,
    "step_high": None,
    "samples_per_second": None,
    "world_size": None,
    "nodes": None,
    "stalls": _STALL,
    "skipped": ("name", "why"),
    "stability": ("warnings",),
    "surfacing": None,
    "slow_rank": None,
    "communication": ("bytes", "exposed_seconds"),
    "rates": ("device", "prep", "fetch"),
    "disturbed": ("seconds", "steal"),
    "startup_seconds": None,
    "run": {
        "epoch_steps": None,
        "rows": ("name", "seconds", "share", "each_seconds", "every_steps", "rank", "why"),
        "places": ("row", "file", "line", "text", "inside", "seconds", "each_seconds"),
        "unseen": None,
    },
}
COMPARISON: Keys = {
    "verdict": None,
    "workload": None,
    "lines": None,
    "changed": None,
    "different": None,
}
DECISIONS: Keys = {"verdict": None, "limits": None}
WHATIF: Keys = {
    "changes": None,
    "target": ("name", "nodes", "devices"),
    "next": None,
    "measured": {"step_seconds": _TIME, "samples_per_second": None},
    "forecast": {
        "step_seconds": _TIME,
        "samples_per_second": None,
        "beyond": None,
        "unknown": None,
        "stalls": {"name": None, "seconds": _TIME, "share": None, "origin": None},
    },
    "data": ("workers_to_hide_prep", "cores_per_rank_to_hide_prep"),
    "training": None,
    "unanswered": ("question", "command"),
}
PLAN: Keys = {
    "chosen": None,
    "workload": None,
    "goal": ("deadline_seconds", "budget_dollars", "confidence"),
    "choices": {
        "name": None,
        "standing": None,
        "why": None,
        "seconds": _TIME,
        "dollars": _TIME,
        "samples_per_second": None,
        "on_time": None,
    },
    "experiment": ("text",),
    "relaxations": None,
    "warnings": None,
    "assumptions": None,
    "weighed": None,
}
SPOT_LOG: Keys = {
    "reason": None,
    "seconds": None,
    "loss": None,
    "goal_loss": None,
    "updates": None,
    "updates_per_second": None,
    "servers": None,
    "takeovers": ("gone", "successor", "joined_seconds"),
    "books": ("done", "repeated", "wrong"),
    "stretches": ("start", "stop", "workers", "observed"),
}
FLEET_PLAN: Keys = {
    "workers": None,
    "on_demand": None,
    "seconds": None,
    "dollars": None,
    "updates_per_second": None,
    "p_deadline": None,
    "optimal": None,
    "looser": None,
    "advice": None,
    "notes": None,
    "beyond": None,
}
PROBE: Keys = {
    "verdict": None,
    "findings": ("name", "hostname", "text"),
    "next_steps": None,
    "nearest": None,
    "notes": None,
    "links": ("hostname", "part", "member", "rate"),
}
FIX: Keys = {
    "workload": None,
    "step_seconds": None,
    "after_seconds": None,
    "together": _TIME,
    "proof": None,
    "tried": {
        "name": None,
        "text": None,
        "standing": None,
        "saves": _TIME,
        "written": None,
        "how": None,
        "why": None,
    },
    "advice": None,
    "notes": None,
    "interrupted": None,
}
WATCH: Keys = {
    "job": None,
    "steps": None,
    "step_seconds": None,
    "stalls": None,
    "stragglers": None,
    "alerts": ("text", "step", "ended", "what"),
    "events": None,
}
LISTING: Keys = {
    "folder": None,
    "artefacts": (
        "file",
        "kind",
        "created",
        "name",
        "ranks",
        "step_seconds",
        "samples_per_second",
        "stall",
        "stall_pct",
    ),
}
MORE: Keys = {"text": None, "next_offset": None}
_SHOWN = {
    "windows": WATCH,
    "tried": FIX,
    "stalls": PROFILE,
    "choices": PLAN,
    "takeovers": SPOT_LOG,
    "probe": PROBE,
    "p_deadline": FLEET_PLAN,
}


def output_schema(keys: Keys | None) -> dict[str, Any]:
    """The JSON schema of brief answers with these keys; all of them but ``more`` may be left out for want of room."""
    found = _schema({} if keys is None else keys)
    if keys is MORE:
        return {"type": "object", **found, "required": ["text"]}
    handle = {"type": "string", "description": "What the tool `more` reads the whole document by."}
    file = {"type": "string", "description": "Where what was measured is saved."}
    return {
        "type": "object",
        "properties": {**found["properties"], "more": handle, "file": file},
        "required": ["more"],
    }


def _schema(keys: Keys | tuple[str, ...]) -> dict[str, Any]:
    """Of an object, or of each object of a list."""
    inner = keys if isinstance(keys, Mapping) else dict.fromkeys(keys)
    properties = {name: {} if below is None else _schema(below) for name, below in inner.items()}
    return {"properties": properties, "items": {"properties": properties}}


def keys_of(document: Mapping[str, Any]) -> Keys | None:
    """Those of a document that ``stash show`` prints, by what only its kind has; ``None`` of others: all."""
    return next((keys for mark, keys in _SHOWN.items() if mark in document), None)


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


def pick_keys(value: Any, keys: Keys | tuple[str, ...] | None) -> Any:
    """Only these keys of a mapping, or of each mapping of a list; those that it has."""
    if keys is None or value is None:
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
