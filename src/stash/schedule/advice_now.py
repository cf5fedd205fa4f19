"""What should run where now, against what does: one decision of a policy, with the reason for each job.

A reason names what holds the objective down: a type that is full, with the dual value of one more GPU of it. Pure but
for the page it builds; what Slurm is asked for, ``slurm_requests`` says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stash.core.errors import UserError
from stash.core.units import format_count
from stash.schedule.allocation import POLICIES, JobPolicy, choose_types, order_turns, priorities
from stash.schedule.matrix import RateMatrix, demand_of
from stash.schedule.placement import FreeGpus, GangPlace
from stash.schedule.records import JobDemand, LabCluster, QueuedJob, ShareAllocation
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

SCHEMA = 1
_ROUND = 360.0
_PRICED = 1e-9


@dataclass(frozen=True)
class JobAdvice:
    """One job: where it is, where it should be."""

    job: QueuedJob
    gpu: str
    """The type that it should run on; empty if it should wait."""
    nodes: tuple[str, ...]
    share: float
    """Of the time that the policy gives it on that type; NaN of a policy without shares."""
    why: str

    @property
    def change(self) -> str:
        """Against now."""
        before = self.job.on
        if self.gpu == before:
            return "stays" if before else "waits"
        if not self.gpu:
            return "stop"
        return f"move from {before}" if before else "start"


@dataclass(frozen=True)
class ScheduleAdvice:
    """All jobs, those that run first."""

    policy: str
    cluster: LabCluster
    jobs: tuple[JobAdvice, ...]
    objective: float
    type_prices: Mapping[str, float]
    """What one more GPU brings, in the policy's ``gain``; empty without a linear program."""
    excluded: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ManagerRequest:
    """What a cluster manager is asked for one job."""

    job: str
    commands: tuple[tuple[str, ...], ...]
    note: str = ""
    """Why there is none."""


def advise_now(
    jobs: Sequence[QueuedJob],
    cluster: LabCluster,
    matrix: RateMatrix,
    name: str,
    excluded: tuple[tuple[str, str], ...] = (),
) -> ScheduleAdvice:
    """What the policy would run now, all jobs taken as there."""
    now = max(job.submit for job in jobs)
    demand = demand_of(jobs, cluster, matrix, now)
    if not len(demand):
        raise UserError(f"none of these jobs can run on what {cluster.name} has free")
    policy = POLICIES[name]
    here = [jobs[number] for number in demand.ids]
    found = policy.rule(demand)
    # The next round's types; of equal priorities who runs there now stays.
    runs = demand.rates > 0
    priority = np.where(runs, priorities(found.x, np.zeros_like(found.x), _ROUND), 0.0)
    stays = (demand.running[:, None] == np.arange(runs.shape[1])[None, :]).astype(float)
    tie = stays + demand.rates / np.maximum(demand.best, 1e-300)[:, None]
    allowed = runs if policy.fills else runs & (found.x > 0)
    types = choose_types(order_turns(priority, allowed, tie), demand.gpus, demand.counts.tolist())
    free = FreeGpus(cluster)
    places: dict[int, GangPlace] = {}
    for at in sorted(types, key=lambda each: -demand.gpus[each]):
        place = free.find(types[at], int(demand.gpus[at]))
        if place is not None:
            free.allocate(place)
            places[at] = place
    priced = (
        []
        if found.type_prices is None
        else zip(cluster.types, found.type_prices.tolist(), strict=True)
    )
    prices = {kind: price for kind, price in priced if price > _PRICED}
    answers = []
    for at, job in enumerate(here):
        kind = types[at] if at in places else None
        share = math.nan
        if found.type_prices is not None:
            share = float(found.x[at].max() if kind is None else found.x[at, kind])
        nodes = tuple(cluster.nodes[node].name for node, _ in places.get(at, ()))
        why = _why(at, kind, demand, found, cluster, prices, policy)
        answers.append(
            JobAdvice(job, "" if kind is None else cluster.types[kind], nodes, share, why)
        )
    ordered = sorted(answers, key=lambda each: (not each.gpu, each.gpu))
    return ScheduleAdvice(name, cluster, tuple(ordered), found.objective, prices, excluded)


