"""What a cloud's list says is there: lines that begin with a name, or SkyPilot's JSON of clusters and jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

OVER = (
    "SUCCEEDED", "CANCELLED", "FAILED", "FAILED_SETUP", "FAILED_PRECHECKS", "FAILED_NO_RESOURCE", "FAILED_CONTROLLER"
)  # fmt: skip
"""Statuses of a managed job whose machines are gone (SkyPilot 0.14.1, ``ManagedJobStatus.terminal_statuses``)."""
JSON = ("--output", "json")
"""What asks ``sky`` for JSON."""


def is_gone(command: Sequence[str], output: str, name: str) -> bool:
    """Whether what ``command`` listed proves that ``name`` is there no more; a list that cannot be read does not."""
    if JSON[1] not in command:
        return not any(line.split()[:1] == [name] for line in output.splitlines())
    found = records(output)
    return found is not None and all(named(each) != name or each.get("status") in OVER for each in found)


def records(output: str) -> list[dict[str, Any]] | None:
    """The records of a JSON list, whatever is printed around it; ``None`` if there is none."""
    start = output.find("[\n")
    start = start if start >= 0 else output.find("[]")
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(output, start)
    except (ValueError, RecursionError):
        return None
    return [record for record in found if isinstance(record, dict)] if isinstance(found, list) else None


def named(record: dict[str, Any]) -> str | None:
    """Of a cluster, or of a managed job."""
    return record.get("job_name") or record.get("name")
