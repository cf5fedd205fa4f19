"""A plan, a job and revocations as users write them in, the parts of a rehearsal on this machine out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from stash.core.errors import JobError, UnitError, UserError, one_line
from stash.core.units import parse_seconds
from stash.spot.fleet_records import FleetPlan
from stash.spot.train.elastic_job import load_job
from stash.spot.train.ledger import DataLease
from stash.spot.train.run_orders import TrainingOrders, WorkerPlace
from stash.spot.train.server import build_model, list_parts
from stash.spot.train.worker import Trainer, devices_here

EXAMPLE = "worker2@40s,notice=20s"


def rehearsal_orders(
    plan: FleetPlan,
    where: str,
    checkpoints: Path,
    seconds: float,
    loss: float | None,
    every: float,
) -> TrainingOrders:
    """What the head is asked to do for a plan with the job at ``where``; the model is kept with the checkpoints.

    One gradient of the job is computed: raises JobError where that fails, UserError where the plan chose no fleet or
    so many servers cannot share the model.
    """
    if plan.chosen is None:
        raise UserError(
            "the plan chose no fleet; plan again with a looser --deadline, --loss or --quota"
        )
    count = plan.pool.server.count
    job = load_job(where)
    try:
        list_parts(build_model(job), count)
        Trainer(job, count, job.batch, devices_here(1)).gradients(DataLease(0, job.batch))
    except UserError:
        raise
    except Exception as error:
        raise JobError(
            f"the job failed before it trained: {type(error).__name__}: {one_line(error)}"
        ) from error
    path, _, name = where.rpartition(":")
    folder = checkpoints.resolve()
    return TrainingOrders(
        job=f"{Path(path).resolve()}:{name}",
        checkpoints=str(folder),
        servers=tuple(f"server{number}" for number in range(1, count + 1)),
        workers=tuple(
            WorkerPlace(name=f"worker{number}", type=kind.name, samples=job.batch)
            for number, kind in enumerate(plan.planned_workers, start=1)
        ),
        seconds=seconds,
        loss=loss,
        checkpoint_seconds=every,
        at_once=plan.pool.senders,
        model=str(folder / "model.pt"),
    )


@dataclass(frozen=True)
class Revocation:
    """One machine, or all of a type, that are taken away."""

    who: str
    at: float
    """Seconds after training began: when it gets notice, or vanishes if it gets none."""
    notice: float | None = None
    """Seconds between the two."""


def parse_revocation(text: str) -> Revocation:
    """``worker2@40s,notice=20s``, or ``v100@1m`` for all of that type without a word; raises UserError."""
    who, at, rest = text.partition("@")
    when, comma, more = rest.partition(",")
    name, equals, notice = more.partition("=")
    if not who.strip() or not at or (comma and (name.strip() != "notice" or not equals)):
        raise UserError(f"--revoke {text!r} cannot be read; write it like {EXAMPLE}")
    times = (when, notice) if comma else (when,)
    try:
        seconds = [parse_seconds(each.strip(), named="s") for each in times]
    except UnitError as error:
        raise UserError(f"--revoke {text!r}: {error}; write it like {EXAMPLE}") from error
    if not all(each >= 0 and math.isfinite(each) for each in seconds):
        raise UserError(
            f"--revoke {text!r}: a time cannot be below 0 or endless; write it like {EXAMPLE}"
        )
    return Revocation(who.strip(), *seconds)


def check_revocation(revocation: Revocation, orders: TrainingOrders) -> None:
    """Raise UserError for one that the fleet cannot have."""
    what = f"--revoke {revocation.who}"
    types = sorted({each.type for each in orders.workers})
    known = [*(each.name for each in orders.workers), *orders.servers, *types]
    if revocation.who not in known:
        raise UserError(f"{what}: the plan's fleet has no such one; it has {', '.join(known)}")
    if revocation.notice is not None and revocation.who in orders.servers:
        raise UserError(f"{what}: servers are on-demand and get no notice; leave notice= out")
    if orders.seconds is not None and revocation.at >= orders.seconds:
        raise UserError(
            f"{what}@{revocation.at:g}s: training ends after {orders.seconds:g} s; raise --seconds"
        )
