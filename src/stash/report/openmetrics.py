"""OpenMetrics text (https://openmetrics.io, 1.0.0), or Prometheus' older text: of profiles, and of a watched run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

SUFFIX = {"counter": "_total", "info": "_info"}
"""Behind a family's name, in its samples."""


class MetricFamily(NamedTuple):
    """Samples of one name, each with its labels; what ends in ``_seconds`` is in seconds."""

    name: str
    meaning: str
    samples: Iterable[tuple[Mapping[str, str], float]]
    kind: str = "gauge"


def format_exposition(families: Iterable[MetricFamily], openmetrics: bool = True) -> str:
    """All families, in one of the two formats."""
    lines: list[str] = []
    for name, meaning, samples, kind in families:
        suffix = SUFFIX.get(kind, "")
        head = name if openmetrics else f"{name}{suffix}"
        lines.append(f"# TYPE {head} {kind if openmetrics or kind != 'info' else 'gauge'}")
        if openmetrics and name.endswith("_seconds"):
            lines.append(f"# UNIT {head} seconds")
        lines.append(f"# HELP {head} {meaning}.")
        for labels, value in samples:
            shown = ",".join(f"{label}={_quote_text(text)}" for label, text in labels.items())
            lines.append(
                f"{name}{suffix}{{{shown}}} {value!r}" if shown else f"{name}{suffix} {value!r}"
            )
    return "\n".join([*lines, *(["# EOF"] if openmetrics else [])]) + "\n"


def _quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
