"""Whether a shared cluster is worth its money: what its users pay, what the cloud would ask, and who leaves.

After *Is Sharing Caring?* (ICPE 2023): capacity is paid whether it is used or not. A user stays if π·h + v·waiting is
at most the cloud's bill and waits are at most θ times runtimes in the mean. Who leaves takes the hours along, so the
price of those who stay rises, until nobody moves. Pure; how jobs queue is asked of a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stash.schedule.matrix import RateMatrix
from stash.schedule.records import HOUR, QueuedJob
from stash.schedule.simulate import ScheduleCourse

MOST_STEPS = 100


@dataclass(frozen=True)
class CloudPrice:
    """One instance type of a cloud."""

    instance: str
    gpu: str
    """As the matrix calls it."""
    gpus: int
    dollars_per_hour: float


@dataclass(frozen=True)
class LeavingRules:
    """By what users decide."""

    cloud: CloudPrice
    waiting_dollars: float
    """v: what an hour of waiting costs its user."""
    defect_at: float = 15.0
    """θ: times their runtimes that users wait at most, in the mean."""


@dataclass(frozen=True)
class UserBill:
    """One user at one step."""

    user: str
    jobs: int
    gpu_hours: float
    waiting_hours: float
    own: float
    """Dollars: π·h + v·waiting."""
    cloud: float | None
    """``None`` where nothing says how fast a job is there."""
    stays: bool
    why: str


@dataclass(frozen=True)
class DefectionStep:
    """One round of decisions."""

    price: float
    """π: dollars per GPU-hour used."""
    utilisation: float
    bills: tuple[UserBill, ...]

    @property
    def leaving(self) -> tuple[str, ...]:
        return tuple(bill.user for bill in self.bills if not bill.stays)


@dataclass(frozen=True)
class Economics:
    """The path to where nobody moves."""

    rules: LeavingRules
    hourly: float
    hours: float
    """That are paid: from the first submission to the last end, with everybody there."""
    steps: tuple[DefectionStep, ...]
    left: tuple[str, ...]
    break_even: float | None
    """Utilisation above which the own cluster is cheaper than the cloud for these jobs."""
    cloud_total: float | None
    """Dollars of all jobs in the cloud."""
    unknown: tuple[str, ...]
    """Models without a rate in the cloud."""

    @property
    def staying(self) -> tuple[str, ...]:
        return (
            tuple(bill.user for bill in self.steps[-1].bills) if not self.steps[-1].leaving else ()
        )


def cloud_seconds(
    job: QueuedJob, matrix: RateMatrix, cloud: CloudPrice
) -> tuple[float, int] | None:
    """How long a job runs there, and on how many instances; ``None`` where no rate is known."""
    machines = math.ceil(job.gpus / cloud.gpus)
    find = matrix.packed_rate if machines == 1 else matrix.rate
    known = find(job.model, job.gpus, cloud.gpu, machines)
    if known is None or known.value <= 0:
        return None
    return (job.steps - job.done) / known.value, machines


def cloud_bills(
    jobs: Sequence[QueuedJob], matrix: RateMatrix, cloud: CloudPrice
) -> dict[str, float | None]:
    """Dollars per user with every job started when it is submitted, billed by the second."""
    bills: dict[str, float | None] = {}
    for job in jobs:
        found = cloud_seconds(job, matrix, cloud)
        before = bills.get(job.user, 0.0)
        if found is None:
            bills[job.user] = None
            continue
        seconds, machines = found
        bills[job.user] = (
            None if before is None else before + seconds / HOUR * machines * cloud.dollars_per_hour
        )
    return bills


def equilibrium(
    jobs: Sequence[QueuedJob],
    gpus: int,
    hourly: float,
    matrix: RateMatrix,
    queued: Callable[[Sequence[QueuedJob]], ScheduleCourse],
    rules: LeavingRules,
) -> Economics:
    """Who stays: users decide at once, who leaves never comes back, and queues are simulated again without them."""
    bills = cloud_bills(jobs, matrix, rules.cloud)
    lacking = [job for job in jobs if cloud_seconds(job, matrix, rules.cloud) is None]
    unknown = tuple(dict.fromkeys(f"{job.model} on {job.gpus}" for job in lacking))
    course = queued(jobs)
    hours = course.end / HOUR
    known = [bill for bill in bills.values() if bill is not None]
    total = sum(known) if len(known) == len(bills) else None
    used = float(course.served.sum()) / HOUR
    break_even = None if total is None or total <= 0 else hourly / (total / used * gpus)
    here = list(jobs)
    left = list[str]()
    steps = list[DefectionStep]()
    for _ in range(MOST_STEPS):
        if not here:
            break
        step = _step(here, course, hourly * hours, gpus * hours, bills, rules)
        steps.append(step)
        if not step.leaving:
            break
        left += step.leaving
        here = [job for job in here if job.user not in step.leaving]
        if here:
            course = queued(here)
    return Economics(rules, hourly, hours, tuple(steps), tuple(left), break_even, total, unknown)


def _step(
    jobs: Sequence[QueuedJob],
    course: ScheduleCourse,
    paid: float,
    gpu_hours: float,
    clouds: Mapping[str, float | None],
    rules: LeavingRules,
) -> DefectionStep:
    users = list(dict.fromkeys(job.user for job in jobs))
    of_user = np.array([users.index(job.user) for job in course.jobs])
    held = course.served.sum(axis=1) / HOUR
    waits = (course.finish - course.submit - course.held) / HOUR
    runs = course.held / HOUR
    price = paid / float(held.sum())
    bills = []
    for number, user in enumerate(users):
        own = of_user == number
        waiting = float(waits[own].sum())
        cost = price * float(held[own].sum()) + rules.waiting_dollars * waiting
        wait = float(waits[own].mean())
        run = float(runs[own].mean())
        cloud = clouds[user]
        why = ""
        if cloud is not None and cost > cloud:
            why = "the cloud costs less"
        elif wait > rules.defect_at * run:
            why = f"waits are {wait / run:.1f} times runtimes"
        bills.append(
            UserBill(
                user, int(own.sum()), float(held[own].sum()), waiting, cost, cloud, not why, why
            )
        )
    return DefectionStep(price, float(held.sum()) / gpu_hours, tuple(bills))
