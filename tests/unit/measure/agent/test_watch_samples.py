"""A step that is followed: the collectives in it that no stamp comes to."""

from __future__ import annotations

import os

import pytest
import torch.distributed

from stash.measure.agent.runner import watch_duties
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.runner.watch_duties import sample_collectives, sum_unseen_collectives
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.protocol.stamped import RingReader, StepRing, StepStage


def test_what_nobody_called_is_counted(tmp_path, monkeypatch):
    issued = [7]
    monkeypatch.setattr(watch_duties.private, "sequence_numbers", lambda: {"0": issued[0]})
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    now = [0.0]
    path = tmp_path / f"ring.0.{os.getpid()}"
    stamps = Stamps(lambda: now[0], StepRing(path, 0, 2, 0, 0))
    stamps.count_from(watch_duties.EVERY)
    sample = sample_collectives(stamps)
    next(sample)
    next(sample)
    now[0] = 1.0
    stamps.tell(ThreadEvent.REPLAYED)
    issued[0] += 1  # by C++: no stamp comes to it
    now[0] = 3.0
    stamps.tell(ThreadEvent.COLLECTIVE_BEGINS)
    issued[0] += 1
    now[0] = 3.5
    stamps.tell(ThreadEvent.COLLECTIVE_ENDED)
    now[0] = 4.0
    stamps.tell(ThreadEvent.BACKWARD_ENDED)
    now[0] = 4.25
    stamps.tell(ThreadEvent.STEP_ENDED)
    next(sample)
    reader = RingReader(path)
    (row,) = reader.read_new()
    assert row.seconds_in(StepStage.COLLECTIVE) == 0.5
    assert reader.unseen_note == "1 2"


def entry(seconds, *frames):
    """As PyTorch 2.13's flight recorder has it, with what is read of it."""
    return {
        "record_id": 0,
        "frames": [{"name": name, "filename": file, "line": 1} for file, name in frames],
        "profiling_name": "nccl:all_reduce",
        **({} if seconds is None else {"duration_ms": seconds * 1e3}),
    }


def test_the_flight_recorder_tells_whose_call_it_was():
    seen = entry(
        0.5, ("/x/torch/distributed/distributed_c10d.py", "all_reduce"), ("train.py", "<module>")
    )
    functional = entry(
        0.02, ("/x/torch/_ops.py", "__call__"), ("/x/_functional_collectives.py", "all_reduce")
    )
    compiled = entry(0.01, ("/tmp/torchinductor/c4.py", "call"))
    assert sum_unseen_collectives([seen, functional, compiled]) == (2, pytest.approx(0.03))
    assert sum_unseen_collectives([seen, entry(None, ("/tmp/torchinductor/c4.py", "call"))]) == (
        1,
        0.0,
    )
    assert sum_unseen_collectives([]) == (0, 0.0)
