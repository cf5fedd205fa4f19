"""Facts that newer profiles hold and older ones do not."""

from __future__ import annotations

from profile_builder import build

from stash.core.records.profile import Memory, WorkerTimes
from stash.predict.loading import batch_times
from stash.predict.memory import peak_bytes

OLD = build({"solo": [0.1] * 3})
WARM = WorkerTimes(rank=0, round=0, feed="warm", batches=(4, 0), seconds=(2.0, 0.0))
NEW = OLD.model_copy(
    update={
        "memory": (Memory(rank=0, resident_bytes=900), Memory(rank=1, allocated_bytes=500)),
        "workers": (WARM, WARM.model_copy(update={"feed": "cold", "seconds": (9.0, 0.0)})),
    }
)


def test_an_older_profile_tells_none_of_them():
    assert (peak_bytes(OLD), batch_times(OLD)) == (None, [])


def test_a_newer_one_tells_its_peak_over_ranks_and_times_with_files_in_memory():
    assert (peak_bytes(NEW), batch_times(NEW)) == (500, [(0.5, 4)])
