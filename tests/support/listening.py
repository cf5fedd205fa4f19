"""A listener for the script of this process that takes down what it hears."""

from __future__ import annotations

from typing import Any


class Heard:
    """Listens until told otherwise; ``words`` is what it heard."""

    def __init__(self, drifted: bool = False) -> None:
        self.listens, self.drifted = True, drifted
        self.words: list[str] = []

    def opened(self, handle: Any) -> None:
        self.words.append("opened")

    def enough(self, feed: Any) -> bool:
        return False

    def served(self, feed: Any) -> Any:
        self.words.append("served")
        return feed.next()

    def closed(self, handle: Any) -> None:
        self.words.append("closed")

    def world_formed(self) -> None:
        self.words.append("world formed")

    def stepped(self, optimizer: Any) -> None:
        self.words.append("stepped")

    def backward_ended(self) -> None:
        pass

    def acted(self) -> None:
        self.words.append("acted")

    def saved(self) -> None:
        self.words.append("saved")

    def loop_ended(self) -> None:
        self.words.append("ended")

    def exits(self, last: bool) -> None:
        self.words.append("exits")

    def abandoned(self) -> None:
        self.words.append("abandoned")

    def beat(self) -> None:
        self.words.append("beat")

    def note(self, text: str) -> None:
        self.words.append(text)
