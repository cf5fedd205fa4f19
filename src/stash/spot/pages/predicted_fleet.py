"""A fleet's predicted speed as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.core.units import counted
from stash.spot.records.fleets import FleetSpeed
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.ui.tables import fleet

SCHEMA = 1


@dataclass(frozen=True)
class FleetSpeedView:
    """The answer, what it rests on, and its warnings."""

    title: str
    answer: str
    beyond: tuple[str, ...]


def document(found: FleetSpeed) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {"schema": SCHEMA, **found.model_dump()}


def view(found: FleetSpeed) -> FleetSpeedView:
    """Everything that is said."""
    if found.low is None or found.high is None:
        spread = "interval unknown"
    else:
        spread = f"95 % between {found.low:.3g} and {found.high:.3g}"
    return FleetSpeedView(
        title=f"{fleet(found.workers)}, {counted(found.servers, 'server')}",
        answer=f"{found.updates_per_second:.3g} updates/s ({spread}), by the {found.model} model",
        beyond=found.beyond,
    )


def _report(view: FleetSpeedView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold")]
    parts += paragraph(view.answer, width, "", "")
    for sentence in view.beyond:
        parts += paragraph(sentence, width, "! ", "color(220)", dim=True)
    return parts


render: Renderer[FleetSpeedView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole of it."""
