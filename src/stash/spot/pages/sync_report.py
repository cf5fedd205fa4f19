"""A synchronous rehearsal, as text and as JSON: who was taken away, and what that cost the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.core.units import counted, format_seconds
from stash.spot.records.runs import NoticeCheckpoint, SyncLog, SyncSetback
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.ui.tables import ground, table

SCHEMA = 1
_HEAD = ("gone", "at", "notice", "redone", "started", "whole", "by", "at its notice")
_TEXTS = frozenset({0, _HEAD.index("by")})


@dataclass(frozen=True)
class SetbacksView:
    """What there is to say afterwards."""

    title: str
    sums: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def document(log: SyncLog) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {"schema": SCHEMA, **log.model_dump()}


def view(log: SyncLog) -> SetbacksView:
    """Everything that is said."""
    sums = []
    if log.setbacks:
        lost = sum(each.lost_seconds for each in log.setbacks)
        sums.append(
            f"{counted(len(log.setbacks), 'node')} taken away: {format_seconds(lost)} of training were done again; "
            "started, whole: until the script was started on a group without it, and on a whole one"
        )
    if log.restarts:
        sums.append(f"all were started anew {counted(log.restarts, 'time')}: torchrun had not put it together")
    lasted = "never trained all together" if log.seconds is None else format_seconds(log.seconds)
    return SetbacksView(
        title=f"{counted(log.nodes, 'node')} under torchrun on {ground(log.on)}, {lasted}: {log.reason}",
        sums=tuple(sums),
        rows=tuple(map(_row, log.setbacks)),
    )


def _row(found: SyncSetback) -> tuple[str, ...]:
    notice = "none" if found.notice is None else format_seconds(found.notice)
    return (
        found.gone, format_seconds(found.at), notice, format_seconds(found.lost_seconds), _after(found.again_seconds),
        _after(found.whole_seconds), found.successor or "nobody", _checkpoint(found.checkpoint),
    )  # fmt: skip


def _checkpoint(found: NoticeCheckpoint | None) -> str:
    if found is None:
        return ""
    if found.seconds is None:
        return f"no checkpoint: {found.why}"
    return f"a checkpoint in {format_seconds(found.seconds)}"


def _after(seconds: float | None) -> str:
    return "not yet" if seconds is None else format_seconds(seconds)


def _report(view: SetbacksView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold")]
    for text in view.sums:
        parts += paragraph(text, width, "", "")
    if view.rows:
        parts += [Text(""), *table((_HEAD, *view.rows), width, _TEXTS)]
    return parts


render: Renderer[SetbacksView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole of it."""
