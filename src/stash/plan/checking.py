"""A plan held against a later profile of one of its choices: as planned, in time, within the budget.

A profile is of a choice by its instance type, or by its GPUs where a machine does not say its type. What of loading a
profile does not tell is counted as planned: a stall that it lacks, and fetch where the plan's step is one after the
first epoch, when memory holds the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stash.analysis.breakdown import Breakdown, ranks_per_node
from stash.analysis.comparison import STEP, estimate_figure
from stash.analysis.findings.machine import model_of
from stash.analysis.limits import CANNOT_TELL, FAILS, PASSES, Decision
from stash.catalog.machines import is_called
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.formatting import (
    dollars_interval,
    format_dollars,
    format_quantity,
    format_span,
    join_names,
    span_interval,
)
from stash.core.intervals import Interval, subtract_runs
from stash.core.ladder import DATA_STALLS
from stash.core.records.profile import Profile
from stash.plan.bill import HOUR
from stash.plan.records import Choice, RentalPlan

_SAME = 0.005
"""Of the samples of a step: what counting them block by block may differ by."""


def check_plan(plan: RentalPlan, choice: Choice, breakdown: Breakdown) -> list[Decision]:
    """What became of the step, the deadline and the budget by a profile of ``choice``."""
    step = _measured_step(choice, breakdown)
    seconds, cost = (
        step.scale(choice.steps),
        step.scale(choice.steps * choice.rented.dollars_per_hour / HOUR),
    )
    for item in choice.items:
        if item.name != "training":
            seconds, cost = seconds.shift(item.seconds.value), cost.shift(item.dollars.value)
    found = [
        Decision(
            limit=STEP,
            verdict=_judge_change(subtract_runs(choice.step, step), 0.0),
            sentence=f"the step of {choice.name} is {format_quantity(step, 'seconds')}; planned was "
            f"{format_quantity(choice.step, 'seconds')}",
        )
    ]
    if (deadline := plan.goal.deadline_seconds) is not None:
        text = f"at this step the training takes {span_interval(seconds)}; the deadline is {format_span(deadline)}"
        found.append(
            Decision(limit="deadline", verdict=_judge_change(seconds, deadline), sentence=text)
        )
    if (budget := plan.goal.budget_dollars) is not None:
        text = f"at this step the training costs {dollars_interval(cost)}; the budget is {format_dollars(budget)}"
        found.append(Decision(limit="budget", verdict=_judge_change(cost, budget), sentence=text))
    return found


def _judge_change(found: Interval, most: float) -> str:
    """Of a change from what was planned, whose limit is 0, it is enough that the interval does not lie above it."""
    if found.low is None or found.high is None:
        return CANNOT_TELL
    if found.low > most:
        return FAILS
    return PASSES if most == 0 or found.high <= most else CANNOT_TELL


def _measured_step(choice: Choice, breakdown: Breakdown) -> Interval:
    """The step of later epochs."""
    step = estimate_figure(STEP, [breakdown])
    cached = any(item.name == "first epoch" for item in choice.items)
    for planned in choice.stalls:
        seen = breakdown.stall(planned.name)
        if planned.name in DATA_STALLS and (seen is None or (cached and planned.name == "fetch")):
            step = step.shift(planned.seconds.value - (0.0 if seen is None else seen.seconds))
    return step


def find_choice(
    plan: RentalPlan,
    profile: Profile,
    samples_per_step: float | None,
    catalog: Catalog,
    instance: str | None = None,
) -> Choice:
    """The choice that ``profile`` is of, or is said to be of with ``instance``; UserError says what there is instead.

    What differs besides machines and samples (how it is paid for) is no matter to a step: the plan's first is taken.
    """
    if plan.workload != profile.workload.name:
        raise UserError(
            f"the plan is for {plan.workload}, and this profile is of {profile.workload.name}"
        )
    host = profile.hosts[0] if profile.hosts else None
    cloud, _, seen = (instance or (host and host.instance) or "").rpartition("/")
    devices = max(ranks_per_node(profile).values(), default=1)
    on_cpus = profile.is_on_cpu
    models = {
        model_of(gpu, catalog) or gpu.name for gpu in (() if host is None or on_cpus else host.gpus)
    }

    def is_of(choice: Choice) -> bool:
        rented, device = choice.rented, choice.rented.device or ""
        alike = (rented.nodes, rented.devices, rented.device is None) == (
            profile.nodes,
            devices,
            on_cpus,
        )
        called = not seen or is_called(rented.instance, rented.cloud, seen)
        elsewhere = bool(cloud) and rented.cloud.lower() != cloud.lower()
        return alike and called and not elsewhere and models <= {device, device.partition("-")[0]}

    here = [choice for choice in plan.choices if is_of(choice)]
    if not here:
        what = "CPUs" if on_cpus else join_names(sorted(models)) or "GPUs"
        names = join_names(list(dict.fromkeys(choice.name for choice in plan.choices)))
        raise UserError(
            f"this profile is of {profile.nodes} × {seen or 'a machine'} with {devices} × {what}, which the plan "
            f"does not have; it has {names}"
            + ("" if seen else "; say which type it is with --instance NAME")
        )
    return _same_samples(here, samples_per_step)


def _same_samples(here: Sequence[Choice], samples_per_step: float | None) -> Choice:
    """The first of these choices that trains as many samples a step; raises UserError without one."""
    wanted = math.inf if samples_per_step is None else samples_per_step
    for choice in here:
        if not abs(choice.samples_per_step - wanted) > _SAME * wanted:
            return choice
    counts = join_names([f"{choice.samples_per_step:g}" for choice in here])
    raise UserError(
        f"this profile trains {samples_per_step:g} samples a step, and the plan's {here[0].name} "
        f"{counts}; profile with the plan's batch and accumulation"
    )
