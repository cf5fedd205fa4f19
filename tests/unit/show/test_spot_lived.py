"""A run's log, drawn: who was there, and what was predicted beside what was observed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from stash.show.charts.chart import Bar, Blank, Chart, Dot, Trail
from stash.show.charts.svg import svg
from stash.show.spot.lived import iterations, losses, presence


@dataclass(frozen=True)
class Event:
    at: float | None
    what: str
    who: str = ""


@dataclass(frozen=True)
class Stretch:
    start: float
    stop: float
    workers: dict[str, int]
    predicted: float | None
    observed: float


@dataclass(frozen=True)
class Updates:
    seconds: tuple[float, ...] = tuple(float(second) for second in range(100))
    loss: tuple[float | None, ...] = tuple(2 / (1 + second / 20) for second in range(100))


@dataclass(frozen=True)
class Run:
    events: tuple[Event, ...] = (
        Event(0.0, "joined", "worker1"),
        Event(1.0, "joined", "worker2"),
        Event(30.0, "notice", "worker2"),
        Event(40.0, "lost", "worker2"),
        Event(None, "joined", "worker9"),
        Event(60.0, "joined", "worker3"),
        Event(80.0, "left", "worker3"),
    )
    stretches: tuple[Stretch, ...] = (
        Stretch(1, 40, {"t4": 2}, 2.0, 1.9),
        Stretch(40, 60, {"t4": 1}, None, 1.0),
        Stretch(60, 99, {"t4": 2}, 2.0, 0.0),
    )
    updates: Updates = field(default_factory=Updates)
    loss_window: int = 10


def drawn(found: Chart | Blank) -> Chart:
    assert isinstance(found, Chart)
    assert svg(found, 860).startswith("<svg")
    return found


def test_everybody_has_a_row_from_joining_to_going() -> None:
    chart = drawn(presence(Run()))
    assert [lane.name for lane in chart.lanes] == ["worker1", "worker2", "worker3"]
    assert [lane.text for lane in chart.lanes] == ["there to the end", "gone", "left, with nothing lost"]
    assert sum(isinstance(mark, Bar) for mark in chart.marks) == 3
    assert sum(isinstance(mark, Dot) for mark in chart.marks) == 2


def test_a_stretch_has_its_observed_pace_and_the_predicted_one_if_there_is_one() -> None:
    chart = drawn(iterations(Run()))
    assert [mark.series for mark in chart.marks if isinstance(mark, Trail)] == [
        "interconnect",
        "contention",
        "contention",
    ]
    assert [row[-2:] for row in chart.table.rows] == [("500 ms", "-5.0%"), ("unknown", "")]
    assert chart.caption == "Of some fleets nothing was predicted."


def test_the_loss_is_a_running_mean_with_its_goal() -> None:
    chart = drawn(losses(Run(), goal=0.5, predicted_seconds=120))
    line = next(mark for mark in chart.marks if isinstance(mark, Trail) and mark.series == "contention")
    assert len(line.points) == 91
    first = sum(2 / (1 + second / 20) for second in range(10)) / 10
    assert float(chart.table.rows[0][1]) == pytest.approx(first, rel=1e-3)
    assert [mark.says for mark in chart.marks if isinstance(mark, Dot)] == ["predicted: 0.5 after 2.0 min"]


def test_what_a_log_lacks_is_said() -> None:
    empty = replace(Run(), events=(), stretches=(), updates=Updates((), ()))
    assert all(isinstance(chart(empty), Blank) for chart in (presence, iterations, losses))
