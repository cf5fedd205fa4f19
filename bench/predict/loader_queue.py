"""The queue of workers against PyTorch's own DataLoader: batches that take set times to make, steps that take set
times.

Both sleep, so nothing else is in it than who waits for whom. Predicted from the mean and the spread of the batches'
times alone, beside max(t, w/W), which is min(P, G). Split: the model has no parameter to fit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from bench.machine import arguments
from bench.predict.errors import Prediction, evidence
from stash.predict.draws import Array, Draws
from stash.predict.pipeline import hand_outs, step_with_loader

DRAWS = Draws()
_BATCHES = 60
_WARM_UP = 12
_STEP = 0.06
CASES = [
    (workers, prefetch, variation, load)
    for workers, prefetch, variation in ((2, 2, 0.0), (1, 2, 0.6), (2, 2, 0.6), (4, 2, 0.6), (4, 1, 0.6))
    for load in (0.7, 1.0, 1.4)
]
"""Workers, prefetch_factor, spread of batches, and supply over training."""


class _Slow(Dataset[torch.Tensor]):
    """Batches that take set times."""

    def __init__(self, seconds: list[float]) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return len(self._seconds)

    def __getitem__(self, number: int) -> torch.Tensor:
        time.sleep(self._seconds[number])
        return torch.zeros(1)


def section() -> str:
    split = (
        f"{len(CASES)} set-ups of PyTorch's DataLoader whose batches and steps take set times: a step's mean time, "
        "from the mean and the spread of the batches' times. *Split*: nothing is fitted; what handing over a batch "
        "takes by itself is measured first. The interval is that of the luck of few batches."
    )
    return evidence("The queue of workers", split, list(predictions()))


def predictions() -> Iterator[Prediction]:
    """A prediction for each set-up."""
    handing_over = float(np.median(np.diff(_handed_out([0.0] * _BATCHES, 1, 2)))) - _STEP
    for workers, prefetch, variation, load in CASES:
        mean = load * workers * _STEP
        drawn = np.random.default_rng(workers).gamma(variation**-2, variation**2, _BATCHES) if variation else None
        seconds = [mean] * _BATCHES if drawn is None else (mean * drawn / drawn.mean()).tolist()
        train, supply = (np.full(DRAWS.count, each) for each in (_STEP + handing_over, mean / workers))
        yield Prediction(
            source="equal batches" if not variation else "batches of unlike times (0.6 of the mean)",
            name=f"{workers} workers, prefetch {prefetch}, supply {load:g} of training",
            measured=_measured(seconds, workers, prefetch),
            predicted=step_with_loader(train, supply, workers, prefetch, 1, variation)
            * _luck(workers, prefetch, variation, mean),
            baselines={"max(t, w/W)": max(_STEP + handing_over, mean / workers)},
        )


def _luck(workers: int, prefetch: int, variation: float, mean: float) -> Array:
    """How a mean step over as few batches scatters around 1, ``[draws]``: the recursion on other batches."""
    if not variation:
        return np.ones(DRAWS.count)
    drawn = np.random.default_rng(1).gamma(variation**-2, variation**2, (_BATCHES, 1, DRAWS.count))
    out = hand_outs(mean * drawn / drawn.mean(axis=0), np.full(DRAWS.count, _STEP), workers, prefetch)
    steps = (out[-1] - out[_WARM_UP]) / (_BATCHES - 1 - _WARM_UP)
    scattered: Array = steps / steps.mean()
    return scattered


def _measured(seconds: list[float], workers: int, prefetch: int) -> float:
    """Mean seconds of a step after the queues have filled."""
    moments = _handed_out(seconds, workers, prefetch)
    return (moments[-1] - moments[_WARM_UP]) / (len(moments) - 1 - _WARM_UP)


def _handed_out(seconds: list[float], workers: int, prefetch: int) -> list[float]:
    loader = DataLoader(_Slow(seconds), batch_size=None, num_workers=workers, prefetch_factor=prefetch)
    moments = []
    for _ in loader:
        moments.append(time.perf_counter())
        time.sleep(_STEP)
    return moments


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
