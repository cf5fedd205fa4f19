"""A plan and a job in, the parts of a rehearsal on this machine out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stash.core.errors import JobError, UserError, one_line
from stash.spot.fleet_records import FleetPlan, WorkerType
from stash.spot.train.elastic_job import ElasticJob, load_job
from stash.spot.train.ledger import DataLease
from stash.spot.train.run_orders import TrainingOrders, WorkerPlace
from stash.spot.train.server import build_model, list_parts
from stash.spot.train.worker import Trainer, devices_here


@dataclass(frozen=True)
class RehearsedFleet:
    """Who plays."""

    servers: tuple[str, ...]
    workers: tuple[WorkerPlace, ...]
    at_once: int


def rehearsed_fleet(plan: FleetPlan, where: str) -> RehearsedFleet:
    """Everybody that a plan needs to train the job at ``where``; raises UserError, JobError if the job fails."""
    kinds = machines(plan)
    job = load_job(where)
    servers = tuple(f"server{number}" for number in range(1, plan.pool.server.count + 1))
    _check_job(job, len(servers))
    workers = tuple(
        WorkerPlace(name=f"worker{number}", type=kind.name, samples=job.batch)
        for number, kind in enumerate(kinds, start=1)
    )
    return RehearsedFleet(servers, workers, plan.pool.senders)


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
        model=str(checkpoints.resolve() / "model.pt"),
    )


def _check_job(job: ElasticJob, servers: int) -> None:
    """Compute one gradient: raises JobError where that fails, UserError where so many servers cannot share the model."""
    try:
        list_parts(build_model(job), servers)
        Trainer(job, servers, job.batch, devices_here(1)).gradients(DataLease(0, job.batch))
    except UserError:
        raise
    except Exception as error:
        raise JobError(
            f"the job failed before it trained: {type(error).__name__}: {one_line(error)}"
        ) from error
