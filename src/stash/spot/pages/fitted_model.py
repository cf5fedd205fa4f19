"""A fitted model of fleets as text and as JSON: each type's pace, the servers', and how wrong both models were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.core.formatting import quantity
from stash.core.units import counted, format_seconds
from stash.spot.records.fleets import FleetModel
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.ui.tables import fleet, table

SCHEMA = 1
_NAMES = {"queue": "queue at the servers", "paper": "equations (8), (9)"}


@dataclass(frozen=True)
class FittedFleetView:
    """Rows of each table, head first."""

    title: str
    summary: str
    lone: tuple[tuple[str, ...], ...]
    models: tuple[tuple[str, ...], ...]
    judged: tuple[tuple[str, ...], ...]


def document(model: FleetModel) -> dict[str, Any]:
    """What ``--json`` prints: the model's file, with the contract's version."""
    return {"schema": SCHEMA, **model.model_dump()}


def view(model: FleetModel, source: str) -> FittedFleetView:
    """Everything that is said, in order."""
    return FittedFleetView(
        title=f"Fleets of {source}",
        summary=_summary(model),
        lone=(
            ("worker alone", "servers", "an iteration", ""),
            *((each.type, str(each.servers), quantity(each.seconds, "seconds"), "") for each in model.lone),
        ),
        models=(("model", "median error", "what was fitted"), *_models(model)),
        judged=(
            ("predicted from all others", "measured", "queue", "paper", ""),
            *(
                (
                    f"{fleet(each.run.workers)}, {counted(each.run.servers, 'server')}",
                    f"{each.run.updates_per_second:.3g}/s",
                    _against(each.queue, each.run.updates_per_second),
                    _against(each.paper, each.run.updates_per_second),
                    "",
                )
                for each in model.judged
            ),
        ),
    )


def _summary(model: FleetModel) -> str:
    together = sum(run.size > 1 for run in model.runs)
    read = f"{counted(len(model.runs), 'run')}, {together} of several workers."
    error = model.error[model.preferred]
    if error is None:
        return f"{read} None can be left out, so nobody can tell how wrong the model is: time more fleets."
    other = model.error["paper" if model.preferred == "queue" else "queue"]
    beside = "" if other is None else f", the other model {other:.1%}"
    return (
        f"{read} Of fleets it had not seen, the {_NAMES[model.preferred]} err by {error:.1%} (median){beside}: "
        f"`stash spot predict` uses the {model.preferred} model."
    ).replace("the queue at the servers err", "the queue at the servers errs")


def _models(model: FleetModel) -> tuple[tuple[str, ...], ...]:
    queue, paper = model.queue, model.paper
    shared = (
        f", {queue.unsplit:.0%} of it however many servers" if len({run.servers for run in model.runs}) > 1 else ""
    )
    rows = [
        (
            "queue",
            _percent(model.error["queue"]),
            f"an update keeps a server busy for {format_seconds(queue.server_seconds)}{shared}; arrivals are "
            f"{queue.randomness:.0%} random",
        )
    ]
    if paper is None:
        return (*rows, ("paper", "unknown", "needs fleets of three sizes"))
    about = (
        f"2 S / Breq {format_seconds(paper.exchange_seconds)}, Breq / Bps {paper.demand:.3g}, "
        f"alpha1 {paper.contention.alpha:.3g}, beta1 {paper.contention.beta:.3g}"
    )
    return (*rows, ("paper", _percent(model.error["paper"]), about))


def _percent(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.1%}"


def _against(said: float | None, seen: float) -> str:
    return "unknown" if said is None else f"{said:.3g}/s ({said / seen - 1:+.0%})"


def _report(view: FittedFleetView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold")]
    parts += [*paragraph(view.summary, width, "", ""), Text(), *table(view.lone, width), Text()]
    return [*parts, *table(view.models, width), Text(), *table(view.judged, width)]


render: Renderer[FittedFleetView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole of it."""
