"""Events of real training threads, recorded at the agent's boundary, go through its decisions again.

The logs (``tests/recorded/threads.xz``) are of scripts of ``tests/zoo``, ``tests/integration/scripts`` and
``bench/cases``, by the agent as it was before it went by tables; what recorded them is in the history, at 60c9aa7e. A
log has no times: at each event a clock goes on by one. Lines, by their first entry:

- ``loops``: a call of ``Loops``, what it had to know, what came of it
- ``feed``, ``gone``: a block chose what a feed hands out; a loader was dropped
- ``watched``, ``got``: a call of ``WatchedLoops``, and how what it waited for ended
- ``stamps``: a call of ``Stamps``
- ``ledger``: an event for the ledger
- ``rows``: what the last two came to
"""

from __future__ import annotations

import json
import lzma
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ranks_in_memory import Loop

from stash.measure.agent import script
from stash.measure.agent.data.feeds import Feed, OpenLoops
from stash.measure.agent.runner import loops as the_loops
from stash.measure.agent.runner import stamps as the_stamps
from stash.measure.agent.runner.run_ledger import RunLedger
from stash.measure.agent.runner.stamps import BlockClock, Stamps
from stash.measure.agent.runner.watched_run import WatchedLoops
from stash.measure.agent.script import ThreadEvent
from stash.measure.protocol.stamped import SWITCHES, StepStage

LOGS = Path(__file__).parents[1] / "recorded" / "threads.xz"
Line = list[Any]
_FORWARD, _COLLECTOR = int(StepStage.FORWARD), int(StepStage.COLLECTOR)


def logs() -> dict[str, list[Line]]:
    """Those of all scripts, by name."""
    found: dict[str, list[Line]] = {}
    for line in lzma.decompress(LOGS.read_bytes()).decode().splitlines():
        name, *rest = json.loads(line)
        found.setdefault(name, []).append(rest)
    return found


class Effects:
    """What the decisions of one event made happen, and what data were to be had: one letter each."""

    def __init__(self) -> None:
        self.seen = ""
        self._data: deque[str] = deque()

    def begin(self, recorded: str) -> None:
        self.seen, self._data = "", deque(letter for letter in recorded if letter in "resn")

    def add(self, letter: str) -> None:
        self.seen += letter

    def take(self, letters: str) -> str:
        """What asking for data came to then."""
        assert self._data, f"more is read than was recorded, after {self.seen!r}"
        assert self._data[0] in letters
        self.seen += self._data[0]
        return self._data.popleft()


class ReplayedRing:
    def __init__(self, effects: Effects) -> None:
        self._effects, self._offered = effects, 0
        self.kept: list[Any] = []

    def __len__(self) -> int:
        return self._offered

    def offer(self, batch: Any) -> None:
        self._offered += 1

    def next(self) -> Any:
        return 0

    def copy(self) -> Any:
        self._effects.add("c")
        return 0

    def begin(self, *_: Any) -> bool:
        return True

    def rest(self) -> None:
        pass


class ReplayedFeed(Feed):
    """A loader of which only what was recorded is known."""

    def __init__(self, effects: Effects, like: int) -> None:
        super().__init__("map")
        self._effects, self._like = effects, like
        self.known_length: int | None = None
        self.ring = ReplayedRing(effects)  # type: ignore[assignment]

    @property
    def length(self) -> int | None:
        return self.known_length

    @property
    def like(self) -> tuple[object, ...]:
        return (self._like,)

    def next(self) -> Any:
        self._effects.add("N")
        return super().next()

    def restore(self, before: Any, read: int) -> None:
        self._effects.add("u")
        super().restore(before, read)

    def release(self) -> None:
        self._effects.add("x")

    def real(self) -> Any:
        if self._effects.take("re") == "e":
            raise StopIteration
        return 0

    def start_over(self) -> bool:
        return self._effects.take("sn") == "s"


class _Ledger(script.NoLedger):
    pass


class Ticks:
    """A clock that goes on by one at each event."""

    def __init__(self) -> None:
        self.ticks = 0.0

    def now(self) -> float:
        return self.ticks

    settled = now
    runs_ahead = False


