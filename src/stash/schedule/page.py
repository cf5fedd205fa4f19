"""What ``stash schedule`` shows: policies side by side, lost GPU time, the matrix, who stays and what it costs."""

from __future__ import annotations

import math
from typing import Any

from stash.core.formatting import format_dollars, join_names
from stash.core.units import format_count
from stash.schedule.economics import Economics, UserBill
from stash.schedule.matrix import PACKED, SPREAD, RateKey
from stash.schedule.metrics import PolicyComparison, ScheduleFigures
from stash.schedule.profile_rates import FoundRates
from stash.schedule.records import HOUR, LabCluster
from stash.schedule.simulate import CAUSES, ROUND
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

SCHEMA = 1
_SHOWN_OUT = 5
"""Excluded jobs that are named."""
_HEAD = ("JCT", "p99", "queued", "ρ > 1", "worst ρ", "busy", "moves", "spread", "$ per job")


def page(found: PolicyComparison) -> Page:
    """Policies side by side."""
    low, high = found.restart
    restart = f"restart {low:.0f} s" if low == high else f"restart {low:.0f} to {high:.0f} s"
    gpus = " + ".join(
        f"{count} {kind}"
        for kind, count in zip(found.cluster.types, found.cluster.counts, strict=True)
    )
    how = f"rounds of {ROUND / 60:g} min | {restart} | spreading priced from the matrix"
    below = (
        "JCT, its 99th percentile and queued time in hours; ρ: JCT over the time alone on the job's share of the "
        "cluster, unfair above 1; moves and spread: GPU time lost to them."
    )
    rows = tuple(map(_row, found.figures.values()))
    table = Grid(
        "", _HEAD, rows, frozenset({0}), below, first="policy", ranks=(0, 1, 4, 2, 6, 7, 3, 5, 8, 9)
    )
    texts = tuple((name, policy.text) for name, policy in found.policies.items())
    points = [
        f"The makespan cannot be below {_hours(found.bounds.makespan_seconds)} h: the fluid linear program."
    ]
    for name, one in found.figures.items():
        text = found.policies[name].objective
        if text and not math.isnan(one.objective):
            points.append(f"{name}: the first allocation reaches {one.objective:.4g} {text}.")
        if one.late is not None:
            points.append(f"{name}: {format_count(one.late, 'job')} missed the deadline.")
    best = min(found.figures.values(), key=lambda each: each.jct_mean_seconds)
    shortest = min(found.figures.values(), key=lambda each: each.makespan_seconds)
    jct = best.jct_mean_seconds
    end = shortest.makespan_seconds
    if len(found.figures) == 1:
        verdict = f"Jobs end after {_hours(jct)} h in the mean, and the last after {_hours(end)} h."
    else:
        ends = "it also ends first" if shortest is best else f"{shortest.policy} ends first"
        verdict = (
            f"{best.policy} has the least mean completion time, {_hours(jct)} h; {ends}, after {_hours(end)} h, and "
            f"nothing can before {_hours(found.bounds.makespan_seconds)} h."
        )
    return Page(
        title=f"{format_count(found.jobs, 'job')} on {found.cluster.gpus} GPUs ({gpus})",
        subtitle=(how,),
        verdict=(verdict,),
        grids=(table, _hours_grid(found)),
        warnings=tuple(_warnings(found)),
        chapters=(
            Chapter("bounds", "Bounds", points=tuple(points), brief=True),
            Chapter("policies", "Policies", facts=texts),
        ),
    )


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:.2f}"


def _row(one: ScheduleFigures) -> tuple[str, ...]:
    return (
        one.policy,
        _hours(one.jct_mean_seconds),
        _hours(one.jct_p99_seconds),
        _hours(one.queued_mean_seconds),
        f"{one.unfair:.0%}",
        f"{one.rho_worst:.2f}",
        f"{one.busy:.0%}",
        f"{one.lost['moves'] / one.gpu_seconds:.1%}",
        f"{one.lost['spreading'] / one.gpu_seconds:.1%}",
        "unknown" if one.dollars_per_job is None else f"${one.dollars_per_job:.2f}",
    )


