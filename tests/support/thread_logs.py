"""Events of real training threads, recorded at the agent's boundary, and replayed through its decisions.

With ``recorder/`` on PYTHONPATH and a folder in THREAD_LOGS, a job under ``stash profile`` or ``stash watch`` leaves
a log of each process there, named by THREAD_LOG. The committed ones (``tests/recorded/threads.xz``) are of scripts of
``tests/zoo``, ``tests/integration/scripts`` and ``bench/cases``, by the agent as it was before it went by tables. A
log has no times: at each event a clock goes on by one. Lines, by their first entry:

- ``loops``: a call of ``Loops``, what it had to know, what came of it
- ``feed``, ``gone``: a block chose what a feed hands out; a loader was dropped
- ``watched``, ``got``: a call of ``WatchedLoops``, and how what it waited for ended
- ``stamps``: a call of ``Stamps``
- ``ledger``: an event for the ledger
- ``rows``: what the last two came to
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import Any

MOST_LINES = {"loops": 2400, "stamps": 1500}
OTHERWISE = 700
"""Lines of a kind, at most."""
MOST_COLLECTIONS = 20
LOOPS = (
    "iterator_asked", "opened", "should_stop", "next_batch", "closed", "stepped", "step_begins", "skipped_steps",
    "acted", "training", "begin_block", "leave_alone", "stop_waiting",
)  # fmt: skip
STAMPS = (
    "enter", "batch_made", "backward_begins", "backward_ended", "wait_begins", "wait_ends", "step_ends",
    "step_begins", "mark", "rename_since", "other_stepped", "_is_ready", "follow", "let_go", "attach",
)  # fmt: skip


class Numbers:
    """Small numbers for objects, in the order in which they are seen."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def of(self, key: Any) -> int:
        return self.known.setdefault(key, len(self.known))


class Recorder:
    """Writes the lines of one process, as they come, and at most so many."""

    def __init__(self, folder: Path) -> None:
        self.file = (folder / f"{os.environ.get('THREAD_LOG', 'log')}.{os.getpid()}.jsonl").open("w")
        self.process = os.getpid()
        self.lines: Counter[Any] = Counter()
        self.facts: dict[str, Any] = {}
        self.collections = 0
        self.inside = self.stamping = False
        self.effects = ""
        self.feeds: dict[int, int] = {}
        self.count = itertools.count()
        self.handles, self.likes, self.sources = Numbers(), Numbers(), Numbers()

    def write(self, *line: Any) -> None:
        self.lines[line[0]] += 1
        is_own = os.getpid() == self.process  # no forked worker's
        if is_own and self.lines[line[0]] <= MOST_LINES.get(line[0], OTHERWISE):
            self.file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self.file.flush()

    def number(self, feed: Any) -> int:
        if id(feed) not in self.feeds:
            number = self.feeds[id(feed)] = next(self.count)
            weakref.finalize(feed, self.forget, id(feed), number)
        return self.feeds[id(feed)]

    def forget(self, key: int, number: int) -> None:
        self.feeds.pop(key, None)
        self.write("gone", number)


def record_once_somebody_listens(folder: Path) -> None:
    """Patch the agent as soon as this process has a listener."""
    from stash.measure.agent import script

    subscribe = script.subscribe

    def subscribed(listener: Any) -> None:
        kind = type(listener).__name__
        if kind in ("LadderRunner", "WatchedRun"):
            script.subscribe = subscribe
            record(Recorder(folder), kind)
        subscribe(listener)

    script.subscribe = subscribed


def record(own: Recorder, kind: str) -> None:
    """Have every call of this process written down."""
    from stash.measure.agent.data import feeds, ring
    from stash.measure.agent.runner import loops, run_ledger, stamps

    if kind == "WatchedRun":
        from stash.measure.agent.runner import watched_run

        patch(watched_run.WatchedLoops, "started", functools.partial(record_watched, own))
        patch(watched_run.WatchedLoops, "waited", functools.partial(record_watched, own))
    else:
        from stash.measure.agent.wraps import loader

        for name in LOOPS:
            patch(loops.Loops, name, functools.partial(record_loops, own))
        for name in ("handle", "interrupt", "resume", "settle"):
            patch(run_ledger.RunLedger, name, functools.partial(record_ledger, own))
        for name in ("begin", "refill"):
            patch(feeds.Feed, name, functools.partial(record_feed, own))
        for cls in (loader.LoaderFeed, feeds.WatchedFeed):
            patch(cls, "real", functools.partial(record_real, own))
            patch(cls, "start_over", functools.partial(record_real, own))
        for cls, name, mark in (
            (feeds.Feed, "next", "N"), (feeds.Feed, "restore", "u"), (ring.Ring, "copy", "c"),
            (stamps.BlockClock, "pause", "p"), (stamps.BlockClock, "resume", "q"), (stamps.BlockClock, "skip", "k"),
            (loops.EpochGap, "open", "w"), (loader.LoaderFeed, "release", "x"),
        ):  # fmt: skip
            patch(cls, name, functools.partial(record_effect, own, mark))
    for name in STAMPS:
        patch(stamps.Stamps, name, functools.partial(record_stamps, own))


