"""The least that more nodes can take and cost, by the forecast of fewer: the proof behind pruning.

Where every device trains as much on any number of nodes, steps do not get shorter from 3 nodes on: hops and 2(p−1)/p
of rings and trees grow with p, the expected slowest of more ranks is slower, and a step that trains longer is never
shorter after its loaders, nor shorter by more than it trains less. All draws are the same, so this holds in each of
them but for the negative part of the doubt that more ranks add (``stragglers.MoreRanks``), and less that for means
and quantiles too. It is not used across what was measured and stays as it was: that follows no model. With the first
epoch's share φ of all steps a training takes (1 − φ) · steady + φ · cold a step, of which the same holds: cold is no
less than steady in any draw, as reading from storage takes no less than reading from memory. Seconds are those of all
steps and more, dollars those seconds at the price and more (``bill``).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from stash.plan.bill import HOUR
from stash.plan.hourly_prices import quantile_at
from stash.plan.records import Goal
from stash.plan.settings import Shape
from stash.predict.draws import Array

Measure = Literal["seconds", "dollars", "sure_seconds", "sure_dollars"]
"""Means of the whole training, and what is not exceeded with the confidence that is asked for."""
LowerBounds: TypeAlias = dict[Measure, Array]
"""Lower bounds, or exact numbers, of one setting on each of its node counts, ``[node counts]``."""


def raise_bounds(
    least: LowerBounds,
    number: int,
    step: Array,
    shape: Shape,
    price: Array,
    goal: Goal,
    onward: float | None,
) -> None:
    """Raise the bounds of node count ``number``, and of those beyond it, by a forecast of its step.

    ``step`` is ``[draws]``, ``price`` as of ``bill.hourly_cost``. ``onward`` is compute in times of the profiled one;
    ``None``: nothing follows for others. See the top.
    """
    rows, steps = np.array([number]), step[None, :]
    if onward is not None:
        rows = np.arange(number, len(shape.nodes))
        steps = step + np.minimum(0.0, onward * (shape.doubts[rows] - shape.doubts[number]))
    paid, count = steps * price, shape.steps[rows]
    node_hours = count * shape.nodes[rows] / HOUR
    raised: LowerBounds = {
        "seconds": steps.mean(axis=1) * count,
        "dollars": paid.mean(axis=1) * node_hours,
        "sure_seconds": quantile_at(steps, goal.surely_in_time) * count,
        "sure_dollars": quantile_at(paid, goal.surely_in_budget) * node_hours,
    }
    for measure, found in raised.items():
        least[measure][rows] = np.maximum(least[measure][rows], found)
