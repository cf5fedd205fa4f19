"""Both speed models fitted to fleets that were timed, and which of them to believe: the one that errs less held out.

Speeds alone tell of the servers how long an update keeps one busy, how randomly workers arrive, and how much of it
more servers share; and of the paper's equations (7) to (9) four coefficients. Runs of a lone worker give each type's
iteration. What speeds cannot separate (receiving, applying, sending) stays one station.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from stash.core.errors import UserError
from stash.core.formatting import listed
from stash.core.intervals import mean_interval
from stash.predict.draws import Array
from stash.spot.model.queueing import MAX_STATES, ClosedNetwork, contending, exact, fleet_seconds, states
from stash.spot.records.fleets import (
    Contention,
    FittedQueue,
    FittedSharing,
    FleetModel,
    FleetRun,
    HeldOut,
    SingleWorker,
    SpeedModel,
)

PUBLISHED = Contention(alpha=0.8, beta=-1.92)
"""α₁ and β₁ as spotDNN shipped them (icloud-ecnu/spotDNN, 2023-09-07): where a fit of few runs begins."""
_PULL = 0.003
"""How many per cent of an error it is worth to stay one unit nearer to where a coefficient would be without runs."""
_HEADROOM = 2.0
_SIZES = 3
"""Of fleets, that (9) needs."""
_MAX_LATTICE = MAX_STATES // 20


@dataclass(frozen=True)
class SingleSpeeds:
    """Iterations of lone workers, by type and number of servers."""

    seconds: dict[tuple[str, int], float]

    def of(self, kind: str, servers: int) -> float:
        """Seconds with so many servers, or with the nearest number that was timed; raises UserError."""
        timed = [number for name, number in self.seconds if name == kind]
        if not timed:
            known = sorted({name for name, _ in self.seconds})
            raise UserError(
                f"no run has a lone {kind}; add one of servers,workers,updates_per_second like "
                f"{servers},{kind}=1,4.5 (lone workers are known of {listed(known)})"
                if known
                else f"no run has a lone worker; add one of each type, like {servers},{kind}=1,4.5"
            )
        return self.seconds[kind, min(timed, key=lambda number: (abs(number - servers), number))]


def fit(runs: Sequence[FleetRun], source: str, version: str, created: str) -> FleetModel:
    """Both models, and each fleet of two workers and more as they predict it from all others; raises UserError."""
    alone = [run for run in runs if run.size == 1]
    together = [run for run in runs if run.size > 1]
    single_workers = _single_workers(alone)
    singles = SingleSpeeds({(each.type, each.servers): each.seconds.value for each in single_workers})
    for run in together:
        for kind in run.workers:
            singles.of(kind, run.servers)
    if not together:
        raise UserError(
            "every run has one worker alone, which tells nothing of how they share a server; add a run of several, "
            "like 1,v100=2+k80=1,12.5"
        )
    queue, paper = _fit_queue(together, singles), _fit_paper(together, singles)
    judged = tuple(_judged(together, number, singles, queue) for number in range(len(together)))
    logs: dict[SpeedModel, list[float]] = {
        "queue": [np.log(each.queue / each.run.updates_per_second) for each in judged if each.queue is not None],
        "paper": [np.log(each.paper / each.run.updates_per_second) for each in judged if each.paper is not None],
    }
    error = {model: float(np.median(np.abs(np.expm1(found)))) if found else None for model, found in logs.items()}
    return FleetModel(
        stash_version=version,
        created=created,
        source=source,
        lone=single_workers,
        queue=queue,
        paper=paper,
        spread={model: float(np.sqrt(np.mean(np.square(found)))) if found else None for model, found in logs.items()},
        error=error,
        preferred=_preferred(error),
        judged=judged,
        runs=tuple(runs),
    )


def _preferred(error: dict[SpeedModel, float | None]) -> SpeedModel:
    queue, paper = error["queue"], error["paper"]
    return "paper" if queue is not None and paper is not None and paper < queue else "queue"


def _single_workers(runs: Sequence[FleetRun]) -> tuple[SingleWorker, ...]:
    found: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        found.setdefault((next(iter(run.workers)), run.servers), []).append(1 / run.updates_per_second)
    return tuple(
        SingleWorker(type=kind, servers=servers, seconds=mean_interval(seconds))
        for (kind, servers), seconds in sorted(found.items())
    )


def _judged(together: Sequence[FleetRun], number: int, singles: SingleSpeeds, start: FittedQueue) -> HeldOut:
    run = together[number]
    rest = [other for other in together if (other.servers, other.workers) != (run.servers, run.workers)]
    if not rest:
        return HeldOut(run=run, queue=None, paper=None)
    paper = _fit_paper(rest, singles)
    return HeldOut(
        run=run,
        queue=float(queue_speeds(_fit_queue(rest, singles, start), singles, [run])[0]),
        paper=None if paper is None else float(paper_speeds(paper, singles, [run])[0]),
    )


# The queue ------------------------------------------------------------------------------------------------


def network(queue: FittedQueue, think_and_serve: Array, servers: int) -> ClosedNetwork:
    """The network of so many servers; the first of them has what is not split, and with it the most to do."""
    split = queue.server_seconds * (1 - queue.unsplit) / servers
    first = split + queue.server_seconds * queue.unsplit
    alike = queue.unsplit == 0 or servers == 1
    demands, copies = ([first], [servers]) if alike else ([first, split], [1, servers - 1])
    think = think_and_serve - queue.server_seconds
    return ClosedNetwork(think, np.array(demands), np.array(copies, dtype=float), queue.randomness)


def queue_speeds(queue: FittedQueue, singles: SingleSpeeds, runs: Sequence[FleetRun]) -> Array:
    """Updates a second of each fleet: those with equally many servers share one lattice if it is small."""
    speeds = np.empty(len(runs))
    for servers in {run.servers for run in runs}:
        at = [number for number, run in enumerate(runs) if run.servers == servers]
        names = sorted({name for number in at for name in runs[number].workers})
        counts = np.array([[runs[number].workers.get(name, 0) for name in names] for number in at])
        alone = np.array([singles.of(name, servers) for name in names])
        net = network(queue, alone, servers)
        speeds[at] = (counts / _all_seconds(counts, net)).sum(axis=1)
    return speeds


def _all_seconds(counts: Array, net: ClosedNetwork) -> Array:
    limits = [int(most) for most in counts.max(axis=0)]
    if states(limits) > _MAX_LATTICE:
        return np.stack([fleet_seconds(row, net) for row in counts])
    places = np.ravel_multi_index(tuple(counts.T), tuple(limit + 1 for limit in limits))
    found: Array = exact(limits, net).seconds[places]
    return found


def _fit_queue(runs: Sequence[FleetRun], singles: SingleSpeeds, start: FittedQueue | None = None) -> FittedQueue:
    """Least squares of logarithms.

    What runs leave open stays near the product form, and near a server that can do twice what was seen: runs that
    never filled it fit any faster one as well.
    """
    measured = np.log([run.updates_per_second for run in runs])
    most = 0.999 * min(singles.of(kind, run.servers) for run in runs for kind in run.workers)
    seen = max(run.updates_per_second / run.servers for run in runs)
    usual = np.array([np.log(min(1.0, 1 / (_HEADROOM * seen * most))), 1.0, 0.0])
    several = len({run.servers for run in runs}) > 1

    def made(given: Array) -> FittedQueue:
        return FittedQueue(
            server_seconds=most * float(np.exp(given[0])),
            randomness=float(given[1]),
            unsplit=float(given[2]) if several else 0.0,
        )

    def residuals(given: Array) -> Array:
        missed = np.log(queue_speeds(made(given), singles, runs)) - measured
        return np.concatenate([missed, _PULL * (given - usual[: len(given)])])

    size = 3 if several else 2
    starts = [[share, 0.5, 0.1] for share in (-2.5, -1.2, -0.4)]
    if start is not None:
        starts = [[np.log(start.server_seconds / most), start.randomness, start.unsplit]]
    bounds = ([-12.0, 0.0, 0.0][:size], [0.0, 1.0, 1.0][:size])
    found = [_solve(residuals, np.array(each[:size]), bounds) for each in starts]
    return made(min(found, key=lambda each: each[1])[0])


# The paper's equations ------------------------------------------------------------------------------------


def paper_speeds(paper: FittedSharing, singles: SingleSpeeds, runs: Sequence[FleetRun]) -> Array:
    """Updates a second by (2) and (6) to (9): what sharing adds to a lone worker's iteration."""
    speeds = []
    for run in runs:
        slower = _slower(paper, np.array(float(run.size)), run.servers)
        times = [singles.of(kind, run.servers) + float(slower) * paper.exchange_seconds for kind in run.workers]
        speeds.append(sum(count / time for count, time in zip(run.workers.values(), times, strict=True)))
    return np.array(speeds)