@contextmanager
def noted_effects(effects: Effects) -> Iterator[None]:
    """Of clocks of blocks, and of timers that wait for another epoch."""

    class Timer:
        def __init__(self, *_: Any) -> None:
            self.daemon = False

        def start(self) -> None:
            effects.add("w")

        def cancel(self) -> None:
            pass

    def noted(name: str, letter: str) -> Any:
        original = getattr(BlockClock, name)

        def call(self: Any, now: float) -> None:
            if not (name == "pause" and self.paused):
                effects.add(letter)
            original(self, now)

        return call

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(the_loops, "threading", SimpleNamespace(Timer=Timer))
        for name, letter in (("pause", "p"), ("resume", "q"), ("skip", "k")):
            patched.setattr(BlockClock, name, noted(name, letter))
        patched.setattr(script.bus, "passes", 0)
        yield


def replay_loops(lines: Sequence[Line]) -> Iterator[tuple[Line, Line]]:
    """Of each recorded call what came of it then, and now: outcome, ``between``, ``surprised``, effects."""
    effects, clock, ledger = Effects(), Ticks(), _Ledger()
    stamps = script.NoStamps()
    stamps.of_this_thread, stamps.follows_device = True, False  # type: ignore[attr-defined]
    orders = SimpleNamespace(endless=False, trial=None)
    rank: Any = SimpleNamespace(
        feeds=[], clock=clock, ledger=ledger, stamps=stamps, orders=orders, note=lambda text: None
    )
    loops: Any = the_loops.Loops(rank, lambda: None)
    feeds: dict[int, ReplayedFeed] = {}
    handles: dict[int, Any] = {}
    facts: dict[str, Any] = {}
    with noted_effects(effects):
        for kind, *rest in lines:
            clock.ticks += 1
            if kind == "feed" and rest[0] in feeds:
                effects.begin("")
                feeds[rest[0]].begin(rest[1], 1)
            elif kind == "gone":
                feeds.pop(rest[0], None)
            elif kind == "loops":
                name, changed, about, outcome, *after = rest
                facts |= changed
                effects.begin(after[2])
                stamps.of_this_thread = facts["own"]  # type: ignore[attr-defined]
                ledger.may_evaluate, ledger.sees_epochs = facts["evaluate"], facts["epochs"]
                orders.endless, orders.trial = facts["endless"], {} if facts["trial"] else None
                script.bus.passes = facts["passes"]
                if not facts["block"]:
                    loops.end_block()
                with torch.set_grad_enabled(facts["grad"]):
                    found = _call(loops, name, about, feeds, handles, effects)
                if name == "training":
                    rank.feeds = [feeds[number] for number in found]
                yield [name, outcome, *after], [name, found, loops.between, loops.surprised, effects.seen]


def _call(loops: Any, name: str, about: list[Any], feeds: Any, handles: Any, effects: Effects) -> Any:
    if name == "training":
        found = loops.training()
        return [number for number, feed in feeds.items() if feed in found]
    if len(about) < 2:
        getattr(loops, name)(*about)
        return None
    number, like, length, open_loops, in_handles, *of_handle = about
    feed = feeds.setdefault(number, ReplayedFeed(effects, like))
    feed.known_length, feed.open_loops = length, OpenLoops(open_loops, in_handles)
    if of_handle:
        handle = handles.setdefault(of_handle[0], Loop(feed))
        handle.taken = of_handle[1]
        if name == "closed":
            del handles[of_handle[0]]
        return getattr(loops, name)(handle)
    try:
        getattr(loops, name)(feed)
    except StopIteration:
        return True
    return False if name == "next_batch" else None


class Rows:
    """Keeps every step's row."""

    def __init__(self) -> None:
        self.live, self.written = [0.0] * 8, 0
        self.rows: list[list[int]] = []

    def write(self, row: list[float]) -> None:
        self.rows.append([int(value) for field, value in enumerate(row) if field != SWITCHES])


class _NoQueue:
    """No thread is ever kept waiting."""

    thread, known, exchanging = 0, False, False

    def __init__(self, *_: Any) -> None:
        pass

    def at(self, now: float) -> float:
        return 0.0

    def delay(self) -> float:
        return 0.0

    def look(self) -> None:
        pass


