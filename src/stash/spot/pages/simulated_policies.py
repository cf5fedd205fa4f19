"""What policies came to as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from stash.core.intervals import Interval
from stash.core.units import format_seconds
from stash.spot.records.risks import PolicyOutcome, SpotSimulation
from stash.spot.risk.restarting import MIN_INDEPENDENT
from stash.ui.layout import Renderer, paragraph, terminal_renderer
from stash.ui.tables import fleet, table

SCHEMA = 1


@dataclass(frozen=True)
class SimulatedView:
    """The advice, and a row for each policy, head first."""

    title: str
    advice: str
    rows: tuple[tuple[str, ...], ...]
    note: str
    mode: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def document(found: SpotSimulation) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "schema": SCHEMA,
        "policies": {each.name: _policy(each) for each in found.policies},
        "advice": found.advice,
        "workers": found.workers,
        "obtainable": found.obtainable,
        "runs": found.runs,
        "seed": found.seed,
        "mode": found.mode,
        "checkpoint": None if found.checkpoint is None else found.checkpoint.model_dump(),
        "independent": found.independent,
        "notes": list(found.notes),
    }


def _policy(each: PolicyOutcome) -> dict[str, Any]:
    dollars, hours = each.dollars, each.on_demand_hours
    return {
        "dollars": None if dollars is None else dollars.value,
        "dollars_low": None if dollars is None else dollars.low,
        "dollars_high": None if dollars is None else dollars.high,
        "on_demand_hours": None if hours is None else hours.value,
        "late": each.late,
        "late_low": None if each.late_interval is None else each.late_interval.low,
        "late_high": None if each.late_interval is None else each.late_interval.high,
        "revocations": each.revocations,
        "runs": each.runs,
    }


def view(found: SpotSimulation, source: str) -> SimulatedView:
    """Everything that is said."""
    return SimulatedView(
        title=f"{fleet(found.workers)} on spot, as {source} had it: all at once in {found.obtainable:.0%} of ticks",
        advice=f"{found.advice[0].upper()}{found.advice[1:]}.",
        rows=(
            ("policy", "cost, mean", "on-demand", "late", "revoked", "how"),
            *(_row(each) for each in found.policies),
        ),
        note=f"{found.runs:,} runs from random ticks, the same for all policies"
        + "".join(f"; {each.name} the first {each.runs}" for each in found.policies if each.runs < found.runs)
        + ". A late run is paid until the deadline.",
        mode=_mode(found),
        notes=tuple(f"{note[0].upper()}{note[1:]}." for note in found.notes),
        warnings=()
        if found.independent is None or found.independent >= MIN_INDEPENDENT
        else (_alone(found.independent),),
    )


def _alone(independent: float) -> str:
    return (
        f"The traces hold {independent:.1f} runs beside each other: this is one stretch of time, and nobody can tell "
        "how another one goes."
    )


def _mode(found: SpotSimulation) -> str:
    kept = found.checkpoint
    if kept is None:
        return "Asynchronous: servers keep the parameters, and a revocation costs the time until all are back."
    takes = f"Synchronous: a checkpoint takes {format_seconds(kept.write_seconds)}"
    if kept.just_in_time:
        return f"{takes} and fits the notice, so a revocation destroys nothing."
    return f"{takes}, one is written every {format_seconds(kept.best)}, and a revocation destroys what came after it."


def _row(each: PolicyOutcome) -> tuple[str, ...]:
    hours = "unknown" if each.on_demand_hours is None else f"{each.on_demand_hours.value:.2f} h"
    gone = "" if each.revocations is None else f"{each.revocations:.1f}"
    return each.name, _cost(each.dollars), hours, _late(each), gone, each.text


def _late(each: PolicyOutcome) -> str:
    found = each.late_interval
    if found is None or found.low is None or found.high is None:
        return f"{each.late:.1%}"
    return f"{each.late:.1%} ({found.low:.0%}-{found.high:.0%})"


def _cost(dollars: Interval | None) -> str:
    if dollars is None:
        return "unknown"
    arm = dollars.half_width
    return f"${dollars.value:.2f}" + ("" if arm is None else f" ± {arm:.2f}")


def _report(view: SimulatedView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [*paragraph(view.title, width, "", "", bold=True)]
    parts += [*paragraph(view.advice, width, "", "", bold=True)]
    for warning in view.warnings:
        parts += paragraph(warning, width, "! ", "color(220)")
    parts += ["", *table(view.rows, width), ""]
    for note in (view.note, view.mode, *view.notes):
        parts += paragraph(note, width, "", "", dim=True)
    return parts


render: Renderer[SimulatedView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole of it."""
