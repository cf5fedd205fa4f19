"""What a run's events and updates show of takeovers: who replaced whom, and how long everything took."""

from __future__ import annotations

from collections.abc import Sequence

from stash.spot.run_records import SpotEvent, SpotTakeover, SpotUpdates


def takeovers(events: Sequence[SpotEvent], updates: SpotUpdates) -> tuple[SpotTakeover, ...]:
    """Find, for each that had notice or was found missing, who replaced it, and how long everything took."""
    when = {(event.what, event.who): event.at for event in events if event.at is not None}
    successors = {event.instead_of: event for event in events if event.what == "wanted"}
    last_updates = dict(zip(updates.worker, updates.seconds, strict=True))
    found = []
    for event in events:
        with_notice = event.what == "notice"
        missing = event.what in ("lost", "server lost") and ("notice", event.who) not in when
        if not (with_notice or missing) or event.at is None:
            continue
        successor = successors.get(event.who)
        name = None if successor is None else successor.who
        joined = when.get(("joined", name)) or when.get(("server joined", name)) if name else None
        decided = None if successor is None else successor.at
        found.append(
            SpotTakeover(
                gone=event.who,
                successor=name,
                notice=event.seconds if with_notice else None,
                decided_seconds=None if decided is None else decided - event.at,
                noticed_seconds=event.at - last_updates[event.who]
                if missing and event.who in last_updates
                else None,
                joined_seconds=None if joined is None or decided is None else joined - decided,
            )
        )
    return tuple(found)