def patch(cls: Any, name: str, around: Callable[..., Any]) -> None:
    original = getattr(cls, name)

    @functools.wraps(original)
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(name, original, self, *args, **kwargs)

    setattr(cls, name, patched)


def facts_of(loops: Any) -> dict[str, Any]:
    """What decides beside the call itself."""
    from stash.measure.agent import script

    rank = loops._rank
    return {
        "grad": sys.modules["torch"].is_grad_enabled(),
        "passes": script.passes(),
        "own": rank.stamps.of_this_thread,
        "evaluate": rank.ledger.may_evaluate,
        "epochs": rank.ledger.sees_epochs,
        "endless": rank.orders.endless,
        "trial": rank.orders.trial is not None,
        "block": loops.clock is not None,
        "measured": len(rank.feeds),
    }


def record_loops(own: Recorder, name: str, original: Any, loops: Any, *args: Any, **kwargs: Any) -> Any:
    if own.inside:
        return original(loops, *args, **kwargs)
    subject = args[0] if args else None
    feed = getattr(subject, "feed", subject) if name != "acted" else None
    facts, before = facts_of(loops), own.facts
    changed = {key: value for key, value in facts.items() if key not in before or before[key] != value}
    own.facts = facts
    about: list[Any] = []
    if name == "acted":
        about = [bool(subject or kwargs.get("saved"))]
    elif feed is not None:
        about = [own.number(feed), own.likes.of(feed.like), feed.length, feed.loops, feed.open_loops.tell_their_end]
        if subject is not feed:
            about += [own.handles.of(id(subject)), subject.taken]
            if name == "closed":
                own.handles.known[object()] = own.handles.known.pop(id(subject))
    own.inside, own.effects = True, ""
    result: Any = "failed"
    try:
        result = original(loops, *args, **kwargs)
        return result
    except StopIteration:
        result = "end"
        raise
    finally:
        own.inside = False
        special = {"training": lambda: [own.number(feed) for feed in result], "next_batch": lambda: result == "end"}
        outcome = special.get(name, lambda: result if isinstance(result, bool) else None)()
        own.write("loops", name, changed, about, outcome, loops.between, loops.surprised, own.effects)


def record_effect(own: Recorder, mark: str, name: str, original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
    if own.inside and not (name == "pause" and cls.paused):
        own.effects += mark
    return original(cls, *args, **kwargs)


def record_real(own: Recorder, name: str, original: Any, feed: Any) -> Any:
    """``r``, ``e``: a batch, the end; ``s``, ``n``: started over, or not."""
    if not own.inside:
        return original(feed)
    try:
        result = original(feed)
    except StopIteration:
        own.effects += "e"
        raise
    own.effects += "r" if name == "real" else "s" if result else "n"
    return result


def record_feed(own: Recorder, name: str, original: Any, feed: Any, *args: Any, **kwargs: Any) -> Any:
    before, own.inside = own.inside, True
    try:
        return original(feed, *args, **kwargs)
    finally:
        own.inside = before
        own.write("feed", own.number(feed), feed.mode)


def record_watched(own: Recorder, name: str, original: Any, loops: Any, *args: Any, **kwargs: Any) -> Any:
    from stash.measure.agent import script

    source = args[0].dataset if name == "started" else args[0]
    grad = sys.modules["torch"].is_grad_enabled()
    there = loops.stamps is not None and loops.stamps.of_this_thread
    own.write("watched", name, own.sources.of(id(source)), grad, script.passes(), there)
    result = "failed"
    try:
        batch = original(loops, *args, **kwargs)
        result = "given"
        return batch
    except StopIteration:
        result = "end"
        raise
    finally:
        own.write("got", result)


def record_stamps(own: Recorder, name: str, original: Any, stamps: Any, *args: Any, **kwargs: Any) -> Any:
    if get_ident() == getattr(stamps, "_thread", None) and not own.stamping:
        own.stamping = True
        special = {"rename_since": lambda: args[1:], "follow": tuple, "wait_begins": tuple, "step_ends": tuple}
        given = special.get(name, lambda: (*args, *kwargs.values()))()
        if name == "wait_ends":
            given = args[2:]
        own.write("stamps", name, *given)
        try:
            return original(stamps, *args, **kwargs)
        finally:
            own.stamping = False
    return original(stamps, *args, **kwargs)


def record_ledger(own: Recorder, name: str, original: Any, ledger: Any, *args: Any, **kwargs: Any) -> Any:
    if name == "handle":
        event, _, loader = (*args, None)[:3]
        own.write("ledger", event.name, None if loader is None else own.number(loader))
    elif name != "settle" and "collector" in (args[0], ledger.row):
        own.collections += 1
        if own.collections <= MOST_COLLECTIONS:
            own.write("ledger", name, args[0])
    elif name == "settle":
        own.write("ledger", name)
    else:
        own.write("ledger", name, args[0])
    return original(ledger, *args, **kwargs)
