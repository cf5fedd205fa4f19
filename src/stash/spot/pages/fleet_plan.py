"""A fleet that was chosen, as a page and as JSON: what to rent, how sure that is, why others lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from stash.core.units import format_bytes
from stash.spot.fleet_costs import FleetWish
from stash.spot.fleet_records import CostedFleet, FleetPlan, FleetRisk
from stash.spot.risk import UNKNOWN_ERROR
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

SCHEMA = 1
_HARDLY = 0.0005
"""That a probability with a digit behind the point of a per cent would round to none."""
_MILL = 0.001
"""Dollars: the last digit that is shown, and so the least uncertainty."""


def fleet(workers: Mapping[str, int], on_demand: Collection[str] = ()) -> str:
    """``"2 × p3.2xlarge + 4 × g3.8xlarge"``; those ``on_demand`` say so."""
    return " + ".join(
        f"{count} × {name}" + (" on demand" if name in on_demand else "")
        for name, count in workers.items()
    )


def page(plan: FleetPlan, source: str) -> Page:
    """What to rent, what it costs against other ways to choose, and what revocations do."""
    risk = plan.risk
    facts: tuple[tuple[str, str], ...] = ()
    sure = "" if plan.confidence is None else f" with probability {plan.confidence:g}"
    verdict = f"Rent nothing: no fleet does it{sure}."
    proof = f"{plan.evaluations:,} fleets weighed in {plan.search_seconds:.2f} s"
    if plan.chosen is not None:
        facts = _chosen_rows(plan, plan.chosen)
        verdict = f"Rent {facts[0][1]}: {dict(facts)['cost']}."
        if not plan.optimal:
            proof = f"Another fleet could be up to {plan.gap or 0:.1%} cheaper: the search was cut short after {proof}"
        elif risk is not None and risk.weighed > 1:
            proof = f"No fleet in the pool that is in time often enough costs less: {risk.weighed} played, {proof}"
        else:
            proof = f"Nothing in the pool is cheaper: {proof}"
    verdicts = [verdict]
    if risk is not None and risk.advice:
        verdicts.append(f"{risk.advice[0].upper()}{risk.advice[1:]}.")
    head = ("cost", "time", "why")
    rows = tuple(_other(plan))
    grid = Grid("Other fleets", head, rows, frozenset({0, 3}), first="fleet", prose=True)
    chapters = [Chapter("fleet", "The fleet", label="Fleet", facts=facts, brief=True)]
    points = (f"{proof}.", *plan.pool.notes)
    chapters.append(Chapter("how", "How it was found", points=points, brief=True))
    return Page(
        title=f"Loss {plan.loss:g} within {_time(plan.deadline_seconds)}",
        source=source,
        subtitle=(f"from {source} of {plan.pool.as_of}",),
        verdict=tuple(verdicts),
        grids=(grid,) if rows else (),
        warnings=(*plan.beyond, *(() if risk is None else risk.beyond)),
        next_steps=tuple(f"`{each.to}`: {each.text}" for each in plan.looser),
        chapters=tuple(chapters if facts else chapters[1:]),
        made=f"{plan.created.replace('T', ' ')[:16]} UTC, Stash {plan.stash_version}",
    )


def _other(plan: FleetPlan) -> Iterator[tuple[str, ...]]:
    """Rows of the runners-up, and of what other ways to choose would have rented."""
    beside: list[tuple[CostedFleet | None, str]]
    beside = [(each.fleet, f"runner-up: {each.why}") for each in plan.runners_up]
    beside += [
        (each.fleet, f"{each.name}: {each.why or each.text}")
        for each in plan.baselines
        if each.fleet != plan.chosen
    ]
    for one, why in beside:
        shown = ("none", "", "")
        if one is not None:
            named = fleet(one.workers, one.on_demand)
            shown = (named, f"${one.dollars:.3f}", f"{one.seconds:,.0f} s")
        yield *shown, why


def _chosen_rows(plan: FleetPlan, chosen: CostedFleet) -> tuple[tuple[str, str], ...]:
    server = plan.pool.server
    rows = [("rent", fleet(chosen.workers, chosen.on_demand))]
    if server.instance is not None:
        rows.append(("server", f"{server.count} × {server.instance}, on demand"))
    if server.needs_bytes is None:
        memory = "of a server: unknown, as what the optimizer keeps is not; --curve says that"
    else:
        of = "" if server.memory_bytes is None else f" of {format_bytes(server.memory_bytes)}"
        memory = f"a server needs {format_bytes(server.needs_bytes)}{of}, the head included"
    priced = "servers included" if server.dollars_per_hour else "servers cost nothing in this pool"
    pace = f"{chosen.updates:,.0f} updates, {chosen.updates_per_second:.3g} a second"
    likely = f"unknown: {UNKNOWN_ERROR} (uncertainty)"
    if chosen.p_deadline is not None:
        likely = f"{chosen.p_deadline:.1%}"
    if plan.risk is not None or _is_revocable(chosen):
        likely = f"without revocations {likely}"
    rows += [
        ("memory", memory),
        ("cost", f"${chosen.dollars:.3f}, {priced}"),
        ("time", f"{_time(chosen.seconds)}: {pace}"),
        ("in time", likely),
    ]
    if plan.risk is not None:
        rows += _risk_rows(plan, plan.risk)
    elif _is_revocable(chosen):
        rows.append(("", "with them unknown: how often they come is not known"))
        rows.append(("revoked", "unknown; give --interruptions 10%/month"))
    return tuple(rows)


def _risk_rows(plan: FleetPlan, risk: FleetRisk) -> Iterator[tuple[str, str]]:
    """What revocations do, as labelled lines."""
    how = f"in {risk.runs:,} runs" + (" through the trace" if risk.how == "replay" else "")
    arm = risk.dollars.half_width
    spread = "" if arm is None else f" ± {max(arm, _MILL):.3f}"
    share = chance_in_time(plan)
    known = "unknown" if share is None else _share(share)
    yield "", f"{known} with them, {how}; ${risk.dollars.value:.3f}{spread} in the mean"
    lost = "each costs its worker until another has joined"
    yield "revoked", f"{risk.revocations:.2g} machines a run; {lost}"
    for life in risk.lives:
        mean = "unknown" if life.mean_seconds is None else _time(life.mean_seconds)
        yield "", f"{life.type} lives {mean} in the mean: {life.why}"


def _share(value: float) -> str:
    """In per cent; what is not sure is not rounded to certainty."""
    if 1 - _HARDLY < value < 1:
        return "over 99.9%"
    return "below 0.1%" if 0 < value < _HARDLY else f"{value:.1%}"


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" + (f" ({seconds / 3600:.1f} h)" if seconds >= 3600 else "")


def document(plan: FleetPlan) -> dict[str, Any]:
    """What ``--json`` prints; what a plan without a fleet lacks is null, and ``workers`` empty."""
    own = {} if plan.chosen is None else plan.chosen.model_dump()
    whole = plan.model_dump()
    unsure = FleetWish.read_plan(plan).deviation is None
    return {
        "schema": SCHEMA,
        "workers": own.get("workers", {}),
        "on_demand": own.get("on_demand", []),
        **{name: own.get(name) for name in ("seconds", "dollars")},
        "p_deadline": chance_in_time(plan),
        "p_deadline_without_revocations": own.get("p_deadline"),
        **{
            name: whole[name]
            for name in ("optimal", "gap", "evaluations", "search_seconds", "baselines")
        },
        "server_needs_bytes": plan.pool.server.needs_bytes,
        **{name: own.get(name) for name in ("updates", "updates_per_second")},
        **{name: whole[name] for name in ("runners_up", "looser", "beyond")},
        "notes": plan.pool.notes,
        "advice": None if plan.risk is None else plan.risk.advice,
        "risk": None
        if plan.risk is None
        else whole["risk"] | ({"p_deadline": None} if unsure else {}),
    }


def chance_in_time(plan: FleetPlan) -> float | None:
    """How probably, with revocations; ``None`` where these, or how wrong the pool's numbers are, are unknown."""
    if plan.risk is not None:
        return None if FleetWish.read_plan(plan).deviation is None else plan.risk.p_deadline.value
    return None if plan.chosen is None or _is_revocable(plan.chosen) else plan.chosen.p_deadline


def _is_revocable(chosen: CostedFleet) -> bool:
    return set(chosen.workers) > set(chosen.on_demand)
