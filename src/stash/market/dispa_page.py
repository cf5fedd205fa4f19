"""The study of 2020 for one job, and what is left of it as its assumptions are taken back, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stash.core.errors import UserError
from stash.market.dispa import POLICIES, StudyAssumptions, StudyLadder, StudyRate, day_grid, ladder
from stash.market.jobs import MarketJob
from stash.market.market_trace import MarketTrace
from stash.ui.charts.chart import Grid
from stash.ui.page import Page

_DAYS = 4.0
CORRECTIONS: tuple[tuple[str, StudyAssumptions], ...] = (
    ("the study", StudyAssumptions()),
    ("whole instances", StudyAssumptions(share_billed=False, whole_price_ranks=False)),
    ("covered starts", StudyAssumptions(share_billed=False, whole_price_ranks=False, uncovered_starts=False)),
    (
        "all GPUs as measured",
        StudyAssumptions(share_billed=False, whole_price_ranks=False, uncovered_starts=False, one_gpu=False),
    ),
)


def study_rates(job: MarketJob) -> dict[str, StudyRate]:
    """Of instances whose rate on one GPU is known; raises UserError if there is none."""
    found = {
        name.rpartition("/")[2]: StudyRate(
            rate.gpus, rate.of_one_gpu, None if rate.known == "assumed" and rate.gpus > 1 else rate.samples_per_second
        )
        for name, rate in job.rates.items()
        if rate.of_one_gpu is not None
    }
    if not found:
        raise UserError(
            "--assume dispa: the study reckons with one GPU's throughput; state of_one_gpu in the job's rates"
        )
    return found


def _ladders(trace: MarketTrace, job: MarketJob, home: str | None) -> Iterator[tuple[str, StudyLadder]]:
    rates = study_rates(job)
    single = [name for name, rate in rates.items() if rate.gpus == 1]
    reference = home or next((name for name in single if any(each.instance == name for each in trace.offers)), None)
    if reference is None:
        raise UserError(
            "--assume dispa: no instance with one GPU has a rate; name what the study stays on with --stay"
        )
    if reference not in rates:
        raise UserError(f"--stay {reference}: the job has no rate of one of its GPUs")
    grid = day_grid(trace)
    days = job.samples / rates[reference].of_one / 86_400 if job.samples > 1 else _DAYS
    for name, assumed in CORRECTIONS:
        yield name, ladder(grid, rates, reference, days, assumed)


def study_page(trace: MarketTrace, job: MarketJob, home: str | None) -> Page:
    """A row for each correction: the cost reduction of every policy."""
    rows = []
    for name, found in _ladders(trace, job, home):
        rows.append((name, str(len(found.starts)), *(f"{found.reduction(each):.2f}" for each in POLICIES[1:])))
    first, last = rows[0], rows[-1]
    return Page(
        title=f"{job.name}, as the study of 2020 reckons",
        verdict=(
            f"The study finds {first[-1]}x for choosing again every day; with whole instances billed, covered starts "
            f"and measured rates it is {last[-1]}x, and {last[-2]}x for choosing once.",
        ),
        grids=(Grid(
            "Mean cost of staying over mean cost", ("starts", *POLICIES[1:]), tuple(rows), frozenset({0}),
            first="reckoned with",
            below="Real times of change, moves and revocations are what the backtest without --assume reckons with.",
        ),),
    )  # fmt: skip


def study_document(trace: MarketTrace, job: MarketJob, home: str | None) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "schema": 1,
        "job": job.name,
        "steps": [
            {
                "name": name,
                "starts": len(found.starts),
                "reduction": {each: found.reduction(each) for each in POLICIES},
                "mean_dollars": dict(zip(POLICIES, found.dollars.mean(axis=1).tolist(), strict=True)),
            }
            for name, found in _ladders(trace, job, home)
        ],
    }
