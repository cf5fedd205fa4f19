"""The queue of workers fitted to fleets that were timed, and what it predicts of others, with an interval.

Speeds alone tell of the servers how long an update keeps one busy, how randomly workers arrive, and how much of it
more servers share. Runs of a single worker give each type's iteration. What speeds cannot separate (receiving,
applying, sending) stays one station. The interval is Student's, of how far it was off fleets that were held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from stash.api import Array
from stash.core.distributions import student_quantile
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.imports import require_package
from stash.core.intervals import mean_interval
from stash.core.records.base import utc_now
from stash.core.version import __version__
from stash.spot.fleet_records import (
    FittedQueue,
    FleetModel,
    FleetRun,
    FleetSpeed,
    HeldOut,
    SingleWorker,
)
from stash.spot.model.queueing import (
    MAX_STATES,
    ClosedNetwork,
    count_fleets,
    fleet_seconds,
    solve_exactly,
)

_PULL = 0.003
"""How many per cent of an error it is worth to stay one unit nearer to where a coefficient would be without runs."""
_HEADROOM = 2.0
_MAX_LATTICE = MAX_STATES // 20
_MARGIN = 1.1
"""How many times beyond what was measured is still the same place."""


Singles = Mapping[tuple[str, int], float]
"""Seconds of an iteration of single workers, by type and number of servers."""


def single_seconds(singles: Singles, kind: str, servers: int) -> float:
    """Seconds with so many servers, or with the nearest number that was timed; raises UserError."""
    timed = [number for name, number in singles if name == kind]
    if not timed:
        known = sorted({name for name, _ in singles})
        beside = f" (single workers are known of {join_names(known)})" if known else ""
        raise UserError(
            f"no run has a single {kind}; add one of servers,workers,updates_per_second like "
            f"{servers},{kind}=1,4.5{beside}"
        )
    return singles[kind, min(timed, key=lambda number: (abs(number - servers), number))]


def fit_fleets(runs: Sequence[FleetRun], source: str) -> FleetModel:
    """The model, and each fleet of two workers and more as it is predicted from all others; raises UserError."""
    together = [run for run in runs if run.size > 1]
    timed: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        if run.size == 1:
            timed.setdefault((next(iter(run.workers)), run.servers), []).append(
                1 / run.updates_per_second
            )
    single_workers = tuple(
        SingleWorker(type=kind, servers=servers, seconds=mean_interval(seconds))
        for (kind, servers), seconds in sorted(timed.items())
    )
    singles = {(each.type, each.servers): each.seconds.value for each in single_workers}
    for run in together:
        for kind in run.workers:
            single_seconds(singles, kind, run.servers)
    if not together:
        raise UserError(
            "every run has one worker alone, which tells nothing of how they share a server; add a run of several, "
            "like 1,v100=2+k80=1,12.5"
        )
    queue = _fit_queue(together, singles)
    judged = tuple(_hold_out(together, number, singles, queue) for number in range(len(together)))
    logs = [
        np.log(each.queue / each.run.updates_per_second)
        for each in judged
        if each.queue is not None
    ]
    return FleetModel(
        stash_version=__version__,
        created=utc_now(),
        source=source,
        lone=single_workers,
        queue=queue,
        spread=float(np.sqrt(np.mean(np.square(logs)))) if logs else None,
        error=float(np.median(np.abs(np.expm1(logs)))) if logs else None,
        judged=judged,
        runs=tuple(runs),
    )


def _hold_out(
    together: Sequence[FleetRun], number: int, singles: Singles, start: FittedQueue
) -> HeldOut:
    run = together[number]
    rest = [
        other for other in together if (other.servers, other.workers) != (run.servers, run.workers)
    ]
    if not rest:
        return HeldOut(run=run, queue=None)
    return HeldOut(
        run=run, queue=float(queue_speeds(_fit_queue(rest, singles, start), singles, [run])[0])
    )


# The queue


def queue_speeds(queue: FittedQueue, singles: Singles, runs: Sequence[FleetRun]) -> Array:
    """Updates a second of each fleet: those with equally many servers share one lattice if it is small."""
    speeds = np.empty(len(runs))
    for servers in {run.servers for run in runs}:
        at = [number for number, run in enumerate(runs) if run.servers == servers]
        names = sorted({name for number in at for name in runs[number].workers})
        counts = np.array([[runs[number].workers.get(name, 0) for name in names] for number in at])
        # the first server has what is not split, and with it the most to do
        split = queue.server_seconds * (1 - queue.unsplit) / servers
        first = split + queue.server_seconds * queue.unsplit
        alike = queue.unsplit == 0 or servers == 1
        demands, copies = ([first], [servers]) if alike else ([first, split], [1, servers - 1])
        think = (
            np.array([single_seconds(singles, name, servers) for name in names])
            - queue.server_seconds
        )
        net = ClosedNetwork(
            think, np.array(demands), np.array(copies, dtype=float), queue.randomness
        )
        limits = [int(most) for most in counts.max(axis=0)]
        if count_fleets(limits) > _MAX_LATTICE:
            seconds = np.stack([fleet_seconds(row, net) for row in counts])
        else:
            seconds = solve_exactly(limits, net).iteration_seconds(counts)
        speeds[at] = (counts / seconds).sum(axis=1)
    return speeds


def _fit_queue(
    runs: Sequence[FleetRun], singles: Singles, start: FittedQueue | None = None
) -> FittedQueue:
    """Least squares of logarithms.

    What runs leave open stays near the product form, and near a server that can do twice what was seen: runs that
    never filled it fit any faster one as well.
    """
    measured = np.log([run.updates_per_second for run in runs])
    most = 0.999 * min(
        single_seconds(singles, kind, run.servers) for run in runs for kind in run.workers
    )
    seen = max(run.updates_per_second / run.servers for run in runs)
    usual = np.array([np.log(min(1.0, 1 / (_HEADROOM * seen * most))), 1.0, 0.0])
    several = len({run.servers for run in runs}) > 1

    def make_queue(given: Array) -> FittedQueue:
        return FittedQueue(
            server_seconds=most * float(np.exp(given[0])),
            randomness=float(given[1]),
            unsplit=float(given[2]) if several else 0.0,
        )

    def residuals(given: Array) -> Array:
        missed = np.log(queue_speeds(make_queue(given), singles, runs)) - measured
        return np.concatenate([missed, _PULL * (given - usual[: len(given)])])

    size = 3 if several else 2
    starts = [[share, 0.5, 0.1] for share in (-2.5, -1.2, -0.4)]
    if start is not None:
        starts = [[np.log(start.server_seconds / most), start.randomness, start.unsplit]]
    bounds = ([-12.0, 0.0, 0.0][:size], [0.0, 1.0, 1.0][:size])
    found = [_solve(residuals, np.array(each[:size]), bounds) for each in starts]
    return make_queue(min(found, key=lambda each: each[1])[0])


def _solve(
    residuals: Callable[[Array], Array], start: Array, bounds: tuple[list[float], list[float]]
) -> tuple[Array, float]:
    """(coefficients, half the squared errors). Steps are wide: kinks of full stations hide from small ones."""
    least_squares = require_package("scipy.optimize", "fitting speeds of fleets").least_squares
    low, high = (np.array(end) for end in bounds)
    inside = np.clip(start, low + 1e-6 * (high - low), high - 1e-6 * (high - low))
    found = least_squares(
        residuals, inside, bounds=bounds, diff_step=1e-3, xtol=1e-6, ftol=1e-8, max_nfev=60
    )
    return found.x, float(found.cost)


# Prediction


def predict_fleet(model: FleetModel, servers: int, workers: Mapping[str, int]) -> FleetSpeed:
    """Updates a second of ``workers``; raises UserError."""
    singles = {(each.type, each.servers): each.seconds.value for each in model.lone}
    asked = FleetRun(servers=servers, workers=dict(workers), updates_per_second=1)
    speed = float(queue_speeds(model.queue, singles, [asked])[0])
    spread = model.spread
    low = None
    high = None
    left_out = sum(each.queue is not None for each in model.judged)
    if spread is not None and left_out > 1:
        arm = float(student_quantile(left_out, 0.975)) * spread
        low = speed * math.exp(-arm)
        high = speed * math.exp(arm)
    if low is not None and _is_share_unknown(model, servers):
        alone = model.queue.model_copy(update={"unsplit": 1.0})
        low *= min(1.0, float(queue_speeds(alone, singles, [asked])[0]) / speed)
    return FleetSpeed(
        servers=servers,
        workers=dict(workers),
        updates_per_second=speed,
        low=low,
        high=high,
        beyond=tuple(_extrapolations(model, asked, speed)),
    )


def _is_share_unknown(model: FleetModel, servers: int) -> bool:
    """Whether what more servers take over from the first is unknown: no fleet with another number was timed."""
    timed = {run.servers for run in model.runs if run.size > 1}
    return servers > 1 and len(timed) == 1 and servers not in timed


def _extrapolations(model: FleetModel, asked: FleetRun, speed: float) -> Iterator[str]:
    if _is_share_unknown(model, asked.servers):
        yield (
            f"no fleet was timed with {asked.servers} servers: the low end is as if all work stayed with the first, "
            "as where the large tensors lie on it"
        )
    runs = [run for run in model.runs if run.servers == asked.servers]
    if not runs:
        timed = sorted({run.servers for run in model.runs})
        yield f"no run had {asked.servers} servers, only {join_names([str(each) for each in timed])}"
    else:
        largest = max(run.size for run in runs)
        fastest = max(run.updates_per_second for run in runs)
        if asked.size > largest:
            yield f"{asked.size} workers are more than the {largest} of the largest run with as many servers"
        if speed > _MARGIN * fastest:
            yield (
                f"{speed:.3g} updates/s are more than the {fastest:.3g} that a run reached: where the server is full "
                "was not seen"
            )
    if model.error is None:
        yield "too few runs to leave one out: how wrong the model is, is unknown"
