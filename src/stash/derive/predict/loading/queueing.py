"""Loader workers that prefetch and a device that trains: how long a step takes when making batches varies.

PyTorch's DataLoader gives batch i to worker i mod W, keeps W · f batches under way and hands them out in order, so
one slow batch holds up those behind it. Knows times and counts alone; what a batch costs is ``pipeline``'s business.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from stash.derive.predict.uncertainty.draws import Array

_LOADS = np.geomspace(0.4, 2.5, 13)
"""w / (W · t) at which the slow-down is tabulated; beyond them it no longer depends on the load."""
_LANES = 4
_LEAST_BATCHES = 600
_MOST_RANKS = 16
_CV_STEP = 0.05
MOST_VARIATION = 1.0


def hand_outs(made_in: Array, trained_in: Array, workers: int, prefetch: int) -> Array:
    """When each batch is handed out, in seconds, of workers and a device that start together: ``[batch, lane]``.

    ``made_in[batch, rank, lane]`` is what making each batch takes a worker, ``trained_in[lane]`` what a step takes
    the devices, which all wait for the slowest rank's batch. The rules are those of ``torch.utils.data`` (PyTorch 2,
    ``_MultiProcessingDataLoaderIter``): a worker begins its next batch when it is done with the one before and that
    one was asked for, which happens when the batch W · f places earlier is handed out. Exact for given times, as a
    max-plus recursion: one pass over the batches.
    """
    batches, under_way = len(made_in), workers * prefetch
    done = np.zeros_like(made_in)
    out = np.zeros((batches, made_in.shape[-1]))
    for number in range(batches):
        begun = done[number - workers] if number >= workers else 0.0
        if number >= under_way:
            begun = np.maximum(begun, out[number - under_way])
        np.add(begun, made_in[number], out=done[number])
        ready = done[number].max(axis=0)
        out[number] = np.maximum(ready, out[number - 1] + trained_in) if number else ready
    return out


@lru_cache(maxsize=256)
def _slow_downs(workers: int, prefetch: int, ranks: int, variation: float) -> Array:
    """A step's mean time over max(t, w / W), at each of ``_LOADS``, for gamma-distributed times of making a batch.

    By simulation with a fixed seed, the same draws at every load. The first tenth, in which queues fill, is left out.
    """
    batches = max(_LEAST_BATCHES, 12 * workers * prefetch)
    shape = variation**-2
    drawn = np.random.default_rng(20231114).gamma(shape, 1 / shape, (batches, ranks, _LANES))
    made_in = np.concatenate([load * workers * drawn / drawn.mean() for load in _LOADS], axis=-1)
    out = hand_outs(made_in, np.ones(made_in.shape[-1]), workers, prefetch)
    warm_up = batches // 10
    step = (out[-1] - out[warm_up]) / (batches - 1 - warm_up)
    longer: Array = step.reshape(len(_LOADS), _LANES).mean(axis=1) / np.maximum(1.0, _LOADS)
    return np.maximum(1.0, longer)


def step_with_loader(
    trained_in: Array, supplied_in: Array, workers: int, prefetch: int, ranks: int = 1, variation: float = 0.0
) -> Array:
    """Seconds of a step that trains for ``trained_in`` on batches that the workers could supply every
    ``supplied_in``.

    max(t, s), which is DS-Analyzer's min(F, P, G) in seconds, times the slow-down by batches that take unlike times
    (``variation``: standard deviation over mean, at most 1) while ``ranks`` wait for each other. Without workers
    nothing overlaps: t + s. Against the recursion it stands on, interpolation errs by 1 % at most; the recursion
    against PyTorch's own loader is in ``docs/validation.md``.
    """
    trained_in, supplied_in = np.asarray(trained_in, np.float64), np.asarray(supplied_in, np.float64)
    if workers == 0:
        return trained_in + supplied_in
    longer = np.maximum(trained_in, supplied_in)
    rounded = round(min(variation, MOST_VARIATION) / _CV_STEP) * _CV_STEP
    if not rounded:
        return longer
    table = _slow_downs(workers, max(1, prefetch), min(ranks, _MOST_RANKS), rounded)
    # A draw of a noisy measurement may train for less than nothing: workers are the limit then, whatever they take.
    with np.errstate(divide="ignore", invalid="ignore"):
        load = np.where(trained_in > 0, np.log(np.maximum(0.0, supplied_in) / trained_in), np.inf)
    return longer * np.interp(load, np.log(_LOADS), table)
