"""Learned loss curves against fleets that were not replayed: how far each form errs in updates to a loss, and why.

A curve is learned from 1, 2, 4 and 8 workers with three batches, four times, with other orders of samples. Six
fleets of other sizes, batches and speeds are replayed with eight orders each. Losses are those that all of a job's
replays passed. ln(predicted / replayed) is a sum of three: what the *order* of the samples does to a fleet, which no
curve can know; what the orders of the replays did to the *fit*; and what is left of the means of both, the *form*'s.

Jobs are those of ``learned_jobs.REPORTED``; the others, by which forms were chosen, are judged when they are named.
Beside the curve's levels stand the paper's equation (3), *printed* and *shipped*, and the *power* law that the curve
has below its levels.
Takes eight minutes of processors, one for each job at a time.
"""

from __future__ import annotations

import argparse
import os
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from bench.spot.learned_jobs import REPORTED, TRIED
from bench.spot.paper_loss import fit_equation
from bench.table import median_90, report, table
from stash.spot.learn.replay import replay
from stash.spot.model.convergence import common_losses, passed, shape_of, shapes, spread_at, updates_to
from stash.spot.model.learning import fit_curve
from stash.spot.records.fleets import LossCurve
from stash.spot.records.runs import LossReplay, VirtualWorker
from stash.spot.train.elastic_job import ElasticJob

LEARNINGS, ORDERS = 4, 8
FORMS = ("printed", "shipped", "power", "levels")
NINE_IN_TEN = 1.6449
"""Standard deviations of a normal distribution."""
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Judged:
    """One job's, in logarithms of updates: ``[learning, fleet, loss]``, and the truth ``[fleet, order, loss]``."""

    name: str
    predicted: dict[str, np.ndarray]
    """By form. Infinite where by a form the loss is never reached."""
    took: np.ndarray
    whole: np.ndarray
    """Spread of the levels: of all losses, ``[learning, 1, 1]``."""
    each: np.ndarray
    """Of each loss, ``[learning, 1, loss]``."""

    @property
    def mean(self) -> np.ndarray:
        return self.took.mean(axis=1)


def unseen(batch: int) -> tuple[tuple[VirtualWorker, ...], ...]:
    """Fleets of sizes, batches and speeds that are not among the replayed ones."""

    def fleet(*workers: tuple[float, float]) -> tuple[VirtualWorker, ...]:
        """Of (batches in an iteration, seconds)."""
        return tuple(VirtualWorker(samples=round(batch * times), seconds=seconds) for times, seconds in workers)

    return (
        fleet(*[(1.5, 1.0)] * 3),
        fleet(*[(3.0, 1.0)] * 5),
        fleet(*[(1.0, 1.0)] * 6),
        fleet((1.0, 1.0), (2.0, 1.6), (4.0, 2.5)),
        fleet(*[(2.0, 1.0)] * 2, *[(1.0, 2.2)] * 5),
        fleet((4.0, 1.0), *[(1.0, 1.3)] * 3),
    )


def judged(name: str, updates: int) -> Judged:
    """Learns, and replays what was not learned from. Orders are the same whenever it is called."""
    torch.set_num_threads(1)
    job = {**REPORTED, **TRIED}[name]()
    fleets = shapes((1, 2, 4, 8), (job.batch, 2 * job.batch, 4 * job.batch))
    seeds = [job.seed + 1 + 100 * learning for learning in range(LEARNINGS)]
    learned = [replayed(job, [(fleet, seed + at) for at, fleet in enumerate(fleets)], updates) for seed in seeds]
    runs = [
        replayed(job, [(fleet, 10_000 + 100 * at + order) for order in range(ORDERS)], updates)
        for at, fleet in enumerate(unseen(job.batch))
    ]
    return held(name, learned, runs)


def replayed(
    job: ElasticJob, wanted: Sequence[tuple[tuple[VirtualWorker, ...], int]], updates: int
) -> list[LossReplay]:
    """Of fleets, each with the seed of its order."""
    data = job.data()
    found = [replay(job, data, fleet, updates, seed, CPU) for fleet, seed in wanted]
    return [each for each in found if each is not None]


def held(name: str, learned: Sequence[Sequence[LossReplay]], runs: Sequence[Sequence[LossReplay]]) -> Judged:
    """The curves of all learnings against all orders of the other fleets."""
    losses = common_losses([each for replays in (*learned, *runs) for each in replays])
    fits = [fit_curve(replays) for replays in learned]
    curves = {
        "printed": [fit_equation(replays, with_r=True) for replays in learned],
        "shipped": [fit_equation(replays, with_r=False) for replays in learned],
        "power": [each.curve.model_copy(update={"levels": ()}) for each in fits],
        "levels": [each.curve for each in fits],
    }
    spreads = [[spread_at(each, float(loss)) or np.inf for loss in losses] for each in fits]
    return Judged(
        name=name,
        predicted={
            form: np.log([[updates_predicted(curve, shape_of(fleet[0]), losses) for fleet in runs] for curve in many])
            for form, many in curves.items()
        },
        took=np.log([[passed(run, losses) for run in fleet] for fleet in runs]),
        whole=np.array([each.spread or np.inf for each in fits])[:, None, None],
        each=np.array(spreads)[:, None, :],
    )