def replay_stamps(lines: Sequence[Line]) -> list[list[int]]:
    """The rows of the steps."""
    clock, ring = Ticks(), Rows()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(the_stamps, "RunQueue", _NoQueue)
        patched.setattr(the_stamps, "Helpers", _NoQueue)
        stamps: Any = Stamps(clock.now, ring)  # type: ignore[arg-type]
        mark: Any = None
        for kind, name, *given in lines:
            if kind != "stamps":
                continue
            clock.ticks += 1
            if name == "mark":
                mark = stamps.mark()
            elif name == "rename_since":
                stamps.rename_since(mark, *given)
            elif name in ("wait_begins", "step_ends"):
                getattr(stamps, name)(clock.ticks)
            elif name == "wait_ends":
                stamps.wait_ends(clock.ticks, 0.0, *given)
            elif name == "follow":
                stamps.follow(())
            else:
                getattr(stamps, name)(*given)
    return ring.rows


def replay_ledger(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The rows at the end."""
    ledger, now = RunLedger(0.0), 0.0
    for kind, name, *given in lines:
        if kind != "ledger":
            continue
        now += 1
        if name in ("interrupt", "resume"):
            getattr(ledger, name)(*given, now)
        elif name == "settle":
            ledger.settle(now)
        else:
            ledger.handle(ThreadEvent[name], now, *given)
    return ledger.rows(now, {})


_SOME_STAGE = -1


class NotedStamps:
    """Notes how loops call it; which stage an interrupted thread was in is not known here."""

    def __init__(self, of_this_thread: bool) -> None:
        self.of_this_thread = of_this_thread
        self.calls: list[Line] = []
        self.ring = SimpleNamespace(name_loaders=lambda names: None)

    def enter(self, stage: int) -> int:
        self.calls.append(["enter", stage])
        return _SOME_STAGE

    def mark(self) -> int:
        self.calls.append(["mark"])
        return 0

    def rename_since(self, mark: Any, stage: int) -> None:
        self.calls.append(["rename_since", stage])

    def wait_begins(self, now: float) -> float:
        self.calls.append(["wait_begins"])
        return 0.0

    def wait_ends(self, now: float, delay: float, loader: int, stage: int = _FORWARD) -> None:
        self.calls.append(["wait_ends", stage])


class Source:
    """What batches come from."""

    @property
    def dataset(self) -> Source:
        return self


def replay_watched(lines: Sequence[Line]) -> Iterator[tuple[list[Line], list[Line]]]:
    """Of each recorded call how it called ``Stamps`` then, and now."""
    loops: Any = WatchedLoops()
    sources: dict[int, Source] = {}
    then: list[Line] = []
    last: Line = []
    whole = max((number for number, line in enumerate(lines) if line[0] == "stamps"), default=0)
    with pytest.MonkeyPatch.context() as patched:
        for kind, *rest in lines[:whole]:  # after that a log has too few of them
            if kind == "watched":
                then, last = [], rest
            elif kind == "stamps" and last:
                then.append(rest)
            elif kind == "got" and last:
                name, number, grad, passes, there = last
                patched.setattr(script.bus, "passes", passes)
                noted = NotedStamps(of_this_thread=True)
                loops.note_in(noted if there else None)  # none before the first step
                with torch.set_grad_enabled(grad), suppress(StopIteration):
                    getattr(loops, name)(sources.setdefault(number, Source()), _given(rest[0]))
                yield _as_noted(then, noted.calls), noted.calls
                last = []


def _given(how: str) -> Any:
    def take() -> int:
        if how != "given":
            raise StopIteration
        return 0

    return take


def _as_noted(recorded: list[Line], noted: list[Line]) -> list[Line]:
    """The calls without collections of garbage and loaders' numbers."""
    calls: list[Line] = []
    collects = False
    for name, *given in recorded:
        if name == "enter" and (collects or given[0] == _COLLECTOR):
            collects = not collects
        elif name == "wait_ends":
            calls.append([name, *(given[1:] or [_FORWARD])])
        else:
            calls.append([name, *given])
    for then, now in zip(calls, noted, strict=False):
        if now == ["enter", _SOME_STAGE] and then[0] == "enter":
            then[1] = _SOME_STAGE
    return calls
