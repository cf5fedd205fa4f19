"""Looks at a few untimed steps for what predictions need: what operators do, and when gradients are ready.

A look takes whole steps of the job and puts nothing into them that a block could contain. What it costs is bounded,
and what it cannot learn has a reason in ``unrecorded``, under the name of the fact.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from stash.measure.agent.runner import survey
from stash.measure.agent.runner.operators import OperatorCounter
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.protocol.messages import JobFacts

_SHARE = 0.05
"""Of the budget, for each of: counting operators, and steps in which gradients are looked at again."""
_MIN = 1.0
"""Seconds that each of these may take whatever the budget is."""
_MAX = 5
"""Steps in which gradients are looked at: as many as tell a spread from an outlier."""
Learned = dict[str, Any]
"""Fields of ``records.Workload``."""


def affordable(step_seconds: float, budget: float) -> int:
    """Steps in which gradients are looked at; one is wanted whatever it takes, for the exchange is looked at too."""
    return max(1, int(min(_MAX, _share(budget) / step_seconds))) if step_seconds > 0 else _MAX


def _share(budget: float) -> float:
    return max(_MIN, _SHARE * budget)


def at_operators(rank: OwnRank) -> Generator[None, None, Learned]:
    """One step."""
    counter = OperatorCounter(_share(rank.orders.budget))
    if rank.leads:
        counter.begin()
    try:
        yield
    finally:
        counter.end()
    learned: Learned = {"flops_per_step": counter.flops, "operators": counter.table()}
    if counter.why is not None:
        learned |= _unrecorded("operators", counter.why)
    return learned


def at_gradients(rank: OwnRank) -> Generator[None, None, survey.GradientClock]:
    """One step, under scope self."""
    clock = survey.GradientClock(survey.trained_parameters(rank.optimizer))
    clock.begin()
    try:
        yield
    finally:
        clock.end()
    return clock


def of_gradients(seen: list[survey.GradientClock]) -> Learned:
    """What several looks at the gradients tell together."""
    try:
        gradients = survey.readiness([clock.rows for clock in seen])
        learned: Learned = {"gradients": gradients, "buckets": survey.bucketed(gradients)}
    except Exception as error:  # of a device's events, or of a DistributedDataParallel of another version
        return _unrecorded("ready_steps", f"{type(error).__name__}: {str(error)[:200]}")
    why = next((clock.why for clock in seen if clock.why is not None), None)
    if why is None and len(seen) < 2:
        why = "steps are so long that only one was looked at, which tells no spread"
    return learned if why is None else learned | _unrecorded("ready_steps", why)


def together(rank: OwnRank, *learned: Learned) -> JobFacts:
    """What all looks have told, and what the optimizer keeps."""
    facts = {name: value for part in learned for name, value in part.items()}
    facts["unrecorded"] = {name: why for part in learned for name, why in part.get("unrecorded", {}).items()}
    return JobFacts(**{"optimizer_bytes": survey.optimizer_bytes(rank.optimizer), **facts})


def _unrecorded(fact: str, why: str) -> Learned:
    return {"unrecorded": {fact: f"not recorded: {why}"}}


TOO_LONG = _unrecorded("operators", "a step takes too much of the budget to take another one for it")
EXCHANGING = _unrecorded("ready_steps", "the exchange of this job cannot be switched off, and delays its gradients")
