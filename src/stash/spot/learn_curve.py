"""Learns how a job's loss falls: replays one fleet after the other within a budget, and fits a curve to them.

What has been replayed when the budget or the user ends it makes the curve; a fleet that diverges is left out.
Knows how long replays take here, and nothing of files or terminals.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal, TypeVar

import torch

from stash.core.errors import UserError
from stash.core.records.base import utc_now
from stash.core.units import format_count, format_seconds
from stash.core.version import __version__
from stash.spot.model.loss_curve import Fleet, fit_curve, list_fleets
from stash.spot.replay import DivergedError, Server, replay
from stash.spot.run_records import LOSS_WINDOW, FittedLoss, LearnedCurve, LossReplay
from stash.spot.train.elastic_job import ElasticJob
from stash.spot.train.samples import Data, SampleOrder, samples_of

T = TypeVar("T")
Ended = Literal["done", "budget", "interrupted"]
MIN_UPDATES = 4 * LOSS_WINDOW
"""Of a replay: a course over less says nothing but its first window."""
MAX_UPDATES = 10_000
"""Of a replay."""
_TIMED = 3
"""Updates that the pace of a batch is taken from, after one that is not timed."""
_OF_BUDGET = 0.9
"""That replays are planned to take: paces are taken from a few updates."""
_APPLIED = 9
"""Times that an update is applied to time it."""


@dataclass(frozen=True)
class _Bench:
    """What is replayed, where, under which name."""

    job: ElasticJob
    name: str
    data: Data
    samples: int
    device: torch.device


def learn(
    job: ElasticJob,
    name: str,
    sizes: Sequence[int],
    batches: Sequence[int],
    budget_seconds: float,
    say: Callable[[str], None] = lambda sentence: None,
    clock: Callable[[], float] = time.monotonic,
) -> LearnedCurve:
    """The curve of ``job``, whose file and name are ``name``; raises UserError if too little could be replayed.

    Every number of workers of ``sizes`` is replayed with every batch, for as many updates as the budget allows.
    ``say`` gets a sentence about each replay that begins.
    """
    data = _explain_failure(name, "its data set cannot be made", job.data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bench = _Bench(job, name, data, samples_of(data, name), device)
    if max(batches) > bench.samples:
        raise UserError(
            f"{name}: its data set has {format_count(bench.samples, 'sample')}, and replays take up to "
            f"{max(batches)} in a batch, four times the job's; give the job a smaller batch"
        )
    until = clock() + budget_seconds
    times = [_try_update(bench, each, partial(_update_seconds, bench, each)) for each in batches]
    costs = dict(zip(batches, times, strict=True))
    fleets = list_fleets(sizes, batches)
    updates = _affordable(costs, fleets, until - clock())
    found, left_out, ended = _replay_fleets(bench, fleets, updates, say, lambda: clock() < until)
    server = Server(job, torch.device("cpu"))
    sizes_in_bytes = [each.numel() * each.element_size() for each in server.parameters]
    return LearnedCurve(
        stash_version=__version__,
        created=utc_now(),
        job=name,
        device=_device_name(device),
        batch=job.batch,
        samples=bench.samples,
        parameters=sum(each.numel() for each in server.parameters),
        parameter_bytes=sum(sizes_in_bytes),
        apply_seconds=_apply_seconds(server),
        window=LOSS_WINDOW,
        seed=job.seed,
        replays=tuple(found),
        fitted=_fit_replays(found, left_out, ended),
        ended=ended,
        left_out=tuple(left_out),
        optimizer_bytes=server.optimizer_bytes,
        buffer_bytes=sum(each.numel() * each.element_size() for each in server.model.buffers()),
        largest_bytes=max(sizes_in_bytes),
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {format_count(torch.get_num_threads(), 'thread')}"


def _affordable(costs: dict[int, float], fleets: Sequence[Fleet], budget: float) -> int:
    """Updates of each replay that the budget has time for; raises UserError if they are too few to see anything."""
    seconds_an_update = sum(costs[each[0].samples] for each in fleets)
    updates = math.floor(_OF_BUDGET * budget / seconds_an_update)
    if updates < MIN_UPDATES:
        slowest = max(costs)
        needed = math.ceil(MIN_UPDATES * seconds_an_update / _OF_BUDGET / 60)
        raise UserError(
            f"an update of {slowest} samples takes {format_seconds(costs[slowest])} here, so --budget is enough for "
            f"{format_count(updates, 'update')} of each of {len(fleets)} fleets, and {MIN_UPDATES} are the least "
            f"that "
            f"show a course; allow --budget {needed}min, or replay less, like --fleet-sizes 1,4"
        )
    return min(updates, MAX_UPDATES)


def _replay_fleets(
    bench: _Bench,
    fleets: Sequence[Fleet],
    updates: int,
    say: Callable[[str], None],
    has_time: Callable[[], bool],
) -> tuple[list[LossReplay], list[str], Ended]:
    """What was replayed, what was left out and why, and what ended it."""
    found: list[LossReplay] = []
    left_out: list[str] = []
    for number, fleet in enumerate(fleets):
        called = (
            f"{format_count(len(fleet), 'worker')} of {format_count(fleet[0].samples, 'sample')}"
        )
        seed = bench.job.seed + 1 + number
        run = partial(
            replay,
            bench.job,
            bench.data,
            fleet,
            updates,
            seed,
            bench.device,
            has_time,
        )
        try:
            say(f"replay {number + 1} of {len(fleets)}: {called}, {updates:,} updates")
            one = _try_update(bench, fleet[0].samples, run)
        except DivergedError as end:
            left_out.append(
                f"{called}: the loss is no number any more after {format_count(end.updates, 'update')}"
            )
            continue
        except KeyboardInterrupt:
            return found, left_out, "interrupted"
        if one is None:
            return found, left_out, "budget"
        if one.losses[-1] >= one.losses[0]:
            left_out.append(
                f"{called}: the loss went from {one.losses[0]:.4g} to {one.losses[-1]:.4g}"
            )
            continue
        found.append(one)
    return found, left_out, "done"


def _fit_replays(found: Sequence[LossReplay], left_out: Sequence[str], ended: Ended) -> FittedLoss:
    """The curve; raises UserError that begins with why there are too few replays, where it is not by choice."""
    try:
        return fit_curve(found)
    except UserError as error:
        why = f"{ended} after {format_count(len(found), 'replay')}: " if ended != "done" else ""
        if left_out:
            why = f"{format_count(len(left_out), 'fleet')} did not learn ({left_out[0]}); try a smaller learning rate: "
        raise UserError(f"{why}{error}") from error


def _try_update(bench: _Bench, batch: int, do: Callable[[], T]) -> T:
    return _explain_failure(bench.name, f"an update of {format_count(batch, 'sample')} fails", do)


def _explain_failure(name: str, what: str, do: Callable[[], T]) -> T:
    """What ``do`` returns; a job's own exception becomes a UserError of one sentence."""
    try:
        return do()
    except (UserError, DivergedError):
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{name}: {what}: {type(error).__name__}: {reason}") from error


def _update_seconds(bench: _Bench, batch: int) -> float:
    """Of a gradient and its update, on this machine."""
    server = Server(bench.job, bench.device)
    order = iter(SampleOrder(bench.samples, bench.job.seed))
    server.apply(server.gradient(bench.data, order, batch))
    began = time.perf_counter()
    for _ in range(_TIMED):
        server.apply(server.gradient(bench.data, order, batch))
    return (time.perf_counter() - began) / _TIMED


def _apply_seconds(server: Server) -> float:
    """Of one update on one core: the median of several, of gradients that are 0."""
    threads = torch.get_num_threads()
    took = []
    torch.set_num_threads(1)
    try:
        for _ in range(_APPLIED):
            nothing = server.zero_gradient()
            began = time.perf_counter()
            server.apply(nothing)
            took.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return median(took)