def updates_predicted(
    curve: LossCurve, shape: tuple[np.ndarray, np.ndarray, np.ndarray], losses: np.ndarray
) -> np.ndarray:
    """Updates to each loss; infinite where the curve says that it is never reached."""
    found = [float(updates_to(curve, float(loss), *shape)) for loss in losses]
    return np.array(found)


def errors_of(logs: Sequence[np.ndarray]) -> str:
    """Median and 90th percentile of relative errors; 1 where nothing was predicted."""
    flat = np.concatenate([each.ravel() for each in logs])
    return median_90(np.where(np.isfinite(flat), np.expm1(np.minimum(flat, 700.0)), 1.0))


def against_each(job: Judged, form: str) -> np.ndarray:
    """ln(predicted / replayed) of every order, ``[learning, fleet, order, loss]``."""
    found: np.ndarray = job.predicted[form][:, :, None] - job.took[None]
    return found


def by_order(job: Judged) -> np.ndarray:
    """One order against the geometric mean of the others."""
    found: np.ndarray = (job.took - job.mean[:, None]) * ORDERS / (ORDERS - 1)
    return found


def by_fit(job: Judged) -> np.ndarray:
    """One learning against the mean of all."""
    found: np.ndarray = job.predicted["levels"] - job.predicted["levels"].mean(axis=0)
    return found


def by_form(job: Judged) -> np.ndarray:
    """The mean of all learnings against that of all orders."""
    found: np.ndarray = job.predicted["levels"].mean(axis=0) - job.mean
    return found


def variances(job: Judged) -> np.ndarray:
    """Mean squares of order, fit and form, the last without what is left of the other two in its means."""
    order = job.took.var(axis=1, ddof=1)
    fit = job.predicted["levels"].var(axis=0, ddof=1)
    form = by_form(job) ** 2 - order / ORDERS - fit / LEARNINGS
    return np.array([order.mean(), fit.mean(), form.mean()])


def errors(jobs: Sequence[Judged]) -> str:
    rows = []
    for name, some in groups(jobs):
        cells = [errors_of([against_each(job, form) for job in some]) for form in FORMS]
        cells.append(errors_of([job.predicted["levels"] - job.mean for job in some]))
        cells.append(errors_of([job.took[:, 1::2] - job.took[:, ::2] for job in some]))
        rows.append([name, *cells])
    return table(["job", *FORMS, "levels, of the orders' mean", "two orders of one fleet"], rows)


def causes(jobs: Sequence[Judged]) -> str:
    rows, parts = [], (partial(against_each, form="levels"), by_order, by_fit, by_form)
    for name, some in groups(jobs):
        squares = np.mean([variances(job) for job in some], axis=0)
        shares = ", ".join(f"{each:.0%}" for each in squares / squares.sum())
        rows.append([name, *(errors_of([part(job) for job in some]) for part in parts), shares])
    return table(["job", "all", "order", "fit", "form", "variance: order, fit, form"], rows)


def coverage(jobs: Sequence[Judged]) -> str:
    rows = []
    for name, some in groups(jobs):
        cells = []
        for kind in ("whole", "each"):
            inside = [
                np.abs(against_each(job, "levels")) < NINE_IN_TEN * getattr(job, kind)[:, :, None] for job in some
            ]
            cells.append(f"{np.mean(np.concatenate([each.ravel() for each in inside])):.0%}")
            cells.append(thirds(inside, "{:.0%}"))
        rows.append([name, *cells, thirds([np.expm1(NINE_IN_TEN * job.each) for job in some], "{:.1%}")])
    heads = ("job", "one spread of all losses", "in thirds", "one of each loss", "in thirds")
    return table((*heads, "its 90 % arm, in thirds"), rows)


def thirds(found: Sequence[np.ndarray], form: str) -> str:
    """Means over the highest, middle and lowest losses, which are the last axis."""
    split = [np.array_split(each, 3, axis=-1) for each in found]
    return ", ".join(form.format(np.mean(np.concatenate([parts[at].ravel() for parts in split]))) for at in range(3))


def groups(jobs: Sequence[Judged]) -> Iterator[tuple[str, Sequence[Judged]]]:
    yield from ((job.name, (job,)) for job in jobs)
    if len(jobs) > 1:
        yield "all", jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", choices=[*REPORTED, *TRIED, []], metavar="JOB")
    parser.add_argument("--updates", type=int, default=1000)
    asked = parser.parse_args()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = list(pool.map(partial(judged, updates=asked.updates), asked.jobs or list(REPORTED)))
    took = resource.getrusage(resource.RUSAGE_CHILDREN)
    report(
        f"{asked.updates:,} updates a replay, {took.ru_utime + took.ru_stime:.0f} processor seconds; median and 90th "
        "percentile of errors in updates to a loss",
        errors(jobs),
        "What the levels' errors are made of",
        causes(jobs),
        "How many orders are within the levels' 90 % interval; thirds are high, middle and low losses",
        coverage(jobs),
    )


if __name__ == "__main__":
    main()
