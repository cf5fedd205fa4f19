"""Events of real training threads, recorded at the agent's boundary, go through its decisions again.

The logs (``tests/recorded/threads.xz``) are of scripts of ``tests/zoo``, ``tests/integration/scripts`` and
``bench/cases``, by the agent as it was before it went by tables; what recorded them is in the history, at 60c9aa7e. A
log has no times: at each event a clock goes on by one. Lines, by their first entry:

- ``loops``: a call of ``Loops``, what it had to know, what came of it
- ``feed``, ``gone``: a block chose what a feed hands out; a loader was dropped
- ``watched``, ``got``: a call of ``WatchedLoops``, and how what it waited for ended
- ``stamps``, ``ledger``: an event for either; ``mark``, ``follow``, ``let_go``: what else ``Stamps`` was asked to do
- ``rows``: what the last but one line came to, by the code before it was a fold: each step's row, the ledger's rows
"""

from __future__ import annotations

import json
import lzma
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ranks_in_memory import Loop

from stash.measure.agent import script
from stash.measure.agent.data.feeds import Feed, OpenLoops
from stash.measure.agent.runner import loops as the_loops
from stash.measure.agent.runner.ledger_keeper import NoLedger
from stash.measure.agent.runner.run_ledger import RunLedger
from stash.measure.agent.runner.stamps import BlockClock, Stamps
from stash.measure.agent.runner.step_stages import WATCHED_STAGES, Stages
from stash.measure.agent.runner.watched_run import WatchedLoops
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.protocol.stamped import SWITCHES, StepStage

LOGS = Path(__file__).parents[3] / "recorded" / "threads.xz"
Line = list[Any]
UNRECORDED = (SWITCHES, StepStage.COMPILATION)
"""Fields of a step's row that differ from run to run, or came later."""
_OCCURRENCES = 8
"""Of a ledger's row that are written down one by one."""


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
        self.batches: list[Any] = []

    def __len__(self) -> int:
        return self._offered

    def offer(self, batch: Any) -> None:
        self._offered += 1

    def next_batch(self) -> Any:
        return 0

    def copy_first(self) -> Any:
        self._effects.add("c")
        return 0

    def begin(self, *_: Any) -> bool:
        return True

    def end_block(self) -> None:
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
    def signature(self) -> tuple[object, ...]:
        return (self._like,)

    def take_next(self) -> Any:
        self._effects.add("N")
        return super().take_next()

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


class Ticks:
    """A clock that goes on by one at each event."""

    def __init__(self) -> None:
        self.ticks = 0.0

    def now(self) -> float:
        return self.ticks

    synchronize = now
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

    def note_effect(name: str, letter: str) -> Any:
        original = getattr(BlockClock, name)

        def call(self: Any, now: float) -> None:
            if not (name == "pause" and self.paused_since is not None):
                effects.add(letter)
            original(self, now)

        return call

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(the_loops, "threading", SimpleNamespace(Timer=Timer))
        for name, letter in (("pause", "p"), ("resume", "q"), ("skip", "k")):
            patched.setattr(BlockClock, name, note_effect(name, letter))
        patched.setattr(script.bus, "passes", 0)
        yield