def _slower(paper: FittedSharing, workers: Array, servers: int) -> Array:
    """Breq / Bwk − 1 by (8)."""
    asked = paper.demand * workers / servers
    shared = contending(workers, paper.contention)
    return np.where(asked > 1, 1 / (shared / np.maximum(asked, 1) + 1 - shared) - 1, 0.0)


def _fit_paper(runs: Sequence[FleetRun], singles: SingleSpeeds) -> FittedSharing | None:
    if len({run.size for run in runs}) < _SIZES:
        return None
    measured = np.log([run.updates_per_second for run in runs])
    most = min(singles.of(kind, run.servers) for run in runs for kind in run.workers)
    usual = np.array([-1.0, 0.0, PUBLISHED.alpha, PUBLISHED.beta])

    def made(given: Array) -> FittedSharing:
        share, demand, alpha, beta = (float(value) for value in given)
        return FittedSharing(
            exchange_seconds=most * float(np.exp(share)),
            demand=float(np.exp(demand)),
            contention=Contention(alpha=alpha, beta=beta),
        )

    def residuals(given: Array) -> Array:
        missed = np.log(paper_speeds(made(given), singles, runs)) - measured
        return np.concatenate([missed, _PULL * (given - usual)])

    bounds = ([-9.0, -5.0, 0.0, -20.0], [0.0, 5.0, 20.0, 1.0])
    starts = [usual, np.array([-0.3, 0.5, 0.5, -0.5]), np.array([-2.0, -0.5, 1.0, -1.0])]
    return made(min((_solve(residuals, each, bounds) for each in starts), key=lambda each: each[1])[0])


def _solve(
    residuals: Callable[[Array], Array], start: Array, bounds: tuple[list[float], list[float]]
) -> tuple[Array, float]:
    """(coefficients, half the squared errors). Steps are wide: kinks of full stations hide from small ones."""
    low, high = (np.array(end) for end in bounds)
    inside = np.clip(start, low + 1e-6 * (high - low), high - 1e-6 * (high - low))
    found = least_squares(residuals, inside, bounds=bounds, diff_step=1e-3, xtol=1e-6, ftol=1e-8, max_nfev=60)
    return found.x, float(found.cost)
