"""What a run that was lived through looks like."""

from __future__ import annotations

from stash.spot.pages.run_report import document, line, page
from stash.spot.run_records import (
    LeaseBooks,
    SpotEvent,
    SpotLog,
    SpotStretch,
    SpotTakeover,
    SpotUpdates,
)
from stash.ui.terminal import render

BOOKS = LeaseBooks(issued=160, done=160, out=0, waiting=0, reissued=1, repeated=0, wrong=None)
LOG = SpotLog(
    stash_version="1",
    created="2026-11-22T18:00:00+00:00",
    plan="job.plan.json",
    job="job.py:job",
    on="testbed",
    slower=2.0,
    servers=1,
    reason="time is up",
    seconds=40.0,
    loss=0.4321,
    loss_window=50,
    stretches=(
        SpotStretch(start=0.0, stop=20.0, workers={"a": 1, "b": 1}, updates=60, predicted=3.2),
        SpotStretch(start=20.0, stop=40.0, workers={"a": 1}, updates=40, predicted=2.0),
    ),
    takeovers=(
        SpotTakeover(
            gone="worker2",
            successor="worker3",
            notice=None,
            decided_seconds=0.004,
            noticed_seconds=5.2,
            joined_seconds=None,
        ),
    ),
    updates=SpotUpdates(
        seconds=(0.5, 1.0),
        worker=("worker1", "worker2"),
        samples=(8, 8),
        staleness=(0, 1),
        loss=(1.0, None),
    ),
    books=BOOKS,
)


def test_a_server_or_worker_that_was_missed_is_told_with_its_times() -> None:
    text = render(page(LOG), 80)
    row = next(line for line in text.splitlines() if "worker2" in line)
    assert row.split() == ["worker2", "none", "5.20", "s", "4.00", "ms", "worker3"]


def test_books_that_are_wrong_are_a_warning() -> None:
    wrong = LOG.model_copy(
        update={"books": BOOKS.model_copy(update={"wrong": "8 samples are unaccounted for"})}
    )
    text = render(page(wrong), 80)
    assert "! the books are wrong: 8 samples are unaccounted for" in text
    assert "no lease lost" not in text


def test_what_is_unknown_is_said_to_be() -> None:
    bare = LOG.model_copy(update={"stretches": (), "takeovers": (), "books": None, "loss": None})
    text = render(page(bare), 80)
    assert "Updates/s unknown; nothing was predicted of it" in text
    assert "Loss unknown" in text
    assert "How the leases stand is unknown" in text
    assert document(bare)["predicted_updates_per_second"] is None


def test_events_are_told_with_the_time_since_training_began() -> None:
    lost = SpotEvent(at=15.5, what="lost", who="worker2", leases=1)
    assert line(lost, 10.0) == "     5.5 s  worker2 is gone; 1 lease given out again"
    assert (
        line(SpotEvent(at=5.0, what="joined", who="worker1", type="a"), None)
        == "           worker1 (a) joined"
    )
    back = SpotEvent(at=5.0, what="server joined", who="server2", told=("one is damaged",))
    assert line(back, None) == "           server2 joined; one is damaged"
    assert line(SpotEvent(at=5.0, what="checkpoint"), 1.0) is None