def replay_loops(lines: Sequence[Line]) -> Iterator[tuple[Line, Line]]:
    """Of each recorded call what came of it then, and now: outcome, ``between``, ``surprised``, effects."""
    effects, clock, ledger = Effects(), Ticks(), NoLedger()
    handle = lambda event, now, about: None  # noqa: E731
    stamps = SimpleNamespace(is_this_thread=True, follows_device=False, handle=handle)
    orders = SimpleNamespace(endless=False, trial=None)
    rank: Any = SimpleNamespace(
        feeds=[],
        clock=clock,
        ledger=ledger,
        stamps=stamps,
        orders=orders,
        note=lambda text: None,
        tell=lambda event, about: None,
        tell_at=handle,
        work_since=lambda moment: None,
        give_batch=lambda asked, took, about: handle(ThreadEvent.BATCH_GIVEN, asked, about),
        begin_step=lambda: None,
        may_evaluate=False,
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
                stamps.is_this_thread = facts["own"]
                rank.may_evaluate, ledger.sees_epochs = facts["evaluate"], facts["epochs"]
                orders.endless, orders.trial = facts["endless"], {} if facts["trial"] else None
                script.bus.passes = facts["passes"]
                if not facts["block"]:
                    loops.end_block()
                with torch.set_grad_enabled(facts["grad"]):
                    found = _call(loops, name, about, feeds, handles, effects)
                if name == "training":
                    rank.feeds = [feeds[number] for number in found]
                yield (
                    [name, outcome, *after],
                    [name, found, loops.is_between_epochs, loops.is_surprised, effects.seen],
                )


def _call(
    loops: Any, name: str, about: list[Any], feeds: Any, handles: Any, effects: Effects
) -> Any:
    if name == "training":
        found = loops.find_training_feeds()
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
        recorded = [value for field, value in enumerate(row) if field not in UNRECORDED]
        self.rows.append([int(value) for value in recorded])


def replay_stamps(lines: Sequence[Line], stages: Stages) -> list[list[int]]:
    """The rows of the steps of a thread that is never kept waiting."""
    clock, ring = Ticks(), Rows()
    stamps: Any = Stamps(clock.now, ring if stages is WATCHED_STAGES else None, stages)  # type: ignore[arg-type]
    stamps.ring = ring
    mark: Any = None
    still: Any = SimpleNamespace(sample=lambda now: 0.0, latest=0.0, read_at=0.0)
    stamps.followed = replace(stamps.followed, queue=still)
    stamps._step.count_delays_from(0.0)
    for kind, *given in lines:
        clock.ticks += kind in ("stamps", "mark", "follow", "attach", "let_go")
        if kind == "stamps":
            event = ThreadEvent[given[0]]
            stamps.handle(
                event, clock.ticks, mark if event is ThreadEvent.LOOP_WAS_EVALUATION else given[-1]
            )
        elif kind == "mark":
            mark = stamps.mark()
        elif kind == "follow":
            stamps.follow([torch.nn.Parameter(torch.zeros(1))])
        elif kind == "let_go":
            stamps.let_go()
    stamps.flush()
    return ring.rows


def replay_ledger(lines: Sequence[Line]) -> list[Line]:
    """The rows at the end."""
    ledger, now = RunLedger(0.0), 0.0
    for _, name, *given in [line for line in lines if line[0] == "ledger"]:
        now += 1
        if name != "TICK":
            ledger.handle(ThreadEvent[name], now, *given)
    names = ("row", "seconds", "times", "each", "at_steps")
    found = [[row.get(name, 0) for name in names] for row in ledger.rows(now, {})]
    return [
        [row, seconds, times, each[:_OCCURRENCES], at[:_OCCURRENCES]]
        for row, seconds, times, each, at in found
    ]


class NotedStamps:
    """Notes what loops tell it."""

    is_this_thread = True

    def __init__(self) -> None:
        self.events: list[str] = []
        self.ring = SimpleNamespace(name_loaders=lambda names: None)

    def mark(self) -> int:
        return 0

    def tell(self, event: ThreadEvent, about: Any = None) -> None:
        self.events.append(event.name)


class Source:
    """What batches come from."""

    @property
    def dataset(self) -> Source:
        return self


def replay_watched(lines: Sequence[Line]) -> Iterator[tuple[list[str], list[str]]]:
    """Of each recorded call what it told ``Stamps`` then, and now."""
    loops: Any = WatchedLoops()
    sources: dict[int, Source] = {}
    then: list[str] = []
    last: Line = []
    with pytest.MonkeyPatch.context() as patched:
        for kind, *rest in lines:
            if kind == "watched":
                then, last = [], rest
            elif kind == "stamps" and rest[0].startswith("COLLECTION"):
                continue
            elif kind == "stamps" and last:
                then.append(rest[0])
            elif kind == "got" and last:
                name, number, grad, passes, there = last
                patched.setattr(script.bus, "passes", passes)
                noted = NotedStamps()
                loops.note_in(noted if there else None)  # none before the first step
                with torch.set_grad_enabled(grad), suppress(StopIteration):
                    getattr(loops, name)(sources.setdefault(number, Source()), _make_take(rest[0]))
                yield then, [event for event in noted.events if event != "BATCH_GIVEN"]
                last = []


def _make_take(how: str) -> Any:
    def take() -> int:
        if how != "given":
            raise StopIteration
        return 0

    return take
