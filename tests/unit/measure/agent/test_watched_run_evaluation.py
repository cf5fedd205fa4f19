"""Which loops of a watched run are evaluation: those without gradients that no backward pass follows."""

from __future__ import annotations

import pytest
import torch

from stash.measure.agent import script
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.runner.step_stages import WATCHED_STAGES
from stash.measure.agent.runner.watched_run import WatchedLoops
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.protocol.stamped import StampedStep, StepStage


class Clock:
    """Each reading is a second later."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1.0
        return self.seconds


@pytest.mark.parametrize(
    ("passes", "is_evaluation"), [(1, False), (0, True), (4, True)], ids=["each", "none", "many"]
)
def test_what_is_read_without_gradients_is_evaluation_unless_a_pass_follows_each_batch(
    monkeypatch: pytest.MonkeyPatch, passes: int, is_evaluation: bool
) -> None:
    monkeypatch.setattr(script.bus, "passes", 0)
    stamps, loops, source = Stamps(Clock(), stages=WATCHED_STAGES), WatchedLoops(), object()
    loops.stamps = stamps
    for _ in range(8):
        with torch.no_grad():
            loops.waited(source, lambda: None)
        script.bus.passes += passes
        stamps.tell(ThreadEvent.STEP_ENDED)
    last: StampedStep = stamps.block_steps()[-1]
    assert (last.seconds_in(StepStage.EVALUATION) > 0) is is_evaluation
