"""Traces beside a profile of the same job: two ways to the same stalls, each difference with what explains it.

The ladder takes the difference of steps with and without something; a trace says what was exposed in steps with
everything. Where they differ, overlap and the profiler's own cost are the usual reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.analysis.breakdown import Breakdown
from stash.analysis.uncertainty import launch_error
from stash.core.errors import UserError
from stash.core.intervals import Interval, subtract_runs
from stash.core.trace_records import CrossCheck, Trace
from stash.core.units import format_seconds

_PAIRS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("compute", ("compute", "host", "loop"), ("compute",)),
    ("transfer", ("transfer",), ("transfer",)),
    ("contention", ("contention",), ("contention",)),
    ("bubble", ("bubble",), ("bubble",)),
    ("exchange", ("exchange",), ("interconnect", "network")),
    ("input", ("input",), ("prep", "fetch")),
)
"""What is compared, the trace's parts that it is, and the ladder's stalls."""
_REASONS = {
    ("exchange", True): "overlap slows compute by so much, which the trace counts as compute",
    ("exchange", False): "in the trace it holds waiting, too, or the profiler's own cost",
    ("compute", False): "in the trace it holds what overlap and profiling slow it by",
    ("contention", True): "ranks share cores or memory, which slows all alike",
    ("contention", False): "ranks are late by turns",
}
"""By stall, and whether the ladder says more: what explains it where the steps agree."""
_AGREE = 0.03
"""Of the step: a difference below which both are called alike."""


def cross_check(trace: Trace, breakdown: Breakdown) -> tuple[CrossCheck, ...]:
    """What both say of each stall that both know, and the step; raises UserError for another job."""
    nodes = trace.nodes if len(trace.ranks) == trace.world_size else None
    for what, traced, profiled in (
        ("ranks", trace.world_size, breakdown.world_size),
        ("nodes", nodes or breakdown.nodes, breakdown.nodes),
    ):
        if traced != profiled:
            raise UserError(
                f"--against {breakdown.source}: it has {profiled} {what}, and the traces have {traced}: another job",
                code="different_jobs",
            )
    spread = launch_error(trace.step_seconds)
    steps = trace.step.add_error(spread), breakdown.step
    difference = subtract_runs(*steps)
    alike = difference.within_noise or abs(difference.value) < _AGREE * trace.step_seconds
    found = []
    for name, parts, stalls in _PAIRS:
        measured = [each.time for each in breakdown.stalls if each.name in stalls]
        seen = [part.time for part in trace.traced if part.name in parts]
        if measured and seen and name not in trace.unknown:
            sides = _total(seen).add_error(spread), _total(measured)
            found.append(_check(name, *sides, trace.step_seconds, alike))
    return (*found, _check("step", *steps, trace.step_seconds, alike))


def _total(times: Sequence[Interval]) -> Interval:
    """Of several times that are measured together, their arms added."""
    lows = [time.low for time in times]
    highs = [time.high for time in times]
    return Interval(
        value=sum(time.value for time in times),
        low=None if None in lows else sum(low for low in lows if low is not None),
        high=None if None in highs else sum(high for high in highs if high is not None),
    )


def _check(
    name: str, traced: Interval, ladder: Interval, step: float, steps_alike: bool
) -> CrossCheck:
    difference = subtract_runs(traced, ladder)
    alike = abs(difference.value) < _AGREE * step
    text = "they agree" if alike else _explain_difference(name, difference, steps_alike)
    return CrossCheck(name=name, traced=traced, ladder=ladder, difference=difference, text=text)


def _explain_difference(name: str, difference: Interval, steps_alike: bool) -> str:
    """Why the ladder says more or less than the trace, as far as steps of one length allow to say."""
    if difference.low is None:
        return "too few steps or rounds to tell"
    if difference.within_noise:
        return "no difference shown"
    amount = format_seconds(abs(difference.value))
    side = f"{amount} {'more' if difference.value > 0 else 'less'} by the ladder"
    if name == "step":
        return f"{side}: the cost of profiling, or another set-up; settle this first"
    if not steps_alike:
        return f"{side}; the steps differ"
    return (
        f"{side}: {_REASONS[name, difference.value > 0]}"
        if (name, difference.value > 0) in _REASONS
        else side
    )