def _hours_grid(found: PolicyComparison) -> Grid:
    """All GPU-hours until the last job ends, by what became of them: they add up."""
    rows = []
    for one in found.figures.values():
        parts = [one.productive, *(one.lost[cause] for cause in CAUSES), one.gpu_seconds]
        rows.append(
            (one.policy, _hours(one.makespan_seconds), *(f"{part / HOUR:,.1f}" for part in parts))
        )
    head = ("makespan", "productive", *CAUSES, "all")
    below = "GPU-hours until the last job ends; the makespan in hours."
    return Grid(
        "Where GPU time went",
        head,
        tuple(rows),
        frozenset({0}),
        below,
        first="policy",
        ranks=(0, 1, 2, 3, 4, 5, 6, 7),
    )


def _warnings(found: PolicyComparison) -> list[str]:
    lines = []
    if found.unrated:
        idle = sum(found.unrated.values())
        gpus = found.cluster.gpus
        lines.append(
            f"{idle} of {gpus} GPUs stand idle: no job has a rate on {join_names(list(found.unrated))}; "
            "`stash schedule throughputs` adds rates, or write 0 where a job does not run."
        )
    load = found.bounds.load
    if load is not None and load > 1:
        lines.append(
            f"Overload: jobs bring {load:.2f} times the work that the cluster can do while they come, so the queue "
            "grows; figures depend on how long the trace is."
        )
    if found.relaxed > 1.000001:
        lines.append(
            f"Deadlines of the first jobs cannot all be kept: they would have to be {found.relaxed:.2f} times as far."
        )
    for name, why in found.excluded[:_SHOWN_OUT]:
        lines.append(f"{name} was left out: {why}.")
    if len(found.excluded) > _SHOWN_OUT:
        lines.append(f"{len(found.excluded) - _SHOWN_OUT} more jobs were left out.")
    unplaced = sum(one.unplaced for one in found.figures.values())
    if unplaced:
        lines.append(
            f"{format_count(unplaced, 'time')} a gang found no place at a known rate and waited."
        )
    return lines


def document(found: PolicyComparison) -> dict[str, Any]:
    """What ``--json`` prints."""
    bound = found.bounds
    return {
        "schema": SCHEMA,
        "jobs": found.jobs,
        "gpus": {
            kind: int(count)
            for kind, count in zip(found.cluster.types, found.cluster.counts, strict=True)
        },
        "round_seconds": ROUND,
        "seed": None,
        "bounds": {"makespan_seconds": bound.makespan_seconds, "load": bound.load},
        "excluded": [{"job": name, "why": why} for name, why in found.excluded],
        "unrated_gpus": dict(found.unrated),
        "deadline_relaxation": found.relaxed,
        "policies": {
            name: {
                **vars(one),
                "objective": None if math.isnan(one.objective) else one.objective,
                "objective_unit": found.policies[name].objective or None,
                "jct_deviation_seconds": None,
            }
            for name, one in found.figures.items()
        },
    }


def _placement(nodes: int) -> str:
    return {PACKED: "packed", SPREAD: "spread"}.get(nodes, f"{nodes} nodes")


def matrix_page(found: FoundRates, cluster: LabCluster) -> Page:
    """The matrix, and its empty cells."""
    rows = [
        (
            _cell(key),
            _placement(key[3]),
            f"{rate.value:.4g}",
            (
                "unknown"
                if rate.low is None or rate.high is None
                else f"{rate.low:.4g} to {rate.high:.4g}"
            ),
            rate.origin,
        )
        for key, rate in found.matrix.rates.items()
    ]
    points = tuple(f"{_cell(key)}, {_placement(key[3])}: {why}." for key, why in found.unknown)
    restart = tuple(
        (model, f"{seconds:.0f} s to stop and start again")
        for model, seconds in found.matrix.restart.items()
    )
    measured = sum(rate.origin == "measured" for rate in found.matrix.rates.values())
    return Page(
        title=f"Steps per second on {cluster.name}",
        verdict=(f"{measured} of {len(rows)} cells are measured; the others are forecasts.",),
        grids=(
            Grid(
                "",
                ("placement", "steps/s", "95 %", "known by"),
                tuple(rows),
                frozenset({0, 1, 3, 4}),
                first="job",
            ),
        ),
        chapters=(
            *((Chapter("unknown", "Not known", points=points, brief=True),) if points else ()),
            *((Chapter("restarts", "Restarts", facts=restart, brief=True),) if restart else ()),
        ),
    )


