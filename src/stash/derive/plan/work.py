"""How the training is cut into steps: samples of a step on so many devices, and how many steps the whole takes.

A policy says what more devices do to a step, and the profile how many samples one trains now. Nothing here knows how
long a step takes. What more samples a larger batch needs to learn as much is only in it if the goal says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stash.base.errors import UserError
from stash.base.plan import Goal
from stash.derive.predict.whatif.base import Base
from stash.derive.predict.whatif.refusing import records

_SMALLER = 0.01
"""Of a device's samples: less than this is a rounding of the profiled batch, and no other one."""


@dataclass(frozen=True)
class StepPlan:
    """What a step trains, by the goal's policy."""

    goal: Goal
    per_device: int
    """Samples of a device in a step, as profiled: of all its passes."""
    together: float
    """Samples of a step of the whole job, as profiled."""
    replicas: float
    """Of a device; below 1 where several share a replica of the model."""

    def of_device(self, devices: int) -> int | None:
        """Samples of each of ``devices`` in a step; ``None`` where a global batch cannot be shared out evenly."""
        if self.goal.scaling == "per device":
            return self.per_device
        share = self.together / (devices * self.replicas)
        whole = round(share)
        return whole if whole >= 1 and abs(share - whole) <= _SMALLER * share / devices else None

    def samples(self, devices: int, of_device: int) -> float:
        """Samples of a step of the whole job."""
        return of_device * devices * self.replicas

    def steps(self, samples_per_step: float) -> float:
        """Optimizer steps of the whole training: samples, times the growth with the batch, by those of a step."""
        grown = 1.0
        if self.goal.efficiency and samples_per_step > self.together:
            grown = (samples_per_step / self.together) ** self.goal.efficiency
        # What divides evenly must not become a step more by its last bit.
        return float(math.ceil(self.goal.work.samples * grown / samples_per_step * (1 - 1e-12)))


def step_plan(bases: Sequence[Base], goal: Goal) -> StepPlan:
    """How ``goal`` is trained, from the first profile; raises UserError if they are of different jobs."""
    first = bases[0]
    for other in bases[1:]:
        _refuse_other_job(first, other)
    samples = first.breakdown.samples_per_step
    if first.passes is None or not samples:
        raise UserError(f"nobody counted the samples of a step of this job; {records(first.profile)}")
    ranks = first.profile.world_size
    replicas = (first.profile.workload.replicas or ranks) / ranks
    return StepPlan(goal, first.passes.samples, samples, replicas)


def _refuse_other_job(first: Base, other: Base) -> None:
    """Raises UserError where two profiles cannot be of one job."""
    for what, one, two in (
        ("workloads", first.profile.workload.name, other.profile.workload.name),
        ("bytes of parameters", first.profile.workload.parameter_bytes, other.profile.workload.parameter_bytes),
        ("samples of a device in a step", _per_device(first), _per_device(other)),
    ):
        if one is not None and two is not None and one != two:
            raise UserError(
                f"these profiles are of different jobs, as their {what} tell ({one} and {two}); recommend for one "
                "job at a time"
            )


def _per_device(base: Base) -> int | None:
    return None if base.passes is None else base.passes.samples


def split(of_device: int, largest: int) -> tuple[int, int]:
    """Batch and passes whose product is ``of_device``: the largest batch that fits, up to ``largest``, 1 or more.

    Of all ways to cut a device's samples into k equal passes this is the fastest by the mean. Compute takes k passes
    of (batch/k)ᵞ, so k^(1−γ) times that of one, and E[k^(1−γ)] >= k^(1−E[γ]) >= 1 (Jensen) as γ is 1 at most
    (``ratios.batch_exponent``); a step's samples, its exchange and what its loaders make of them are the same.
    """
    passes = next(each for each in range(1, of_device + 1) if of_device % each == 0 and of_device // each <= largest)
    return of_device // passes, passes


def said(plan: StepPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the policy takes for granted, and what to be warned of: sentences."""
    goal = plan.goal
    if goal.scaling == "per device":
        policy = f"every device trains {plan.per_device:,} samples a step as profiled, so more of them train more"
    else:
        policy = f"all devices together train {plan.together:,.0f} samples a step as profiled, however many there are"
    if goal.scaling == "global":
        return (policy,), ()
    if goal.efficiency is None:
        warning = (
            "time per epoch is not time to accuracy: a larger batch may need more samples to learn as much, and none "
            "are added (--efficiency)"
        )
        return (policy,), (warning,)
    growth = f"samples to train grow with the batch to the power of {goal.efficiency:g} (--efficiency)"
    return (policy, growth), ()
