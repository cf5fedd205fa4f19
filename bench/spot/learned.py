"""Learned loss curves against fleets that were not replayed: how far they err in updates to a loss.

A curve is learned from 1, 2, 4 and 8 workers with three batches, four times, with other orders of samples. Six
fleets of other sizes, batches and speeds are replayed with eight orders each. Losses are those that all of a job's
replays passed. What the order of the samples does to a fleet no curve can know: two orders of one fleet stand beside.

Takes eight minutes of processors, one for each job at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from bench.machine import arguments
from bench.spot.learned_jobs import JOBS
from bench.table import median_90, report, table
from stash.spot.model.loss_curve import (
    common_losses,
    fit_curve,
    list_fleets,
    shape_of,
    updates_to,
    updates_to_losses,
)
from stash.spot.replay import replay
from stash.spot.run_records import LossReplay, VirtualWorker
from stash.spot.train.elastic_job import ElasticJob

LEARNINGS = 4
ORDERS = 8
UPDATES = 1000
"""The last of a replay."""
NINE_IN_TEN = 1.6449
"""Standard deviations of a normal distribution."""
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Judged:
    """One job's, in logarithms of updates: ``[learning, fleet, loss]``, and the truth ``[fleet, order, loss]``."""

    name: str
    predicted: np.ndarray
    """Infinite where the loss is never reached."""
    took: np.ndarray
    spread: np.ndarray
    """Standard deviation that the curve says of each loss, ``[learning, 1, loss]``."""

    @property
    def mean(self) -> np.ndarray:
        return self.took.mean(axis=1)


def unseen_fleets(batch: int) -> tuple[tuple[VirtualWorker, ...], ...]:
    """Fleets of sizes, batches and speeds that are not among the replayed ones."""

    def fleet(*workers: tuple[float, float]) -> tuple[VirtualWorker, ...]:
        """Of (batches in an iteration, seconds)."""
        return tuple(
            VirtualWorker(samples=round(batch * times), seconds=seconds)
            for times, seconds in workers
        )

    return (
        fleet(*[(1.5, 1.0)] * 3),
        fleet(*[(3.0, 1.0)] * 5),
        fleet(*[(1.0, 1.0)] * 6),
        fleet((1.0, 1.0), (2.0, 1.6), (4.0, 2.5)),
        fleet(*[(2.0, 1.0)] * 2, *[(1.0, 2.2)] * 5),
        fleet((4.0, 1.0), *[(1.0, 1.3)] * 3),
    )


def judge_job(name: str) -> Judged:
    """Learns, and replays what was not learned from. Orders are the same whenever it is called."""
    torch.set_num_threads(1)
    job = JOBS[name]()
    fleets = list_fleets((1, 2, 4, 8), (job.batch, 2 * job.batch, 4 * job.batch))
    seeds = [job.seed + 1 + 100 * learning for learning in range(LEARNINGS)]
    learned = [
        replay_fleets(job, [(fleet, seed + at) for at, fleet in enumerate(fleets)])
        for seed in seeds
    ]
    runs = [
        replay_fleets(job, [(fleet, 10_000 + 100 * at + order) for order in range(ORDERS)])
        for at, fleet in enumerate(unseen_fleets(job.batch))
    ]
    return held(name, learned, runs)


def replay_fleets(
    job: ElasticJob, wanted: Sequence[tuple[tuple[VirtualWorker, ...], int]]
) -> list[LossReplay]:
    """Of fleets, each with the seed of its order."""
    data = job.data()
    found = [replay(job, data, fleet, UPDATES, seed, CPU) for fleet, seed in wanted]
    return [each for each in found if each is not None]


def held(
    name: str, learned: Sequence[Sequence[LossReplay]], runs: Sequence[Sequence[LossReplay]]
) -> Judged:
    """The curves of all learnings against all orders of the other fleets."""
    losses = common_losses([each for replays in (*learned, *runs) for each in replays])
    fits = [fit_curve(replays) for replays in learned]
    spreads = [[each.spread or np.inf for _ in losses] for each in fits]
    return Judged(
        name=name,
        predicted=np.log(
            [
                [
                    [updates_to(each.curve, float(loss), *shape_of(fleet[0])) for loss in losses]
                    for fleet in runs
                ]
                for each in fits
            ]
        ),
        took=np.log([[updates_to_losses(run, losses) for run in fleet] for fleet in runs]),
        spread=np.array(spreads)[:, None, :],
    )


def errors_of(logs: Sequence[np.ndarray]) -> str:
    """Median and 90th percentile of relative errors; 1 where nothing was predicted."""
    flat = np.concatenate([each.ravel() for each in logs])
    return median_90(np.where(np.isfinite(flat), np.expm1(np.minimum(flat, 700.0)), 1.0))


def against_each(job: Judged) -> np.ndarray:
    """ln(predicted / replayed) of every order, ``[learning, fleet, order, loss]``."""
    found: np.ndarray = job.predicted[:, :, None] - job.took[None]
    return found


def errors(jobs: Sequence[Judged]) -> str:
    rows = []
    for name, some in groups(jobs):
        cells = [
            errors_of([against_each(job) for job in some]),
            errors_of([job.predicted - job.mean for job in some]),
            errors_of([job.took[:, 1::2] - job.took[:, ::2] for job in some]),
        ]
        rows.append([name, *cells])
    return table(["job", "of each order", "of the orders' mean", "two orders of one fleet"], rows)


def coverage(jobs: Sequence[Judged]) -> str:
    """How many orders are within the 90 % interval of each loss."""
    rows = []
    for name, some in groups(jobs):
        inside = [np.abs(against_each(job)) < NINE_IN_TEN * job.spread[:, :, None] for job in some]
        rows.append([name, f"{np.mean(np.concatenate([each.ravel() for each in inside])):.0%}"])
    return table(("job", "in the 90 % interval"), rows)


def groups(jobs: Sequence[Judged]) -> Iterator[tuple[str, Sequence[Judged]]]:
    yield from ((job.name, (job,)) for job in jobs)
    if len(jobs) > 1:
        yield "all", jobs


def main() -> None:
    arguments(__doc__)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = list(pool.map(judge_job, JOBS))
    report(
        f"{UPDATES:,} updates a replay; median and 90th percentile of errors in updates to a loss",
        errors(jobs),
        "How many orders are within the curve's 90 % interval",
        coverage(jobs),
    )


if __name__ == "__main__":
    main()
