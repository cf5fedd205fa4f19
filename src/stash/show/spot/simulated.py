"""What policies came to as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from stash.base.spot.fleets import PolicyOutcome, SpotSimulation
from stash.base.stats.intervals import Interval
from stash.show.layout import Renderer, paragraph, terminal_renderer
from stash.show.spot.rows import fleet, table

SCHEMA = 1


@dataclass(frozen=True)
class SimulatedView:
    """The advice, and a row for each policy, head first."""

    title: str
    advice: str
    rows: tuple[tuple[str, ...], ...]
    note: str


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
    }


def _policy(each: PolicyOutcome) -> dict[str, Any]:
    dollars, hours = each.dollars, each.on_demand_hours
    return {
        "dollars": None if dollars is None else dollars.value,
        "dollars_low": None if dollars is None else dollars.low,
        "dollars_high": None if dollars is None else dollars.high,
        "on_demand_hours": None if hours is None else hours.value,
        "late": each.late,
        "runs": each.runs,
    }


def view(found: SpotSimulation, source: str) -> SimulatedView:
    """Everything that is said."""
    return SimulatedView(
        title=f"{fleet(found.workers)} on spot, as {source} had it: all at once in {found.obtainable:.0%} of ticks",
        advice=found.advice,
        rows=(("policy", "cost, mean", "on-demand", "late", "how"), *(_row(each) for each in found.policies)),
        note=f"{found.runs:,} runs from random ticks, the same for all policies"
        + "".join(f"; {each.name} the first {each.runs}" for each in found.policies if each.runs < found.runs)
        + ". A late run is paid until the deadline.",
    )


def _row(each: PolicyOutcome) -> tuple[str, ...]:
    hours = "unknown" if each.on_demand_hours is None else f"{each.on_demand_hours.value:.2f} h"
    return each.name, _cost(each.dollars), hours, f"{each.late:.1%}", each.text


def _cost(dollars: Interval | None) -> str:
    if dollars is None:
        return "unknown"
    arm = dollars.half_width
    return f"${dollars.value:.2f}" + ("" if arm is None else f" ± {arm:.2f}")


def _report(view: SimulatedView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [*paragraph(view.title, width, "", "", bold=True)]
    parts += paragraph(view.advice, width, "", "")
    return [*parts, "", *table(view.rows, width), "", *paragraph(view.note, width, "", "", dim=True)]


render: Renderer[SimulatedView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole of it."""
