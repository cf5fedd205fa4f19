"""A fleet that was chosen as text and as JSON: what to rent, how sure that is, why others lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.core.intervals import Interval
from stash.core.units import format_bytes, format_seconds
from stash.spot.records.fleets import Baseline, CostedFleet, FleetPlan, ParameterServers
from stash.spot.records.risks import CheckpointInterval, FleetRisk, TrainingMode
from stash.ui.layout import Renderer, paragraph, terminal_renderer
from stash.ui.tables import fleet, table

SCHEMA = 1
_HARDLY = 0.0005
"""That a probability with a digit behind the point of a per cent would round to none."""
_MILL = 0.001
"""Dollars: the last digit that is shown, and so the least uncertainty."""
_MODES: dict[TrainingMode, str] = {
    "asynchronous": "each costs its worker until another has joined, the servers keep the rest",
    "synchronous": "each costs all work since the last checkpoint, and a start",
}


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
    advice: str = ""


def document(plan: FleetPlan) -> dict[str, Any]:
    """What ``--json`` prints; what a plan without a fleet lacks is null, and ``workers`` empty."""
    chosen = plan.chosen
    return {
        "schema": SCHEMA,
        "workers": {} if chosen is None else chosen.workers,
        "on_demand": [] if chosen is None else list(chosen.on_demand),
        "seconds": None if chosen is None else chosen.seconds,
        "dollars": None if chosen is None else chosen.dollars,
        "p_deadline": in_time(plan),
        "p_deadline_without_revocations": None if chosen is None else chosen.p_deadline,
        "optimal": plan.optimal,
        "gap": plan.gap,
        "evaluations": plan.evaluations,
        "search_seconds": plan.search_seconds,
        "baselines": [each.model_dump() for each in plan.baselines],
        "model": plan.model,
        "server_needs_bytes": plan.pool.server.needs_bytes,
        "updates": None if chosen is None else chosen.updates,
        "updates_per_second": None if chosen is None else chosen.updates_per_second,
        "runners_up": [each.model_dump() for each in plan.runners_up],
        "looser": [each.model_dump() for each in plan.looser],
        "beyond": list(plan.beyond),
        "notes": list(plan.pool.notes),
        "advice": None if plan.risk is None else plan.risk.advice,
        "risk": None if plan.risk is None else plan.risk.model_dump(),
    }


def in_time(plan: FleetPlan) -> float | None:
    """How probably, with revocations: unknown of spot machines that nobody says anything of."""
    if plan.risk is not None:
        return plan.risk.p_deadline.value
    return None if plan.chosen is None or _revocable(plan.chosen) else plan.chosen.p_deadline


def _revocable(chosen: CostedFleet) -> bool:
    return set(chosen.workers) > set(chosen.on_demand)


def view(plan: FleetPlan, pool: str) -> FleetPlanView:
    """Everything that is said, in order."""
    chosen = plan.chosen
    title = f"Loss {plan.loss:g} within {_time(plan.deadline_seconds)}, from {pool} of {plan.pool.as_of}"
    rows: list[tuple[str, ...]] = [
        (fleet(each.fleet.workers, each.fleet.on_demand), *_figures(each.fleet), f"runner-up: {each.why}")
        for each in plan.runners_up
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
        notes=plan.pool.notes,
        beyond=(*plan.beyond, *(() if plan.risk is None else plan.risk.beyond)),
        advice="" if plan.risk is None else plan.risk.advice,
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
    return fleet(other.fleet.workers, other.fleet.on_demand), *_figures(other.fleet), why


def _chosen(plan: FleetPlan, chosen: CostedFleet) -> tuple[tuple[str, str], ...]:
    likely = "unknown: the pool does not say how wrong its numbers are (uncertainty)"
    if chosen.p_deadline is not None:
        likely = f"{chosen.p_deadline:.1%}"
    server = plan.pool.server
    priced = "servers included" if server.dollars_per_hour else "servers cost nothing in this pool"
    hired = () if server.instance is None else (("server", f"{server.count} × {server.instance}, on demand"),)
    return (
        ("rent", fleet(chosen.workers, chosen.on_demand)),
        *hired,
        *_memory(server),
        ("cost", f"${chosen.dollars:.3f}, {priced}"),
        (
            "time",
            f"{_time(chosen.seconds)}: {chosen.updates:,.0f} updates, {chosen.updates_per_second:.3g} a second",
        ),
        ("in time", f"without revocations {likely}" if plan.risk is not None or _revocable(chosen) else likely),
        *(_risky(plan.risk) if plan.risk is not None else _unreckoned(chosen)),
    )


def _memory(server: ParameterServers) -> tuple[tuple[str, str], ...]:
    if server.needs_bytes is None:
        return (("memory", "of a server: unknown, as what the optimizer keeps is not; --curve says that"),)
    of = "" if server.memory_bytes is None else f" of {format_bytes(server.memory_bytes)}"
    return (("memory", f"a server needs {format_bytes(server.needs_bytes)}{of}, the head included"),)


def _unreckoned(chosen: CostedFleet) -> Iterator[tuple[str, str]]:
    if _revocable(chosen):
        yield "", "with them unknown: how often they come is not known"
        yield "revoked", "unknown; give --interruptions 10%/month, --lifetimes FILE or --trace FILE"


def _risky(risk: FleetRisk) -> Iterator[tuple[str, str]]:
    """What revocations do, as labelled lines."""
    how = {
        "closed form": "in closed form",
        "Monte Carlo": f"in {risk.runs:,} runs",
        "replay": f"in {risk.runs:,} runs through the trace",
    }[risk.how]
    yield "", f"{_chance(risk.p_deadline)} with them, {how}; ${_spread(risk.dollars)} in the mean"
    yield "revoked", f"{risk.revocations:.2g} machines a run; {_MODES[risk.mode]}"
    for life in risk.lives:
        mean = "unknown" if life.mean_seconds is None else _time(life.mean_seconds)
        yield "", f"{life.type} lives {mean} in the mean: {life.why}"
    if risk.checkpoint is not None:
        yield from _checkpointed(risk.checkpoint)


def _checkpointed(found: CheckpointInterval) -> Iterator[tuple[str, str]]:
    others = f"{found.how}; Young {format_seconds(found.young)}, Daly {format_seconds(found.daly)}"
    if found.just_in_time:
        yield "save", f"after the notice: {format_seconds(found.write_seconds)} fit, so nothing is lost with one"
        yield "", f"every {format_seconds(found.best)} where machines vanish without ({others})"
        return
    yield "save", f"every {format_seconds(found.best)} of work ({others})"


def _chance(found: Interval) -> str:
    if found.low is None or found.high is None:
        return _share(found.value)
    return f"{_share(found.value)} (95 %: {_share(found.low)} to {_share(found.high)})"


def _share(value: float) -> str:
    """In per cent; what is not sure is not rounded to certainty."""
    if 1 - _HARDLY < value < 1:
        return "over 99.9%"
    return "below 0.1%" if 0 < value < _HARDLY else f"{value:.1%}"


def _spread(found: Interval) -> str:
    arm = found.half_width
    return f"{found.value:.3f}" + ("" if arm is None else f" ± {max(arm, _MILL):.3f}")


def _facts(plan: FleetPlan) -> tuple[tuple[str, str], ...]:
    within = "" if plan.budget_dollars is None else f" for ${plan.budget_dollars:g}"
    sure = "" if plan.confidence is None else f" with probability {plan.confidence:g}"
    return (("rent", f"nothing: no fleet does it{within}{sure}"),)


def _proof(plan: FleetPlan) -> str:
    took = f"{plan.evaluations:,} fleets weighed in {plan.search_seconds:.2f} s by the {plan.model} model"
    if plan.chosen is None:
        return f"{took}."
    ventured = 1 if plan.risk is None else plan.risk.weighed
    if ventured > 1 and plan.optimal:
        return f"No fleet in the pool that is in time often enough costs less: {ventured} played, {took}."
    if plan.optimal:
        return f"Nothing in the pool is cheaper: {took}."
    return f"Another fleet could be up to {plan.gap or 0:.1%} cheaper: the search was cut short after {took}."


def _figures(chosen: CostedFleet) -> tuple[str, str]:
    return f"${chosen.dollars:.3f}", f"{chosen.seconds:,.0f} s"


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" + (f" ({seconds / 3600:.1f} h)" if seconds >= 3600 else "")


def _report(view: FleetPlanView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [*paragraph(view.title, width, "", "", bold=True)]
    if view.advice:
        parts += paragraph(f"{view.advice[0].upper()}{view.advice[1:]}.", width, "", "", bold=True)
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
