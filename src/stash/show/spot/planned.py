"""A fleet that was chosen as text and as JSON: what to rent, how sure that is, why others lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.base.spot.fleets import Baseline, CostedFleet, FleetPlan
from stash.show.layout import Renderer, paragraph, terminal_renderer
from stash.show.spot.rows import fleet, table

SCHEMA = 1


@dataclass(frozen=True)
class FleetPlanView:
    """The answer as labelled lines, how it was found, and tables, head first; empty ones are left out."""

    title: str
    facts: tuple[tuple[str, str], ...]
    proof: str
    others: tuple[tuple[str, ...], ...]
    alike: str
    looser: tuple[tuple[str, str], ...]
    beyond: tuple[str, ...]
    notes: tuple[str, ...]


def document(plan: FleetPlan) -> dict[str, Any]:
    """What ``--json`` prints; what a plan without a fleet lacks is null, and ``workers`` empty."""
    chosen = plan.chosen
    return {
        "schema": SCHEMA,
        "workers": {} if chosen is None else chosen.workers,
        "seconds": None if chosen is None else chosen.seconds,
        "dollars": None if chosen is None else chosen.dollars,
        "p_deadline": None if chosen is None else chosen.p_deadline,
        "optimal": plan.optimal,
        "gap": plan.gap,
        "evaluations": plan.evaluations,
        "search_seconds": plan.search_seconds,
        "baselines": [each.model_dump() for each in plan.baselines],
        "model": plan.model,
        "updates": None if chosen is None else chosen.updates,
        "updates_per_second": None if chosen is None else chosen.updates_per_second,
        "runners_up": [each.model_dump() for each in plan.runners_up],
        "looser": [each.model_dump() for each in plan.looser],
        "beyond": list(plan.beyond),
        "notes": list(plan.pool.notes),
    }


def view(plan: FleetPlan, pool: str) -> FleetPlanView:
    """Everything that is said, in order."""
    chosen = plan.chosen
    title = f"Loss {plan.loss:g} within {_time(plan.deadline_seconds)}, from {pool} of {plan.pool.as_of}"
    rows: list[tuple[str, ...]] = [
        (fleet(each.fleet.workers), *_figures(each.fleet), f"runner-up: {each.why}") for each in plan.runners_up
    ]
    alike = [each.name for each in plan.baselines if _same(each, chosen)]
    rows += [_row(each) for each in plan.baselines if not _same(each, chosen)]
    return FleetPlanView(
        title=title,
        facts=_facts(plan) if chosen is None else _chosen(plan, chosen),
        proof=_proof(plan),
        others=(("others", "cost", "time", "why"), *rows) if rows else (),
        alike=f"The same fleet is chosen by: {', '.join(alike)}." if alike else "",
        looser=tuple((each.to, each.text) for each in plan.looser),
        beyond=plan.beyond,
        notes=plan.pool.notes,
    )


def _same(other: Baseline, chosen: CostedFleet | None) -> bool:
    return chosen is not None and other.fleet is not None and _machines(other.fleet) == _machines(chosen)


def _machines(fleet: CostedFleet) -> tuple[dict[str, int], str]:
    """An on-demand machine is another one than the same type as spot."""
    return fleet.workers, f"{fleet.dollars:.6g}"


def _row(other: Baseline) -> tuple[str, ...]:
    why = f"{other.name}: {other.why or other.text}"
    if other.fleet is None:
        return "none", "", "", why
    return fleet(other.fleet.workers), *_figures(other.fleet), why


def _chosen(plan: FleetPlan, chosen: CostedFleet) -> tuple[tuple[str, str], ...]:
    likely = "unknown: the pool does not say how wrong its numbers are (uncertainty)"
    if chosen.p_deadline is not None:
        likely = f"{chosen.p_deadline:.1%}"
    server = plan.pool.server
    priced = "servers included" if server.dollars_per_hour else "servers cost nothing in this pool"
    hired = () if server.instance is None else (("server", f"{server.count} × {server.instance}, on demand"),)
    return (
        ("rent", fleet(chosen.workers)),
        *hired,
        ("cost", f"${chosen.dollars:.3f}, {priced}"),
        (
            "time",
            f"{_time(chosen.seconds)}: {chosen.updates:,.0f} updates, {chosen.updates_per_second:.3g} a second",
        ),
        ("in time", likely),
    )


def _facts(plan: FleetPlan) -> tuple[tuple[str, str], ...]:
    within = "" if plan.budget_dollars is None else f" for ${plan.budget_dollars:g}"
    sure = "" if plan.confidence is None else f" with probability {plan.confidence:g}"
    return (("rent", f"nothing: no fleet does it{within}{sure}"),)


def _proof(plan: FleetPlan) -> str:
    took = f"{plan.evaluations:,} fleets weighed in {plan.search_seconds:.2f} s by the {plan.model} model"
    if plan.chosen is None:
        return f"{took}."
    if plan.optimal:
        return f"Nothing in the pool is cheaper: {took}."
    return f"Another fleet could be up to {plan.gap or 0:.1%} cheaper: the search was cut short after {took}."


def _figures(chosen: CostedFleet) -> tuple[str, str]:
    return f"${chosen.dollars:.3f}", f"{chosen.seconds:,.0f} s"


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" + (f" ({seconds / 3600:.1f} h)" if seconds >= 3600 else "")


def _report(view: FleetPlanView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [*paragraph(view.title, width, "", "", bold=True)]
    for label, text in view.facts:
        parts += paragraph(text, width, f"{label:<9}", "dim")
    parts += [*paragraph(view.proof, width, "", ""), Text()]
    if view.looser:
        parts += [*paragraph("What would do, all else being as it is:", width, "", "")]
        for to, text in view.looser:
            parts += paragraph(text, width, f"{to}  ", "bold")
        parts.append(Text())
    for sentence in view.beyond:
        parts += paragraph(sentence, width, "! ", "color(220)", dim=True)
    parts += table(view.others, width) if view.others else []
    parts += paragraph(view.alike, width, "", "") if view.alike else []
    if view.notes:
        parts.append(Text())
    for sentence in view.notes:
        parts += paragraph(sentence, width, "- ", "dim", dim=True)
    return parts


render: Renderer[FleetPlanView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole of it."""
