"""What a run's updates and events show: how fast each fleet was that it had, and takeovers.

A fleet is who made updates, not who was reported to be there: a worker belongs to it from its first update to its
last. Pure: rows in, records out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from stash.spot.run_records import SpotEvent, SpotStretch, SpotTakeover, SpotUpdates

MIN_UPDATES = 10
"""Of a stretch that is worth comparing: fewer say little of a speed."""


def stretches(
    updates: SpotUpdates,
    types: Mapping[str, str],
    outages: Sequence[tuple[float, float]],
) -> tuple[SpotStretch, ...]:
    """The run cut wherever the fleet changed; ``types`` of workers by name, ``outages`` of servers.

    Times without a server are left out, and stretches of fewer than ten updates.
    """
    times = np.array(updates.seconds)
    if len(times) < 2:
        return ()
    life = _lives(updates)
    edges = sorted(
        {
            edge
            for pair in (*life.values(), *outages)
            for edge in pair
            if times[0] <= edge <= times[-1]
        }
    )
    found = []
    for start, stop in pairwise(edges):
        inside = int(((times > start) & (times <= stop)).sum())
        if inside < MIN_UPDATES or any(began < stop and start < ended for began, ended in outages):
            continue
        there = Counter(
            types[name] for name, (began, ended) in life.items() if began <= start and stop <= ended
        )
        workers = dict(sorted(there.items()))
        found.append(
            SpotStretch(start=start, stop=stop, workers=workers, updates=inside, predicted=None)
        )
    return tuple(found)


def _lives(updates: SpotUpdates) -> dict[str, tuple[float, float]]:
    """Each worker's first and last update."""
    made = [*zip(updates.worker, updates.seconds, strict=True)]
    first = dict(reversed(made))
    return {name: (first[name], last) for name, last in dict(made).items()}


def outages(events: Sequence[SpotEvent], end: float) -> list[tuple[float, float]]:
    """Times in which a server was missing, from the last update before it was missed."""
    found = []
    since = None
    for event in events:
        if event.what == "server lost" and since is None:
            since = event.at
        elif event.what == "server joined" and since is not None and event.at is not None:
            found.append((since, event.at))
            since = None
    return found if since is None else [*found, (since, end)]


def takeovers(events: Sequence[SpotEvent], updates: SpotUpdates) -> tuple[SpotTakeover, ...]:
    """Find, for each that had notice or was found missing, who replaced it, and how long everything took."""
    when = {(event.what, event.who): event.at for event in events if event.at is not None}
    successors = {event.instead_of: event for event in events if event.what == "wanted"}
    life = _lives(updates)
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
                noticed_seconds=event.at - life[event.who][1]
                if missing and event.who in life
                else None,
                joined_seconds=None if joined is None or decided is None else joined - decided,
            )
        )
    return tuple(found)
