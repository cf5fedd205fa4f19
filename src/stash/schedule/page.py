"""What ``stash schedule simulate`` and ``throughputs`` show: policies side by side, lost GPU time, the matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from stash.core.units import counted
from stash.schedule.comparing import PolicyComparison
from stash.schedule.matrix import PACKED, SPREAD, RateKey
from stash.schedule.metrics import ScheduleFigures
from stash.schedule.profile_rates import FoundRates
from stash.schedule.records import HOUR, LabCluster
from stash.schedule.simulate import CAUSES
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
        f"{count} {kind}" for kind, count in zip(found.cluster.types, found.cluster.counts, strict=True)
    )
    how = f"rounds of {found.round_seconds / 60:g} min | {restart} | spreading priced from the matrix"
    several = max(len(runs) for runs in found.runs.values())
    below = (
        "JCT, its 99th percentile and queued time in hours; ρ: JCT over the time alone on the job's share of the "
        "cluster, unfair above 1; moves and spread: GPU time lost to them."
    )
    if several > 1:
        below += f" Means of {several} runs where something is drawn; JCT with its 95 % interval."
    table = Grid("", _HEAD, tuple(_row(found, name) for name in found.runs), frozenset({0}), below, first="policy",
                 ranks=(0, 1, 4, 2, 6, 7, 3, 5, 8, 9))  # fmt: skip
    texts = tuple((name, policy.text) for name, policy in found.policies.items())
    return Page(
        title=f"{counted(found.jobs, 'job')} on {found.cluster.gpus} GPUs ({gpus})",
        subtitle=(how,),
        verdict=(_verdict(found),),
        grids=(table, _lost(found)),
        warnings=tuple(_warnings(found)),
        chapters=(Chapter("bounds", "Bounds", points=tuple(_bounds(found)), brief=True),
                  Chapter("policies", "Policies", facts=texts)),
    )  # fmt: skip


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:.2f}"


def _row(found: PolicyComparison, name: str) -> tuple[str, ...]:
    def mean(of: Callable[[ScheduleFigures], float]) -> float:
        return found.mean(name, of).value

    jct, dollars = found.mean(name, lambda each: each.jct_mean_seconds), found.runs[name][0].dollars_per_job
    return (
        name,
        _hours(jct.value) + ("" if jct.half_width is None else f" ± {_hours(jct.half_width)}"),
        _hours(mean(lambda each: each.jct_p99_seconds)),
        _hours(mean(lambda each: each.queued_mean_seconds)),
        f"{mean(lambda each: each.unfair):.0%}",
        f"{mean(lambda each: each.rho_worst):.2f}",
        f"{mean(lambda each: each.busy):.0%}",
        f"{mean(lambda each: each.lost['moves'] / each.gpu_seconds):.1%}",
        f"{mean(lambda each: each.lost['spreading'] / each.gpu_seconds):.1%}",
        "unknown" if dollars is None else f"${mean(lambda each: each.dollars_per_job or 0.0):.2f}",
    )


def _lost(found: PolicyComparison) -> Grid:
    """All GPU-hours until the last job ends, by what became of them: they add up."""
    rows = []
    for name, runs in found.runs.items():
        one = runs[0]
        parts = [one.productive, *(one.lost[cause] for cause in CAUSES), one.gpu_seconds]
        rows.append((name, _hours(one.makespan_seconds), *(f"{part / HOUR:,.1f}" for part in parts)))
    head = ("makespan", "productive", *CAUSES, "all")
    several = " Of the first run." if max(map(len, found.runs.values())) > 1 else ""
    below = f"GPU-hours until the last job ends; the makespan in hours.{several}"
    return Grid("Where GPU time went", head, tuple(rows), frozenset({0}), below, first="policy",
                ranks=(0, 1, 2, 3, 4, 5, 6, 7))  # fmt: skip


def _verdict(found: PolicyComparison) -> str:
    best = min(found.runs, key=lambda name: found.mean(name, lambda each: each.jct_mean_seconds).value)
    shortest = min(found.runs, key=lambda name: found.mean(name, lambda each: each.makespan_seconds).value)
    jct = found.mean(best, lambda each: each.jct_mean_seconds).value
    end = found.mean(shortest, lambda each: each.makespan_seconds).value
    if len(found.runs) == 1:
        return f"Jobs end after {_hours(jct)} h in the mean, and the last after {_hours(end)} h."
    ends = "it also ends first" if shortest == best else f"{shortest} ends first"
    return (
        f"{best} has the least mean completion time, {_hours(jct)} h; {ends}, after {_hours(end)} h, and nothing can "
        f"before {_hours(found.bounds.makespan_seconds)} h."
    )


def _bounds(found: PolicyComparison) -> list[str]:
    points = [f"The makespan cannot be below {_hours(found.bounds.makespan_seconds)} h: the fluid linear program."]
    for name, runs in found.runs.items():
        text = found.policies[name].objective
        if text and not math.isnan(runs[0].objective):
            points.append(f"{name}: the first allocation reaches {runs[0].objective:.4g} {text}.")
        if runs[0].late is not None:
            points.append(f"{name}: {counted(runs[0].late, 'job')} missed the deadline.")
    return points


def _warnings(found: PolicyComparison) -> list[str]:
    lines = []
    load = found.bounds.load
    if load is not None and load > 1:
        lines.append(
            f"Overload: jobs bring {load:.2f} times the work that the cluster can do while they come, so the queue "
            f"grows by {found.bounds.growth_per_hour:.2g} jobs an hour; figures depend on how long the trace is."
        )
    if found.relaxed > 1.000001:
        lines.append(
            f"Deadlines of the first jobs cannot all be kept: they would have to be {found.relaxed:.2f} times as far."
        )
    for name, why in found.excluded[:_SHOWN_OUT]:
        lines.append(f"{name} was left out: {why}.")
    if len(found.excluded) > _SHOWN_OUT:
        lines.append(f"{len(found.excluded) - _SHOWN_OUT} more jobs were left out.")
    unplaced = sum(runs[0].unplaced for runs in found.runs.values())
    if unplaced:
        lines.append(f"{counted(unplaced, 'time')} a gang found no place at a known rate and waited.")
    return lines


def document(found: PolicyComparison) -> dict[str, Any]:
    """What ``--json`` prints."""
    bound = found.bounds
    return {
        "schema": SCHEMA,
        "jobs": found.jobs,
        "gpus": {kind: int(count) for kind, count in zip(found.cluster.types, found.cluster.counts, strict=True)},
        "round_seconds": found.round_seconds,
        "seed": found.seed,
        "bounds": {"makespan_seconds": bound.makespan_seconds, "load": bound.load},
        "excluded": [{"job": name, "why": why} for name, why in found.excluded],
        "deadline_relaxation": found.relaxed,
        "policies": {name: _policy(found, name) for name in found.runs},
    }


def _policy(found: PolicyComparison, name: str) -> dict[str, Any]:
    """Means over runs; what is not counted as one, of the first."""
    runs = found.runs[name]
    jct = found.mean(name, lambda each: each.jct_mean_seconds)
    return {
        **vars(runs[0]),
        "jct_mean_seconds": jct.value,
        "jct_mean": {"value": jct.value, "low": jct.low, "high": jct.high},
        "queued_mean_seconds": found.mean(name, lambda each: each.queued_mean_seconds).value,
        "makespan_seconds": found.mean(name, lambda each: each.makespan_seconds).value,
        "objective": None if math.isnan(runs[0].objective) else runs[0].objective,
        "objective_unit": found.policies[name].objective or None,
        "runs": len(runs),
    }


def _placement(nodes: int) -> str:
    return {PACKED: "packed", SPREAD: "spread"}.get(nodes, f"{nodes} nodes")


def matrix_page(found: FoundRates, cluster: LabCluster) -> Page:
    """The matrix, and its empty cells."""
    rows = [(_cell(key), _placement(key[3]), f"{rate.value:.4g}", _between(rate.low, rate.high), rate.origin)
            for key, rate in found.matrix.rates.items()]  # fmt: skip
    points = tuple(f"{_cell(key)}, {_placement(key[3])}: {why}." for key, why in found.unknown)
    restart = tuple(
        (model, f"{seconds:.0f} s to stop and start again") for model, seconds in found.matrix.restart.items()
    )
    measured = sum(rate.origin == "measured" for rate in found.matrix.rates.values())
    return Page(
        title=f"Steps per second on {cluster.name}",
        verdict=(f"{measured} of {len(rows)} cells are measured; the others are forecasts.",),
        grids=(Grid("", ("placement", "steps/s", "95 %", "known by"), tuple(rows), frozenset({0, 1, 3, 4}),
                    first="job"),),
        chapters=(*((Chapter("unknown", "Not known", points=points, brief=True),) if points else ()),
                  *((Chapter("restarts", "Restarts", facts=restart, brief=True),) if restart else ())),
    )  # fmt: skip


def _cell(key: RateKey) -> str:
    return f"{key[0]} on {key[1]} {key[2]}"


def _between(low: float | None, high: float | None) -> str:
    return "unknown" if low is None or high is None else f"{low:.4g} to {high:.4g}"


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
        "unknown": [{"job": _cell(key), "placement": _placement(key[3]), "why": why} for key, why in found.unknown],
        "restart_seconds": dict(found.matrix.restart),
    }
