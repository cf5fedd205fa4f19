"""A plan and a job in, the parts of a rehearsal out, as much slower as this machine needs to play them.

Everything is slowed by one factor, and bytes are those of the job that is really trained, so that whatever waits for
whatever in the plan does so in the rehearsal. The only measurement is one gradient of the job's on this machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stash.api import TESTBED_NODES
from stash.core.errors import JobError, UserError, one_line
from stash.core.units import format_bytes
from stash.spot.fleet_records import FleetPlan, FleetPool, WorkerType
from stash.spot.model.stretches import predicted_speed
from stash.spot.train.elastic_job import ElasticJob, load_job
from stash.spot.train.ledger import DataLease
from stash.spot.train.run_orders import TrainingOrders, WorkerPlace
from stash.spot.train.server import build_model, list_parts
from stash.spot.train.worker import Trainer, devices_here

FACTORS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_BUSY = 0.5
"""Of this machine's cores, that computing may take: the rest is for exchanging, and for being in time."""
_BYTES_PER_SECOND = 100e6
"""That two cores move between emulated hosts without being late, both ways together; measured where 250e6 pass."""
_MIN_RATE = 20e3
"""Bytes per second of a link. Below, Ray's own messages are late and its machines count as gone, as seen at 440."""


@dataclass(frozen=True)
class EmulatedFleet:
    """What to emulate."""

    slower: float
    worker_rate: float
    """Bytes per second of a worker's link, each way."""
    server_rate: float
    apply_seconds: float
    """That one update keeps one server busy."""
    pace: dict[str, float]
    """By type: seconds of an iteration without its exchange."""


def emulate_fleet(pool: FleetPool, exchange_bytes: float, slower: float) -> EmulatedFleet:
    """The pool's machines for a job of so many bytes; raises UserError if the pool contradicts itself."""
    server = pool.server
    ratio = exchange_bytes / pool.exchange_bytes / slower
    apply = server.apply_seconds / server.count / server.cores
    link = max(
        pool.exchange_bytes / pool.worker_bytes_per_second,
        pool.exchange_bytes / server.count / server.bytes_per_second,
    )
    pace = {kind.name: kind.single_seconds - 2 * link - apply for kind in pool.types}
    wrong = next((name for name, seconds in pace.items() if seconds <= 0), None)
    if wrong is not None:
        raise UserError(
            f"the plan's pool says that {wrong} takes less time for an iteration than for its exchange alone: one of "
            "samples_per_second, exchange_bytes and worker_bytes_per_second is wrong; measure them, and plan again"
        )
    rate = min(pool.worker_bytes_per_second, server.bytes_per_second) * ratio
    if rate < _MIN_RATE:
        least = format_bytes(exchange_bytes * _MIN_RATE / rate)
        raise UserError(
            f"the job's {format_bytes(exchange_bytes)} an update stand for the plan's "
            f"{format_bytes(pool.exchange_bytes)}, so a link would have to carry {format_bytes(rate)}/s, less than "
            f"what keeps machines together; rehearse it with a model of {least} at least, or --on local"
        )
    return EmulatedFleet(
        slower=slower,
        worker_rate=pool.worker_bytes_per_second * ratio,
        server_rate=server.bytes_per_second * ratio,
        apply_seconds=apply * slower,
        pace={name: seconds * slower for name, seconds in pace.items()},
    )


def least_slower(
    pool: FleetPool,
    workers: Mapping[str, int],
    updates_per_second: float,
    exchange_bytes: float,
    sample_seconds: float,
    cores: int,
) -> int:
    """The smallest of ``FACTORS`` at which this machine keeps up; raises UserError if none is enough.

    ``sample_seconds``: processor time of one sample's gradient here; ``updates_per_second`` as planned.
    """
    kinds = [kind for kind in pool.types if workers.get(kind.name)]
    load = (
        sum(workers[kind.name] * kind.samples / kind.single_seconds for kind in kinds)
        * sample_seconds
    )
    for factor in FACTORS:
        pace = emulate_fleet(pool, exchange_bytes, factor).pace
        in_time = all(kind.samples * sample_seconds < _BUSY * pace[kind.name] for kind in kinds)
        moved = 2 * exchange_bytes * updates_per_second / factor
        if in_time and load / factor <= _BUSY * cores and moved <= _BYTES_PER_SECOND:
            return factor
    raise UserError(
        f"this machine would need more than {FACTORS[-1]} times as long as the plan's fleet to train the job; "
        "rehearse it with a smaller model or batch"
    )


