"""A run's log, drawn: how its loss fell."""

from __future__ import annotations

import pytest

from stash.spot.pages.run_report import losses
from stash.spot.run_records import SpotEvent, SpotLog, SpotStretch, SpotUpdates
from stash.ui.charts.chart import Blank, Chart, Trail
from stash.ui.charts.svg import draw_svg

LOG = SpotLog(
    stash_version="1",
    created="2026-11-22T18:00:00+00:00",
    plan="job.plan.json",
    job="job.py:job",
    on="testbed",
    slower=1.0,
    servers=1,
    reason="time is up",
    seconds=99.0,
    loss=0.4,
    loss_window=10,
    events=(
        SpotEvent(at=0.0, what="joined", who="worker1"),
        SpotEvent(at=1.0, what="joined", who="worker2"),
        SpotEvent(at=30.0, what="notice", who="worker2"),
        SpotEvent(at=40.0, what="lost", who="worker2"),
        SpotEvent(at=None, what="joined", who="worker9"),
        SpotEvent(at=60.0, what="joined", who="worker3"),
        SpotEvent(at=70.0, what="notice", who="worker3", seconds=10.0),
        SpotEvent(at=80.0, what="left", who="worker3"),
    ),
    stretches=(
        SpotStretch(start=1, stop=41, workers={"t4": 2}, updates=76, predicted=2.0),
        SpotStretch(start=41, stop=61, workers={"t4": 1}, updates=20, predicted=None),
        SpotStretch(start=61, stop=99, workers={"t4": 2}, updates=0, predicted=2.0),
    ),
    updates=SpotUpdates(
        seconds=tuple(float(second) for second in range(100)),
        worker=("worker1",) * 100,
        samples=(8,) * 100,
        staleness=(0,) * 100,
        loss=tuple(2 / (1 + second / 20) for second in range(100)),
    ),
)


def drawn(found: Chart | Blank) -> Chart:
    assert isinstance(found, Chart)
    assert draw_svg(found, 860).startswith("<svg")
    return found


def test_the_loss_is_a_running_mean_with_its_goal() -> None:
    chart = drawn(losses(LOG.model_copy(update={"goal_loss": 0.5})))
    line = next(
        mark for mark in chart.marks if isinstance(mark, Trail) and mark.series == "contention"
    )
    assert len(line.points) == 91
    first = sum(2 / (1 + second / 20) for second in range(10)) / 10
    assert float(chart.table.rows[0][1]) == pytest.approx(first, rel=1e-3)


def test_what_a_log_lacks_is_said() -> None:
    empty = LOG.model_copy(update={"events": (), "stretches": (), "updates": SpotUpdates()})
    assert isinstance(losses(empty), Blank)
