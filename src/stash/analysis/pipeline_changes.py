"""What a pipeline's stages would idle with other microbatches or layers elsewhere: its passes, changed, played again.

Layers of a model are taken to be alike, so a stage between the first and the last takes its time in proportion to
them, on its own device. The first and the last hold more (embeddings, the head, the loss): of what they take, layers
take what those of the stages between do, and the rest stays where it is. Passes of fewer samples are taken to be as
efficient. Neither is so of all models; what a changed pipeline really takes only a profile of it tells.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from stash.analysis.bubble import idle_of
from stash.analysis.pipeline_schedule import EVEN, end_times, order_of, parse_order, step_passes
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
    each = [took / count if count else None for took, count in zip(seconds, layers, strict=True)]
    held = [own for own in each if own is not None]
    between = [own for own in each[1:-1] if own is not None]
    alike = statistics.median(between) if between else min(held, default=0.0)
    costs = []
    for stage, (took, count, own) in enumerate(zip(seconds, layers, each, strict=True)):
        per_layer = alike if own is None else own
        if stage in (0, len(layers) - 1):
            per_layer = min(alike, per_layer)
        costs.append(StageCost(took - count * per_layer, per_layer))
    return tuple(costs)


def balance_layers(costs: Sequence[StageCost], layers: Sequence[int]) -> tuple[int, ...]:
    """As many layers on stages that cost so, one at least each, so that the slowest is as fast as can be.

    Exact, stage by stage: the best for the first s stages and k layers is the least, over what the last of them
    holds, of the slower of it and the best before; among equals of what moves fewer layers.
    """
    best: dict[int, tuple[float, int, tuple[int, ...]]] = {0: (0.0, 0, ())}
    for cost, now in zip(costs, layers, strict=True):
        options: dict[int, list[tuple[float, int, tuple[int, ...]]]] = defaultdict(list)
        for held, (slowest, moved, counts) in best.items():
            for own in range(1, sum(layers) - held + 1):
                here = max(slowest, cost.seconds_for(own))
                options[held + own].append((here, moved + abs(own - now), (*counts, own)))
        best = {held: min(of_held) for held, of_held in options.items()}
    return best[sum(layers)][2]


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
    found: dict[int, int | None] = {}
    for row in rows:
        own = sorted({stage for stage, _, _ in step_passes(row)})
        if len(own) == len(row.layers):
            found |= zip(own, row.layers, strict=True)
        found = dict.fromkeys(own) | found
    counts = [found[stage] for stage in sorted(found)]
    return tuple(filter(None, counts)) if all(counts) else ()


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
    scaled = [_scale_row(row, times or {}) for row in rows]
    pairs = [(rows, scaled)]
    if microbatches not in (None, schedule.microbatches):
        if schedule.name not in EVEN:
            return None
        counts = (schedule.microbatches, microbatches or 0)
        was, would = ([_mean_row(row, schedule, count) for row in scaled] for count in counts)
        pairs.append((was, would))
    change = 0.0
    for before, after in pairs:
        idle = idle_of(before), idle_of(after)
        if idle[0] is None or idle[1] is None:
            return None
        change += idle[1][1] - idle[0][1]
    return change


def _scale_row(row: StagePasses, times: Mapping[int, float]) -> StagePasses:
    """``rest``, which is no stage's, stays as it is."""
    stages = itertools.cycle([*(stage for stage, _, _ in step_passes(row)), -1])
    scaled = (
        took * times.get(stage, 1.0) for took, stage in zip(row.seconds, stages, strict=False)
    )
    return replace(row, seconds=tuple(scaled))


def _mean_row(row: StagePasses, schedule: PipelineSchedule, microbatches: int) -> StagePasses:
    """Two steps of the same samples in so many microbatches; every pass of a kind takes its mean."""
    passes = step_passes(row)
    kinds = itertools.cycle([*(kind for _, kind, _ in passes), "rest"])
    took: dict[str, list[float]] = defaultdict(list)
    for kind, seconds in zip(kinds, row.seconds, strict=False):
        took[kind].append(seconds)
    order = order_of(schedule.name, passes[0][0], schedule.ranks, microbatches)
    smaller = schedule.microbatches / microbatches
    step = [smaller * statistics.fmean(took[kind]) for _, kind, _ in parse_order(order)]
    step.append(statistics.fmean(took["rest"]))
    return replace(row, round=0, passes=(*order.split(), "rest"), seconds=tuple(step * 2))
