"""The account of a run as the log that is kept of it, beside what its plan predicts of each fleet that it had."""

from __future__ import annotations

from pathlib import Path
from typing import cast as typed

from stash.base.records.base import now
from stash.base.spot.fleets import FleetPlan
from stash.base.spot.log import SpotGround, SpotLog
from stash.base.spot.running_loss import LOSS_WINDOW
from stash.base.version import __version__
from stash.derive.spot.speed.stretches import outages, stretches, takeovers
from stash.elastic.rehearsal.casting import Cast
from stash.elastic.rehearsal.playing import Rehearsal
from stash.elastic.running.orders import TrainingOrders


def retold(
    rehearsal: Rehearsal, named: tuple[Path, str, str], plan: FleetPlan, chosen: Cast, orders: TrainingOrders
) -> SpotLog:
    """``named``: the plan's file, the job, and where it was played."""
    account, (path, job, on) = rehearsal.account, named
    times = account.updates.seconds
    return SpotLog(
        stash_version=__version__,
        created=now(),
        plan=str(path),
        job=job,
        on=typed(SpotGround, on),
        model=plan.model,
        slower=1.0 if chosen.emulated is None else chosen.emulated.slower,
        bound=orders.bound,
        servers=len(orders.servers),
        reason=account.reason,
        seconds=times[-1] - times[0] if len(times) > 1 else None,
        loss=account.loss,
        loss_window=LOSS_WINDOW,
        stretches=stretches(
            account.updates,
            rehearsal.types,
            outages(account.events, times[-1] if times else 0.0),
            lambda workers: chosen.speed(plan, dict(workers), orders.bound),
        ),
        takeovers=takeovers(account.events, account.updates),
        events=tuple(account.events),
        updates=account.updates,
        books=account.books,
        goal_loss=plan.loss if orders.loss is None else orders.loss,
        goal_seconds=_goal_seconds(plan, chosen, orders),
        saved=account.saved,
    )


def _goal_seconds(plan: FleetPlan, chosen: Cast, orders: TrainingOrders) -> float | None:
    """Of the plan's fleet, undisturbed; ``None`` where nothing is predicted, or another loss is wanted."""
    if plan.chosen is None or orders.loss not in (None, plan.loss):
        return None
    speed = chosen.speed(plan, dict(plan.chosen.workers), orders.bound)
    return plan.chosen.updates / speed if speed else None
