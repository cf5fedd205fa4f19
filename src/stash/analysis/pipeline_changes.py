"""What a pipeline's stages would idle with other microbatches or layers elsewhere: its passes, changed, played again.

Layers of a model are taken to be alike, so a stage between the first and the last takes its time in proportion to
them, on its own device. The first and the last hold more (embeddings, the head, the loss): of what they take, layers
take what those of the stages between do, and the rest stays where it is. Passes of fewer samples are taken to be as
efficient. Neither is so of all models; what a changed pipeline really takes only a profile of it tells.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from stash.analysis.bubble import idle_of
from stash.analysis.pipeline_schedule import EVEN, end_times, order_of, parse_order
from stash.core.measured import StagePasses
from stash.core.records.profile import PipelineSchedule


class StageCost(NamedTuple):
    """Seconds of a step of one stage."""

    fixed: float
    """Whatever layers it holds."""
    per_layer: float

    def seconds_for(self, layers: int) -> float:
        return self.fixed + layers * self.per_layer


def stage_costs(seconds: Sequence[float], layers: Sequence[int]) -> tuple[StageCost, ...]:
    """Of stages that took so many ``seconds`` a step with so many ``layers``."""
    held = [took / count for took, count in zip(seconds, layers, strict=True) if count]
    between = [
        took / count for took, count in zip(seconds[1:-1], layers[1:-1], strict=True) if count
    ]
    alike = statistics.median(between) if between else min(held, default=0.0)
    each = [took / count if count else alike for took, count in zip(seconds, layers, strict=True)]
    costs = [
        StageCost(took - count * own, own)
        for took, count, own in zip(seconds, layers, each, strict=True)
    ]
    for end in (0, len(each) - 1):
        own = min(alike, each[end])
        costs[end] = StageCost(seconds[end] - layers[end] * own, own)
    return tuple(costs)


def balance_layers(costs: Sequence[StageCost], layers: Sequence[int]) -> tuple[int, ...]:
    """As many layers on stages that cost so, one at least each, so that the slowest is as fast as can be.

    Exact, stage by stage: the best for the first s stages and k layers is the least, over what the last of them
    holds, of the slower of it and the best before; among equals of what moves fewer layers.
    """

    @cache
    def best(stages: int, left: int) -> tuple[float, int, tuple[int, ...]]:
        if stages == 0:
            return (0.0 if left == 0 else float("inf")), 0, ()
        options = []
        for own in range(1, left - stages + 2):
            slowest, moved, counts = best(stages - 1, left - own)
            here = costs[stages - 1].seconds_for(own)
            options.append(
                (max(slowest, here), moved + abs(own - layers[stages - 1]), (*counts, own))
            )
        return min(options, default=(float("inf"), 0, ()))

    return best(len(costs), sum(layers))[2]


def divided_again(costs: Sequence[StageCost], layers: int, stages: int) -> tuple[float, ...]:
    """Seconds of a step of so many ``stages`` that share the ``layers`` evenly; what ends hold besides stays there.

    A layer takes what it takes on a stage between the first and the last, or on the faster of two.
    """
    each = statistics.median(cost.per_layer for cost in costs[1:-1] or costs)
    seconds = [
        each * (layers * (stage + 1) // stages - layers * stage // stages)
        for stage in range(stages)
    ]
    seconds[0] += costs[0].fixed
    seconds[-1] += costs[-1].fixed
    return tuple(seconds)


def idle_of_stages(seconds: Sequence[float], name: str, microbatches: int) -> float:
    """Seconds a step that stages which take so many idle, mean over them, in a schedule in ``EVEN``.

    A backward pass takes twice a forward pass, messages no time.
    """
    ranks = len(seconds)
    orders = [parse_order(order_of(name, rank, ranks, microbatches)) for rank in range(ranks)]
    took = []
    for own, order in zip(seconds, orders, strict=True):
        forward = own / microbatches / 3
        took.append([forward if kind == "F" else 2 * forward for _, kind, _ in order])
    ends = end_times(orders, took)
    assert ends is not None
    return max(each[-1] for each in ends) - statistics.fmean(seconds)


def layers_of(rows: Sequence[StagePasses]) -> tuple[int, ...]:
    """Of each stage, in order; empty if any is unknown."""
    found: dict[int, int] = {}
    stages = set()
    for row in rows:
        own = sorted({stage for stage, _, _ in parse_order(" ".join(row.passes))})
        stages |= set(own)
        if len(own) == len(row.layers):
            found |= dict(zip(own, row.layers, strict=True))
    return tuple(found[stage] for stage in sorted(found)) if stages and set(found) == stages else ()


def idle_changed(
    rows: Sequence[StagePasses],
    schedule: PipelineSchedule,
    microbatches: int | None = None,
    times: Mapping[int, float] | None = None,
) -> float | None:
    """Seconds a step that ranks idle longer (less, below 0), mean over ranks; ``None`` if it cannot be played.

    ``times`` has how many times as long a stage's passes take. Of another number of ``microbatches`` passes take
    their mean times before and after, so that how much they vary makes no difference of the two; for schedules in
    ``EVEN`` only.
    """
    before = idle_of(rows)
    scaled = [_scale_row(row, times or {}) for row in rows]
    after = idle_of(scaled)
    if before is None or after is None:
        return None
    change = after[1] - before[1]
    if microbatches is None or microbatches == schedule.microbatches:
        return change
    if schedule.name not in EVEN:
        return None
    was, would = (
        idle_of([_mean(row, schedule, count) for row in scaled])
        for count in (schedule.microbatches, microbatches)
    )
    return None if was is None or would is None else change + would[1] - was[1]


def _scale_row(row: StagePasses, times: Mapping[int, float]) -> StagePasses:
    """``rest``, which is no stage's, stays as it is."""
    stages = [*(stage for stage, _, _ in parse_order(" ".join(row.passes))), -1]
    seconds = tuple(
        took * times.get(stages[i % len(stages)], 1.0) for i, took in enumerate(row.seconds)
    )
    return replace(row, seconds=seconds)


def _mean(row: StagePasses, schedule: PipelineSchedule, microbatches: int) -> StagePasses:
    """Two steps of the same samples in so many microbatches; every pass of a kind takes its mean."""
    passes = parse_order(" ".join(row.passes))
    took: dict[str, list[float]] = defaultdict(list)
    for i, seconds in enumerate(row.seconds):
        at = i % len(row.passes)
        took[passes[at][1] if at < len(passes) else "rest"].append(seconds)
    order = order_of(schedule.name, passes[0][0], schedule.ranks, microbatches).split()
    smaller = schedule.microbatches / microbatches
    mean = {
        kind: statistics.fmean(each) * (1.0 if kind == "rest" else smaller)
        for kind, each in took.items()
    }
    step = [*(mean[kind] for _, kind, _ in parse_order(" ".join(order))), mean["rest"]]
    return replace(row, round=0, passes=(*order, "rest"), seconds=tuple(step * 2))
