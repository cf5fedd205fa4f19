"""What replays say of the updates to a loss: when each first passed it, which losses all of them passed.

Knows courses, the running means of replays; knows no form of a curve.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stash.base.errors import UserError
from stash.base.spot.curve import LossReplay
from stash.derive.predict.uncertainty.draws import Array

LEVELS = 16
"""Losses at which curves are judged, evenly spread in the logarithm of updates."""


def shape_of(replay: LossReplay) -> tuple[Array, Array, Array]:
    """bw, R, N."""
    return np.array(replay.mean_batch), np.array(replay.imbalance), np.array(float(len(replay.workers)))


def falling(replay: LossReplay) -> Array:
    """The least loss so far, after each of its updates."""
    least: Array = np.minimum.accumulate(np.array(replay.losses))
    return least


def passed(replay: LossReplay, losses: Array) -> Array:
    """Updates after which the course first was at each of these losses; not a number where it never was.

    Between two points of the course, by a straight line in the logarithm of updates.
    """
    steps, least = np.log(np.array(replay.updates, dtype=float)), falling(replay)
    after = np.searchsorted(-least, -losses, side="left")
    found = np.full(len(losses), np.nan)
    for number, (loss, at) in enumerate(zip(losses, after, strict=True)):
        if at == 0:
            found[number] = steps[0]
        elif at < len(least):
            share = (least[at - 1] - loss) / (least[at - 1] - least[at])
            found[number] = steps[at - 1] * (1 - share) + steps[at] * share
    updates: Array = np.exp(found)
    return updates


def common_losses(replays: Sequence[LossReplay]) -> Array:
    """Losses that every replay passed after its first point, the highest first; raises UserError without any."""
    highest = min(replay.losses[0] for replay in replays)
    lowest = max(float(falling(replay)[-1]) for replay in replays)
    if not lowest < highest:
        raise UserError(
            f"the losses of these replays have nothing in common: one begins at {highest:.4g}, another ends at "
            f"{lowest:.4g}; replay more updates (--updates, or a longer --budget)"
        )
    start = max(replay.updates[0] for replay in replays)
    end = min(replay.updates[-1] for replay in replays)
    at = np.linspace(np.log(start), np.log(end), LEVELS)
    mean = np.mean([np.interp(at, np.log(replay.updates), falling(replay)) for replay in replays], axis=0)
    inside = mean[(mean < highest) & (mean > lowest)]
    found: Array = np.unique(np.concatenate([[highest], inside, [lowest]]))[::-1]
    return found
