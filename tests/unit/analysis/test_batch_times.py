"""Rare slow batches: their share and median by pencil, and what their order makes steps wait."""

from __future__ import annotations

import pytest
from profile_builder import build

from stash.analysis.batch_times import BatchTimes, _simulate_waits, batch_times
from stash.core.measured import FIRST_TOOK, WorkerTimes
from stash.core.records.profile import Loader

EVEN = (0, 0, 0, 40)
RARE = (0, 0, 0, 36, 0, 0, 0, 0, 0, 4)


def test_slow_batches_are_those_of_eight_medians():
    found = BatchTimes(RARE)
    assert found.median == pytest.approx(FIRST_TOOK * 2**2.5)
    assert found.slow == 0.1
    assert found.slow_seconds == pytest.approx(FIRST_TOOK * 2**8.5)
    assert BatchTimes(EVEN).slow == 0


def test_a_batch_that_lies_ready_is_not_waited_for_where_order_does_not_matter():
    """Two workers, one batch asked of each: 8 s, then 1 s each. In order all behind the first wait."""
    times = [8.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    # 8 for the first, then 1, 0.5, 0.5, … of what each worker has not yet made
    assert _simulate_waits(times, 2, 1, train_seconds=1.0, in_order=True) == pytest.approx(
        8.0 / 6, abs=0.2
    )
    # 1 for each of the second worker's, whose next is asked for as one is taken: five of them before the 8 are over
    assert _simulate_waits(times, 2, 1, train_seconds=1.0, in_order=False) < 5.0 / 6


def test_times_of_all_ranks_and_rounds_are_added_and_too_few_tell_nothing():
    def profile(*took: tuple[int, ...], workers: int = 2):
        rows = [
            WorkerTimes(feed="warm", rank=0, round=at, batches=(9,), seconds=(1.0,), took=each)
            for at, each in enumerate(took)
        ]
        return build(
            {"solo": [0.1] * 3, "warm": [0.2] * 3},
            workload={"loaders": (Loader(kind="map", workers=workers),)},
            workers=tuple(rows),
        )

    assert batch_times(profile(EVEN, EVEN)) == BatchTimes((0, 0, 0, 80))
    assert batch_times(profile((0, 39))) is None
    assert batch_times(profile(EVEN, workers=0)) is None
