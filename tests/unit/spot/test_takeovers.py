"""What a run's rows say of who took over."""

import pytest

from stash.spot.emulate.takeovers import takeovers
from stash.spot.run_records import SpotEvent, SpotUpdates


def _updates(*workers):
    """Of workers (name, first update, last, seconds between two)."""
    rows = []
    for name, first, last, gap in workers:
        rows += [(first + number * gap, name) for number in range(round((last - first) / gap) + 1)]
    rows.sort()
    ones = tuple(1 for _ in rows)
    return SpotUpdates(
        seconds=tuple(at for at, _ in rows),
        worker=tuple(name for _, name in rows),
        samples=ones,
        staleness=ones,
        loss=tuple(None for _ in rows),
    )


def test_takeovers_tell_who_was_told_from_who_was_missed():
    updates = _updates(("worker1", 0.0, 12.0, 1.0), ("worker2", 0.0, 12.0, 1.0))
    events = [
        SpotEvent(at=5.0, what="notice", who="worker1", seconds=6.0),
        SpotEvent(at=5.1, what="wanted", who="worker3", instead_of="worker1", type="a"),
        SpotEvent(at=9.1, what="joined", who="worker3", type="a"),
        SpotEvent(at=18.0, what="lost", who="worker2", leases=1),
        SpotEvent(at=18.2, what="wanted", who="worker4", instead_of="worker2", type="b"),
        SpotEvent(at=19.0, what="lost", who="worker1", leases=0),
    ]
    noticed, missed = takeovers(events, updates)
    assert (noticed.gone, noticed.successor, noticed.notice, noticed.noticed_seconds) == (
        "worker1",
        "worker3",
        6.0,
        None,
    )
    assert (noticed.decided_seconds, noticed.joined_seconds) == pytest.approx((0.1, 4.0))
    assert (missed.gone, missed.notice, missed.joined_seconds) == ("worker2", None, None)
    assert (missed.noticed_seconds, missed.decided_seconds) == pytest.approx((6.0, 0.2))
