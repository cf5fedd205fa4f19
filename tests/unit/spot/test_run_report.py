"""What a run that was lived through looks like: its page, its events, its loss drawn."""

from pathlib import Path

import pytest

from stash.spot.pages.run_report import document, line, losses, page
from stash.spot.run_records import SpotEvent, SpotUpdates
from stash.spot.spot_files import load_spot_log
from stash.ui.charts.builders import Chart
from stash.ui.charts.chart import Blank
from stash.ui.charts.svg import draw_svg
from stash.ui.terminal import render

LOG = load_spot_log(Path(__file__).resolve().parents[2] / "golden" / "schema-1.spotlog.json")


def test_a_server_or_worker_that_was_missed_is_told_with_its_times():
    missed = LOG.takeovers[0].model_copy(
        update={
            "gone": "worker9",
            "successor": "worker10",
            "notice": None,
            "decided_seconds": 0.004,
            "noticed_seconds": 5.2,
            "joined_seconds": None,
        }
    )
    text = render(page(LOG.model_copy(update={"takeovers": (missed,)})), 80)
    row = next(line for line in text.splitlines() if "worker10" in line)
    assert row.split() == ["worker9", "none", "5.20", "s", "4.00", "ms", "worker10"]


def test_books_that_are_wrong_are_a_warning():
    assert LOG.books is not None
    books = LOG.books.model_copy(update={"wrong": "8 samples are unaccounted for"})
    text = render(page(LOG.model_copy(update={"books": books})), 80)
    assert "! the books are wrong: 8 samples are unaccounted for" in text
    assert "no lease lost" not in text


def test_what_is_unknown_is_said_to_be():
    unknown = {"takeovers": (), "books": None, "loss": None, "updates": SpotUpdates()}
    bare = LOG.model_copy(update={"stretches": (), "seconds": None, **unknown})
    text = render(page(bare), 80)
    assert "Updates/s unknown." in text
    assert "Loss unknown" in text
    assert "How the leases stand is unknown" in text
    assert document(bare)["predicted_updates_per_second"] is None
    empty = LOG.model_copy(update={"events": (), "stretches": (), "updates": SpotUpdates()})
    assert isinstance(losses(empty), Blank)


@pytest.mark.parametrize(
    ("event", "began", "text"),
    [
        (
            SpotEvent(at=15.5, what="lost", who="worker2", leases=1),
            10.0,
            "     5.5 s  worker2 is gone; 1 lease given out again",
        ),
        (
            SpotEvent(at=5.0, what="joined", who="worker1", type="a"),
            None,
            "           worker1 (a) joined",
        ),
        (
            SpotEvent(at=5.0, what="server joined", who="server2", told=("one is damaged",)),
            None,
            "           server2 joined; one is damaged",
        ),
        (SpotEvent(at=5.0, what="checkpoint"), 1.0, None),
    ],
)
def test_events_are_told_with_the_time_since_training_began(event, began, text):
    assert line(event, began) == text


def test_the_loss_is_drawn_as_a_running_mean_with_its_goal():
    chart = losses(LOG)
    assert isinstance(chart, Chart)
    assert draw_svg(chart, 860).startswith("<svg")
    trails = {curve.series: curve for curve in chart.curves}
    window = LOG.loss_window
    assert len(trails["contention"].points) == len(LOG.updates.loss) - window + 1
    rows = list(zip(LOG.updates.loss, LOG.updates.samples, strict=True))[:window]
    first = sum((loss or 0) * samples for loss, samples in rows) / sum(each for _, each in rows)
    assert float(chart.table.rows[0][1]) == pytest.approx(first, rel=1e-3)
