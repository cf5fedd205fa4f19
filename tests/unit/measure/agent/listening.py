"""A listener for the script of this process that records the events it gets."""

from __future__ import annotations

from typing import Any

from stash.measure.agent.script import Listener, LoopListener


class _RecordingLoops(LoopListener):
    """Hands out what the feeds have, and records the calls in ``events``."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def opened(self, handle: Any) -> None:
        self._events.append("opened")

    def next_batch(self, feed: Any) -> Any:
        self._events.append("next batch")
        return feed.take_next()[0]

    def closed(self, handle: Any) -> None:
        self._events.append("closed")

    def acted(self, saved: bool = False) -> None:
        self._events.append("saved" if saved else "acted")


class Recorder(Listener):
    """Listens until ``listens`` is False; ``events`` is what it got so far."""

    def __init__(self, drifted: bool = False) -> None:
        self.listens, self.drifted = True, drifted
        self.events: list[str] = []
        self.loops = _RecordingLoops(self.events)

    def has_drifted(self) -> bool:
        return self.drifted

    def world_formed(self) -> None:
        self.events.append("world formed")

    def stepped(self, optimizer: Any) -> None:
        self.events.append("stepped")

    def loop_ended(self) -> None:
        self.events.append("ended")

    def exits(self, last: bool) -> None:
        self.events.append("exits")

    def abandoned(self) -> None:
        self.events.append("abandoned")

    def beat(self) -> None:
        self.events.append("beat")

    def note(self, text: str) -> None:
        self.events.append(text)
