"""The truth suite's stopwatch: what untouched jobs took becomes a truth for every stall, without a job being run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.truth import stopwatch
from bench.truth.cases import Case, named


def timed(monkeypatch: pytest.MonkeyPatch, longer: float, wait: float) -> None:
    """Untouched jobs take the time of their passes and what they do besides, and wait for their loader."""

    def moments(case: Case, bed: None, steps: int) -> tuple[np.ndarray, np.ndarray]:
        slowest = max((factor for _, factor in case.slow_ranks), default=1.0)
        waits = max(wait, case.prep / max(1, case.workers) - (case.compute + longer if case.workers else 0.0))
        step = case.compute * slowest + longer + waits
        return np.arange(steps) * step, np.arange(steps) * waits

    monkeypatch.setattr(stopwatch, "_timed", moments)
    stopwatch._alone.cache_clear()


def stalls(name: str, **changes: object) -> dict[str, float]:
    case = replace(named(name)[0], **changes)
    return stopwatch.stalls(case, None, case.truth(case, {}))


def test_what_a_step_does_besides_is_compute_and_waiting_for_the_loader_is_prep(monkeypatch: pytest.MonkeyPatch):
    timed(monkeypatch, longer=0.001, wait=0.0005)
    assert stalls("nothing, 1 rank") == pytest.approx({"compute": 0.061, "prep": 0.0005})
    assert stalls("rank 1 slow, 2x") == pytest.approx(
        {"compute": 0.061, "contention": 0.06, "interconnect": 0.0, "prep": 0.0005}
    )


def test_reading_that_workers_do_hides_behind_what_a_step_does_besides(monkeypatch: pytest.MonkeyPatch):
    timed(monkeypatch, longer=0.001, wait=0.0005)
    # 180 ms of reading by two workers end every 90 ms, whatever the step does meanwhile
    assert stalls("fetch 3x, 2 workers") == pytest.approx({"compute": 0.061, "prep": 0.0005, "fetch": 0.0285})
    assert stalls("fetch 1x, no workers")["fetch"] == pytest.approx(0.06)
