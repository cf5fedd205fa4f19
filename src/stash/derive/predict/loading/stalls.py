"""The data stalls of a forecast: prep and fetch of a pipeline set up in another way, for a step that trains
otherwise.

Where the model says less than was measured, the rest belongs to fresh batches as such (copies, pinning, cold caches):
it is kept, and grows with the samples of a step, no matter who makes them. Where it says more, it counts in the same
proportion. So a forecast of the measured set-up is the measurement, draw by draw. Error: ``docs/validation.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.derive.predict.loading.measured import Loading
from stash.derive.predict.loading.pipeline import Pipeline, misses, step_seconds
from stash.derive.predict.uncertainty.draws import Array, Draws
from stash.derive.stalls.breakdown import Breakdown


@dataclass(frozen=True, eq=False)
class Held:
    """How the model is held to one measured stall, ``[draws]``."""

    less: Array
    """What it says is taken in this proportion: below 1 where it said too much."""
    more: Array
    """Seconds per sample and rank that it did not say."""
    noise: Array
    """Seconds below zero that were measured: they stay as they are."""

    def applied(self, modelled: Array, samples: float, share: Array | float = 1.0) -> Array:
        """A stall of so many samples of a rank, ``share`` of which have the cost that the model does not know."""
        corrected: Array = modelled * self.less + samples * share * self.more + self.noise
        return corrected


@dataclass(frozen=True, eq=False)
class HeldToMeasurement:
    """Both stalls; fetch is ``None`` where it was not measured."""

    prep: Held
    fetch: Held | None


def held_to(loading: Loading, breakdown: Breakdown, draws: Draws, trained_in: Array) -> HeldToMeasurement:
    """The model held to the measured stalls, for the measured step without data stalls ``trained_in``."""
    samples = loading.pipeline.batches * loading.pipeline.samples
    prep, fetch = breakdown.stall("prep"), breakdown.stall("fetch")
    assert prep is not None, "loading() needs it"
    modelled = prep_seconds(loading.pipeline, loading, trained_in)
    held = _held(draws.around("measured prep", prep.time), modelled, samples)
    if fetch is None:
        return HeldToMeasurement(held, None)
    modelled = fetch_seconds(loading.pipeline.reading(0.0), loading, trained_in)
    return HeldToMeasurement(held, _held(draws.around("measured fetch", fetch.time), modelled, samples))


def _held(seen: Array, modelled: Array, samples: float) -> Held:
    with np.errstate(divide="ignore", invalid="ignore"):
        less = np.where(modelled > 0, np.clip(seen / modelled, 0.0, 1.0), 1.0)
    more = np.maximum(0.0, seen - np.maximum(0.0, modelled)) / samples
    return Held(less, more, np.minimum(0.0, seen))


def prep_seconds(pipeline: Pipeline, loading: Loading, trained_in: Array) -> Array:
    """Seconds a step waits for batches to be made, files in memory, by the model alone."""
    return step_seconds(pipeline.reading(1.0), loading.work, trained_in) - trained_in


def fetch_seconds(pipeline: Pipeline, loading: Loading, trained_in: Array) -> Array:
    """Seconds more that it waits as what is not in memory comes from storage, by the model alone."""
    in_memory = step_seconds(pipeline.reading(1.0), loading.work, trained_in)
    return step_seconds(pipeline, loading.work, trained_in) - in_memory


def predicted(
    pipeline: Pipeline, loading: Loading, held: HeldToMeasurement, trained_in: Array
) -> tuple[Array, Array | None]:
    """Prep and fetch of a step on ``pipeline``, in seconds, ``[draws]``; fetch is ``None`` where it was not measured.

    What the model does not know of fetch is of the reads, so it shrinks with their share.
    """
    samples = pipeline.batches * pipeline.samples
    prep = held.prep.applied(prep_seconds(pipeline, loading, trained_in), samples)
    if held.fetch is None:
        return prep, None
    fetch = fetch_seconds(pipeline, loading, trained_in)
    return prep, held.fetch.applied(fetch, samples, misses(pipeline))
