"""Accounts of traces held against each other and against limits, in the words of comparisons of profiles.

A trace is of one launch, and its steps tell nothing of another one: what launches of one job differ by is added to
every interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.analysis.comparison import (
    NOT_RECORDED,
    RATE,
    STEP,
    Difference,
    DifferingFact,
    RunComparison,
    differing_facts,
)
from stash.analysis.limits import (
    Decision,
    Limit,
    Requirement,
    Tolerance,
    decide_limit,
    decide_requirement,
    decide_tolerance,
)
from stash.analysis.uncertainty import launch_error
from stash.core.errors import UserError
from stash.core.intervals import NORMAL, Interval, pool_runs, subtract_runs
from stash.core.trace_records import TRACE_PARTS, Trace


def compare_traces(before: Sequence[Trace], after: Sequence[Trace]) -> RunComparison:
    """The parts that both sides have, then the step."""
    sides = (before, after)
    has = [[name for name in TRACE_PARTS if all(run.part(name) for run in side)] for side in sides]
    both = [name for name in has[0] if name in has[1]]
    lines = []
    for name in (*both, STEP):
        first, second = (traced_time(name, side) for side in sides)
        lines.append(
            Difference(name=name, before=first, after=second, change=subtract_runs(first, second))
        )
    return RunComparison(
        lines=tuple(lines),
        only_before=tuple(name for name in has[0] if name not in both),
        only_after=tuple(name for name in has[1] if name not in both),
    )


def traced_time(name: str, runs: Sequence[Trace]) -> Interval:
    """A part of a step, or the step, of one side: seconds, with what another launch may make of them."""
    times = []
    for run in runs:
        part = run.part(name)
        times.append(run.step if part is None else part.time)
    spread = launch_error(sum(run.step_seconds for run in runs) / len(runs))
    return times[0].add_error(spread) if len(times) == 1 else pool_runs(times, spread / NORMAL)


def traced_facts(trace: Trace) -> dict[str, str]:
    """What an account of traces says of its job."""
    return {
        "ranks": str(trace.world_size),
        "nodes": NOT_RECORDED if trace.nodes is None else str(trace.nodes),
        "backend": trace.backend or NOT_RECORDED,
        "device": trace.device,
        "recorded by": trace.tool,
    }


def differing_traces(before: Sequence[Trace], after: Sequence[Trace]) -> tuple[DifferingFact, ...]:
    """Facts in which the sides differ."""
    return differing_facts(*([traced_facts(trace) for trace in side] for side in (before, after)))


def traces_held(limit: Limit, runs: Sequence[Trace]) -> Decision:
    """Whether traces keep a limit; raises UserError if they do not have what it is about."""
    _refuse_without(limit.name, limit.typed, runs)
    return decide_limit(limit, traced_time(limit.name, runs), traced_time(STEP, runs))


def traces_not_slower(
    tolerance: Tolerance, before: Sequence[Trace], after: Sequence[Trace]
) -> Decision:
    """Whether the step, or a part of it, is longer than a baseline's by more than a fraction; raises UserError."""
    _refuse_without(tolerance.name, tolerance.typed, [*before, *after])
    first = traced_time(tolerance.name, before)
    second = traced_time(tolerance.name, after)
    beyond = subtract_runs(first.scale(1 + tolerance.fraction), second)
    return decide_tolerance(tolerance, first, subtract_runs(first, second), beyond)


def traces_required(requirement: Requirement, runs: Sequence[Trace]) -> Decision:
    """Whether all traces say so; raises UserError if there is no such fact."""
    return decide_requirement(requirement, [traced_facts(run) for run in runs])


def _refuse_without(name: str, typed: str, runs: Sequence[Trace]) -> None:
    for run in runs:
        if name == RATE or (name != STEP and run.part(name) is None):
            known = ", ".join(part.name for part in run.traced)
            raise UserError(
                f"{typed}: the traces {run.workload} have no {name}; they have {known} and {STEP}"
            )