@dataclass(frozen=True)
class RehearsedFleet:
    """Who plays, and what is emulated: nothing where links cannot be shaped."""

    servers: tuple[str, ...]
    workers: tuple[WorkerPlace, ...]
    emulated: EmulatedFleet | None
    at_once: int

    def updates_per_second(self, plan: FleetPlan, workers: dict[str, int]) -> float | None:
        """Updates per second that are predicted of some of them; ``None`` where nothing is emulated."""
        if self.emulated is None:
            return None
        return predicted_speed(plan.pool, workers) / self.emulated.slower


def rehearsed_fleet(plan: FleetPlan, where: str, on_testbed: bool) -> RehearsedFleet:
    """Everybody that a plan needs to train the job at ``where``; raises UserError, JobError if the job fails."""
    kinds = machines(plan)
    assert plan.chosen is not None
    job = load_job(where)
    servers = tuple(f"server{number}" for number in range(1, plan.pool.server.count + 1))
    size, sample_seconds = _measure_job(job, len(servers))
    fleet = None
    if on_testbed:
        speed = predicted_speed(plan.pool, plan.chosen.workers)
        cores = len(os.sched_getaffinity(0))
        slower = least_slower(plan.pool, plan.chosen.workers, speed, size, sample_seconds, cores)
        fleet = emulate_fleet(plan.pool, size, slower)
    workers = tuple(
        WorkerPlace(
            name=f"worker{number}",
            type=kind.name,
            samples=max(1, round(kind.samples)) if on_testbed else job.batch,
            seconds=0.0 if fleet is None else fleet.pace[kind.name],
        )
        for number, kind in enumerate(kinds, start=1)
    )
    if on_testbed and 1 + len(servers) + len(workers) > TESTBED_NODES:
        raise UserError(
            f"the plan has {len(workers)} workers; a testbed has {TESTBED_NODES} hosts at most"
        )
    return RehearsedFleet(servers, workers, fleet, plan.pool.senders)


def machines(plan: FleetPlan) -> list[WorkerType]:
    """The type of every worker that the plan chose; raises UserError if it chose none."""
    if plan.chosen is None:
        raise UserError(
            "the plan chose no fleet; plan again with a looser --deadline, --loss or --quota"
        )
    return [kind for kind in plan.pool.types for _ in range(plan.chosen.workers.get(kind.name, 0))]


def orders_of(
    chosen: RehearsedFleet,
    where: str,
    checkpoints: Path,
    seconds: float,
    loss: float | None,
    every: float,
) -> TrainingOrders:
    """What the head is asked to do; the model is kept with the checkpoints."""
    path, _, name = where.rpartition(":")
    return TrainingOrders(
        job=f"{Path(path).resolve()}:{name}",
        checkpoints=str(checkpoints.resolve()),
        servers=chosen.servers,
        workers=chosen.workers,
        seconds=seconds,
        loss=loss,
        checkpoint_seconds=every,
        at_once=chosen.at_once,
        apply_seconds=0.0 if chosen.emulated is None else chosen.emulated.apply_seconds,
        model=str(checkpoints.resolve() / "model.pt"),
    )


def _measure_job(job: ElasticJob, servers: int) -> tuple[float, float]:
    """Bytes that are exchanged one way, and processor seconds of one sample's gradient on this machine."""
    try:
        model = build_model(job)
        list_parts(model, servers)  # says so if they cannot share it
        trainer = Trainer(job, servers, job.batch, devices_here(1))
        trainer.gradients(DataLease(0, job.batch))
        began = time.process_time()
        trainer.gradients(DataLease(job.batch, 2 * job.batch))
    except UserError:
        raise
    except Exception as error:
        raise JobError(
            f"the job failed before it trained: {type(error).__name__}: {one_line(error)}"
        ) from error
    size = sum(
        each.numel() * each.element_size() for each in model.parameters() if each.requires_grad
    )
    return float(size), (time.process_time() - began) / job.batch
