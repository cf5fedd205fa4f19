"""What it costs a loader that its workers are processes: ``python -m bench.predict.hand_over [--repeats N]``.

Ready batches are taken from one worker by a thread that has slept meanwhile: what it waits is what taking over costs,
by tensors of a batch. Large batches are asked for one after the other: what they take longer than small ones is the
worker's copying of their bytes. Last a step of known length is held against what ``step_seconds`` says with the
constants of ``stash.predict.loading``. All is done again and again, interleaved.
"""

from __future__ import annotations

import time
from statistics import fmean, median

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from bench.machine import arguments, machine
from bench.table import show
from stash.predict.loading import BATCH_HAND_OVER, BYTE_HAND_OVER, TENSOR_HAND_OVER
from stash.predict.pipeline import HandOver, Pipeline, Work, step_seconds

TENSORS = (1, 2, 4, 16)
SMALL, LARGE = 1 << 12, 1 << 24
"""Bytes of a batch."""
STEPS = (0.35e-3, 2e-3, 8e-3)
"""Seconds that training a batch of two tensors takes."""


class Ready(Dataset[list[torch.Tensor]]):
    """Batches that take no time to make."""

    def __init__(self, tensors: int, size: int) -> None:
        self.tensors = [torch.ones(size // tensors // 4) for _ in range(tensors)]

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [tensor.clone() for tensor in self.tensors]


def seconds_of_batches(
    tensors: int, size: int, count: int, workers: int = 1, sleeps: float = 0.0, trains: float = 0.0
) -> tuple[float, float]:
    """Of a batch: what it is waited for in the middle, and the mean from one to the next."""
    loader = DataLoader(Ready(tensors, size), batch_size=None, num_workers=workers)
    batches, waits = iter(loader), []
    for _ in range(5):
        next(batches)
    began = time.perf_counter()
    for _ in range(count):
        time.sleep(sleeps)
        asked = time.perf_counter()
        next(batches)
        came = time.perf_counter()
        waits.append(came - asked)
        while time.perf_counter() - came < trains:
            pass
    return median(waits), (time.perf_counter() - began) / count


def main() -> None:
    asked = arguments(__doc__, repeats=(5, "times that everything is measured"))
    torch.set_num_threads(1)
    taken: dict[int, list[float]] = {tensors: [] for tensors in TENSORS}
    steps: dict[float, list[float]] = {seconds: [] for seconds in STEPS}
    copied = []
    for _ in range(asked.repeats):
        for tensors, found in taken.items():
            found.append(seconds_of_batches(tensors, SMALL, 40, sleeps=5e-3)[0])
        for seconds, lengths in steps.items():
            lengths.append(seconds_of_batches(2, SMALL, 100, trains=seconds)[1])
        made, large = (seconds_of_batches(1, LARGE, 15, workers)[1] for workers in (0, 1))
        copied.append((large - made) / LARGE)
    per_tensor, per_batch = np.polyfit(TENSORS, [median(found) for found in taken.values()], 1)
    print(machine(), end="\n\n")
    show(
        ("what", "ms, middle", "least", "most", "by the constants, ms"),
        [
            *(
                _row(f"take over {n} tensors", found, BATCH_HAND_OVER + n * TENSOR_HAND_OVER)
                for n, found in taken.items()
            ),
            _row("copy 1 MB", [1e6 * each for each in copied], 1e6 * BYTE_HAND_OVER),
            *(
                _row(f"a step of {1e3 * seconds:g} ms", lengths, _forecast(seconds))
                for seconds, lengths in steps.items()
            ),
        ],
    )
    error = fmean(abs(_forecast(one) / median(found) - 1) for one, found in steps.items())
    print(
        f"\nA batch {1e3 * per_batch:.2f} ms and each of its tensors {1e3 * per_tensor:.2f} ms; "
        f"steps are forecast {error:.0%} off in the mean."
    )


def _row(what: str, found: list[float], constant: float) -> tuple[str, ...]:
    times = (median(found), min(found), max(found), constant)
    return (what, *(f"{1e3 * seconds:.2f}" for seconds in times))


def _forecast(trained_in: float) -> float:
    """Of a batch of two tensors that one worker makes in no time."""
    nothing = np.zeros(1)
    hand_over = HandOver(batch_seconds=BATCH_HAND_OVER + 2 * TENSOR_HAND_OVER)
    pipeline = Pipeline(ranks=1, workers=1, prefetch=2, samples=1, batches=1)
    work = Work(nothing, nothing, nothing, hand_over=hand_over)
    return float(step_seconds(pipeline, work, np.array([trained_in]))[0])


if __name__ == "__main__":
    main()