def _why(
    at: int,
    kind: int | None,
    demand: JobDemand,
    found: ShareAllocation,
    cluster: LabCluster,
    prices: Mapping[str, float],
    policy: JobPolicy,
) -> str:
    rates = demand.rates[at]
    best = demand.best[at]
    if kind is not None:
        speed = f"{rates[kind] / best:.0%} of its best rate"
        name = cluster.types[kind]
        if found.type_prices is None:
            return speed
        if name in prices:
            gain = policy.gain or policy.objective
            return f"{speed}; {name} is full: one more GPU is worth {prices[name]:.3g} {gain}"
        return f"{speed}; {name} has room"
    own = [cluster.types[each] for each in np.flatnonzero(rates > 0)]
    full = [f"{name} ({prices[name]:.3g} a GPU)" for name in own if name in prices]
    if full:
        return f"others come first on {', '.join(full)}"
    if not policy.backfills and found.order is not None:
        return "the queue's order: one before it does not fit"
    return f"no {' or '.join(own)} is free"


_MAX_LINES = 10
"""Changes that are shown: JSON has all."""


def advice_page(found: ScheduleAdvice, asked: Sequence[ManagerRequest] = ()) -> Page:
    """Changes with their reasons, and the requests."""
    changes = [each for each in found.jobs if each.change not in ("stays", "waits")]
    rows = tuple(
        (
            each.job.name,
            each.gpu or "–",
            ", ".join(each.nodes) or "–",
            "" if math.isnan(each.share) else f"{each.share:.0%}",
            each.change,
            each.why,
        )
        for each in changes[:_MAX_LINES]
    )
    below = ""
    if len(found.jobs) > len(rows):
        more = format_count(len(changes) - len(rows), "change")
        below = f"{more} more, and {len(found.jobs) - len(changes)} stay or wait: --json has all"
    head = ("type", "node", "share", "change", "why")
    texts = frozenset({0, 1, 2, 4, 5})
    ranks = (0, 1, 4, 5, 2, 3)
    grid = Grid("", head, rows, texts, first="job", ranks=ranks, prose=True, below=below)
    policy = POLICIES[found.policy]
    gain = policy.gain or policy.objective
    verdict = f"{format_count(len(changes), 'change')} for {format_count(len(found.jobs), 'job')}."
    if not math.isnan(found.objective):
        verdict += f" The objective is {found.objective:.4g} {policy.objective}."
    prices = tuple(
        (f"one more {kind}", f"{price:.4g} {gain}") for kind, price in found.type_prices.items()
    )
    points = [" ".join(words) for each in asked for words in each.commands]
    points += [each.note for each in asked if each.note]
    requests = tuple(points)
    chapters = (
        Chapter("prices", "What holds it down", facts=prices, brief=True),
        Chapter("requests", "Requests to Slurm", points=requests, brief=True, most=_MAX_LINES),
    )
    return Page(
        title=f"What to run now, by {found.policy}",
        verdict=(verdict,),
        grids=(grid,) if rows else (),
        warnings=tuple(f"{name} was left out: {why}." for name, why in found.excluded[:5]),
        chapters=tuple(each for each in chapters if each.facts or each.points),
    )


def advice_document(found: ScheduleAdvice, asked: Sequence[ManagerRequest] = ()) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "schema": SCHEMA,
        "policy": found.policy,
        "objective": None if math.isnan(found.objective) else found.objective,
        "type_prices": dict(found.type_prices),
        "jobs": [
            {
                "job": each.job.name,
                "now": each.job.on or None,
                "gpu": each.gpu or None,
                "nodes": list(each.nodes),
                "share": None if math.isnan(each.share) else each.share,
                "change": each.change,
                "why": each.why,
            }
            for each in found.jobs
        ],
        "requests": [" ".join(words) for each in asked for words in each.commands],
        "notes": [each.note for each in asked if each.note],
        "excluded": [{"job": name, "why": why} for name, why in found.excluded],
    }
