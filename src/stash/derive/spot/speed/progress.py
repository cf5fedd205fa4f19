"""How fast a fleet of unlike workers gets on: updates, samples, the batch behind a mean update, and imbalance.

Equations (1), (2), (4) and (5) of spotDNN (Shang et al., IWQoS 2023), for many fleets at once. Is given iteration
times; how they come about is ``sharing``'s and ``queueing``'s business.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.derive.predict.uncertainty.draws import Array


@dataclass(frozen=True)
class FleetPace:
    """Of fleets, one entry each."""

    updates_per_second: Array
    """(2) 1 / Texp = Σ 1 / Tᵢ."""
    samples_per_second: Array
    """(4) v = Σ vᵢ with vᵢ = bᵢ / Tᵢ."""
    imbalance: Array
    """(5) R."""

    @property
    def mean_batch(self) -> Array:
        """(4) bw = v · Texp: samples of a mean update."""
        return self.samples_per_second / self.updates_per_second


def asynchronous(counts: Array, seconds: Array, samples: Array) -> FleetPace:
    """Of workers that wait for nobody: ``counts`` and ``seconds`` (of an iteration) are [fleet, type].

    ``samples`` are bᵢ, [type]. Each fleet has one worker at least.
    """
    rates = counts / seconds
    updates = rates.sum(axis=1)
    speeds = samples[None, :] / seconds
    total = (rates * samples[None, :]).sum(axis=1)
    return FleetPace(updates, total, imbalance(counts, speeds, total))


def imbalance(counts: Array, speeds: Array, total: Array) -> Array:
    """(5) R = √((w₁ − 1)² + Σ_{i>1} wᵢ²) with wᵢ = vᵢ / v, worker 1 being the fastest: who that is, (5) depends on.

    As (w₁ − 1)² = 1 − 2 · w₁ + w₁², that is √(1 − 2 · w₁ + Σ wᵢ²).
    """
    shares = speeds / total[:, None]
    fastest = np.where(counts > 0, shares, 0.0).max(axis=1)
    squared = 1 - 2 * fastest + (counts * shares**2).sum(axis=1)
    root: Array = np.sqrt(np.maximum(squared, 0.0))  # of a lone worker it is 0, or a rounding error below
    return root
