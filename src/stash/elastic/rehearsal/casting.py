"""A plan and a job in, the parts of a rehearsal out: which workers and servers, and how slow this machine must play.

The only measurement is one gradient of the job's on this machine. Starts nothing.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stash.base.errors import JobError, UserError, one_line
from stash.base.spot.fleets import FleetPlan, WorkerType
from stash.derive.spot.speed.stretches import predicted_speed
from stash.elastic.job import ElasticJob, load_job
from stash.elastic.local.scaling import EmulatedFleet, emulated, least_slower
from stash.elastic.running.orders import TrainingOrders, WorkerPlace
from stash.elastic.training.frames import Tray
from stash.elastic.training.ledger import DataLease
from stash.elastic.training.server import ParameterShard, build_model, parts
from stash.elastic.training.worker import Trainer
from stash.lab.testbed.topology import MOST_NODES

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Cast:
    """Who plays, and what is emulated: nothing where links cannot be shaped."""

    servers: tuple[str, ...]
    workers: tuple[WorkerPlace, ...]
    emulated: EmulatedFleet | None
    exchange_bytes: float
    at_once: int

    def speed(self, plan: FleetPlan, workers: dict[str, int], bound: int | None) -> float | None:
        """Updates per second that are predicted of some of them; ``None`` where nothing is emulated."""
        if self.emulated is None:
            return None
        return predicted_speed(plan.pool, plan.model, workers, bound is not None) / self.emulated.slower


def cast(plan: FleetPlan, where: str, on_testbed: bool, slower: float | None) -> Cast:
    """Everybody that a plan needs to train the job at ``where``; raises UserError, JobError if the job fails."""
    kinds = machines(plan)
    assert plan.chosen is not None
    job = load_job(where)
    servers = tuple(f"server{number}" for number in range(1, plan.pool.server.count + 1))
    size, sample_seconds = _measured(job, len(servers))
    fleet = None
    if on_testbed:
        if slower is None:
            speed = predicted_speed(plan.pool, plan.model, plan.chosen.workers)
            cores = len(os.sched_getaffinity(0))
            slower = least_slower(plan.pool, plan.chosen.workers, speed, size, sample_seconds, cores)
        fleet = emulated(plan.pool, size, slower)
    workers = tuple(
        WorkerPlace(
            name=f"worker{number}",
            type=kind.name,
            samples=max(1, round(kind.samples)) if on_testbed else job.batch,
            seconds=0.0 if fleet is None else fleet.pace[kind.name],
        )
        for number, kind in enumerate(kinds, start=1)
    )
    if on_testbed and 1 + len(servers) + len(workers) > MOST_NODES:
        raise UserError(f"the plan has {len(workers)} workers; a testbed has {MOST_NODES} hosts at most")
    server = plan.pool.server.bytes_per_second
    return Cast(servers, workers, fleet, size, math.ceil(server / plan.pool.worker_bytes_per_second))


def machines(plan: FleetPlan) -> list[WorkerType]:
    """The type of every worker that the plan chose; raises UserError if it chose none."""
    if plan.chosen is None:
        raise UserError("the plan chose no fleet; plan again with a looser --deadline, --loss or --quota")
    return [kind for kind in plan.pool.types for _ in range(plan.chosen.workers.get(kind.name, 0))]


def orders_of(
    chosen: Cast, where: str, checkpoints: Path, bound: int | None, seconds: float, loss: float | None, every: float
) -> TrainingOrders:
    """What the head is asked to do; the model is kept beside the checkpoints."""
    return TrainingOrders(
        job=_absolute(where),
        checkpoints=str(checkpoints.resolve()),
        servers=chosen.servers,
        workers=chosen.workers,
        bound=bound,
        seconds=seconds,
        loss=loss,
        checkpoint_seconds=every,
        at_once=chosen.at_once,
        apply_seconds=0.0 if chosen.emulated is None else chosen.emulated.apply_seconds,
        model=str(checkpoints.resolve() / "model.pt"),
    )


def _measured(job: ElasticJob, servers: int) -> tuple[float, float]:
    """Bytes that are exchanged one way, and processor seconds of one sample's gradient on this machine."""
    try:
        model = build_model(job)
        parts(model, servers)  # says so if they cannot share it
        trainer = Trainer(job, servers, job.batch)
        _, gradients = trainer.gradients(DataLease(0, job.batch))
        for number, its_own in enumerate(gradients):
            _try_update(job, number, servers, its_own)
        began = time.process_time()
        trainer.gradients(DataLease(job.batch, 2 * job.batch))
    except UserError:
        raise
    except Exception as error:
        raise JobError(f"the job failed before it trained: {type(error).__name__}: {one_line(error)}") from error
    size = sum(each.numel() * each.element_size() for each in model.parameters() if each.requires_grad)
    return float(size), (time.process_time() - began) / job.batch


def _try_update(job: ElasticJob, number: int, servers: int, gradients: Sequence[Tensor | None]) -> None:
    """Have a server's optimizer apply one update here; raises UserError if it cannot."""
    shard = ParameterShard(job, number, servers)
    tray = Tray(shard.tensors)
    try:
        tray.fill(gradients)
        shard.take(DataLease(0, job.batch), tray, tray)
    except Exception as error:
        raise UserError(
            f"a server cannot apply this job's gradients: {one_line(error)}; servers call step() "
            "without a closure on dense gradients, as SGD, Adam, AdamW, RMSprop and Adagrad take them"
        ) from error


def _absolute(where: str) -> str:
    path, _, name = where.rpartition(":")
    return f"{Path(path).resolve()}:{name}"
