"""What a loss of spot training is wherever one is said: the mean over the last updates, by samples."""

from __future__ import annotations

from collections.abc import Collection

LOSS_WINDOW = 50
"""Updates that the mean is taken over."""


def mean_loss(updates: Collection[tuple[float, int]]) -> float:
    """Of (loss, samples) of each update; one sample at least."""
    return sum(loss * samples for loss, samples in updates) / sum(samples for _, samples in updates)
