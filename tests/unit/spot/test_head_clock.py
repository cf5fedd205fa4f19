"""The head's events and the coordinator's updates count seconds from the same moment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from stash.spot.train.head import TrainingHead
from stash.spot.train.run_orders import EVENTS, EventLog, TrainingOrders, WorkerPlace


class SlowToStart:
    """Actors of which the coordinator began five seconds ago and takes a while to answer for the first time."""

    began = time.monotonic() - 5

    def ask(self, what: str) -> float:
        assert what == "seconds"
        time.sleep(0.3)
        return time.monotonic() - self.began


def test_a_coordinator_that_is_slow_to_answer_does_not_shift_the_clock_of_events(tmp_path: Path) -> None:
    orders = TrainingOrders(
        job="job.py:job", checkpoints=str(tmp_path), servers=("server1",),
        workers=(WorkerPlace("worker1", "t4", 8, 0.0),), checkpoint_seconds=1.0,
    )  # fmt: skip
    fleet: Any = SlowToStart()
    head = TrainingHead(orders, tmp_path, fleet)
    head._emit("began", "")
    (event,) = EventLog(tmp_path / EVENTS).news()
    assert 5 < event["at"] <= time.monotonic() - fleet.began