def _cell(key: RateKey) -> str:
    return f"{key[0]} on {key[1]} {key[2]}"


def matrix_document(found: FoundRates) -> dict[str, Any]:
    """What ``stash schedule throughputs --json`` prints."""
    return {
        "schema": SCHEMA,
        "rates": [
            {
                "model": model,
                "gpus": gpus,
                "gpu": kind,
                "placement": _placement(nodes),
                "steps_per_second": rate.value,
                "low": rate.low,
                "high": rate.high,
                "origin": rate.origin,
            }
            for (model, gpus, kind, nodes), rate in found.matrix.rates.items()
        ],
        "unknown": [
            {"job": _cell(key), "placement": _placement(key[3]), "why": why}
            for key, why in found.unknown
        ],
        "restart_seconds": dict(found.matrix.restart),
    }


# Economics


def economics_page(cluster: str, found: Economics) -> Page:
    """Users at the first step and the last, and steps between."""
    asked = found.rules
    rules = (
        f"{format_dollars(found.hourly)} an hour over {found.hours:,.1f} h | waiting "
        f"{format_dollars(asked.waiting_dollars)}/h | "
        f"users leave at {asked.defect_at:g} times their runtimes | {asked.cloud.instance} at "
        f"{format_dollars(asked.cloud.dollars_per_hour)}/h"
    )
    first = Grid(
        "Users",
        ("GPU-h", "waiting", "own", "cloud", "decides"),
        tuple(_user(bill) for bill in found.steps[0].bills),
        frozenset({0, 5}),
        "Of the first decision: own is π for each GPU-hour and what waiting costs, cloud its bill by the second.",
        first="user",
        ranks=(0, 3, 4, 1, 2, 5),
    )
    path = Grid(
        "The path",
        ("π", "utilisation", "users", "leave"),
        tuple(
            (
                str(number),
                f"${step.price:.3f}",
                f"{step.utilisation:.0%}",
                str(len(step.bills)),
                ", ".join(step.leaving) or "nobody",
            )
            for number, step in enumerate(found.steps, 1)
        ),
        frozenset({0, 4}),
        "π: dollars per GPU-hour used.",
        first="step",
    )
    return Page(
        title=f"Is {cluster} worth it?",
        subtitle=(rules,),
        verdict=(_verdict(found),),
        grids=(first, path),
        warnings=tuple(
            f"The cloud's bill is unknown: nothing says how fast {name} is there."
            for name in found.unknown[:5]
        ),
    )


def _user(bill: UserBill) -> tuple[str, ...]:
    cloud = "unknown" if bill.cloud is None else format_dollars(bill.cloud)
    decides = "stays" if bill.stays else f"leaves: {bill.why}"
    return (
        bill.user,
        f"{bill.gpu_hours:,.1f}",
        f"{bill.waiting_hours:,.1f}",
        format_dollars(bill.own),
        cloud,
        decides,
    )


def _verdict(found: Economics) -> str:
    first = found.steps[0]
    if not found.left:
        who = "Nobody leaves"
    elif found.staying:
        who = (
            f"{format_count(len(found.left), 'user')} of {len(first.bills)} leave, and "
            f"{', '.join(found.staying)} stay"
        )
    else:
        who = "Everybody leaves"
    if found.break_even is None:
        return f"{who}. Break-even utilisation is unknown, as the cloud's bill is."
    used = first.utilisation
    side = "above" if used > found.break_even else "below"
    return (
        f"{who}. The cluster is used to {used:.0%}, {side} the {found.break_even:.0%} from which it is cheaper than "
        "the cloud for these jobs."
    )


def economics_document(policy: str, found: Economics) -> dict[str, Any]:
    """What ``--json`` prints."""
    cloud = found.rules.cloud
    return {
        "schema": SCHEMA,
        "policy": policy,
        "dollars_per_hour": found.hourly,
        "hours": found.hours,
        "cloud": {"instance": cloud.instance, "dollars_per_hour": cloud.dollars_per_hour},
        "break_even_utilisation": found.break_even,
        "cloud_dollars": found.cloud_total,
        "left": list(found.left),
        "staying": list(found.staying),
        "steps": [
            {
                "price": step.price,
                "utilisation": step.utilisation,
                "users": [vars(bill) for bill in step.bills],
            }
            for step in found.steps
        ],
        "unknown": list(found.unknown),
    }
