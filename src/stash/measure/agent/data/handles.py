"""What a training loop iterates over; it tells when a loop begins, and when it ends or lets go."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from stash.measure.agent import script
from stash.measure.agent.data.feeds import Feed


class Served:
    """An iterator over a feed, for loops over what is no ``DataLoader``."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __iter__(self) -> Served:
        return self

    def __next__(self) -> Any:
        return script.served(self._feed)


class Handle:
    """Stands for an iterator in one loop. The batches come from the iterator, which asks the feed for them."""

    def __init__(self, feed: Feed, iterator: Iterator[Any], owner: Any = None) -> None:
        self.feed, self._iterator = feed, iterator
        self._owner = owner  # a loader that exists only in a for statement must live as long as its loop
        self.taken = 0
        self.trains = False
        """It took a batch while gradients were on."""
        self._open = True
        feed.loops += 1
        feed.in_handles = True

    def __iter__(self) -> Handle:
        return self

    def __next__(self) -> Any:
        self.taken += 1
        try:
            if script.enough(self):
                raise StopIteration
            return next(self._iterator)
        except StopIteration:
            self._close()
            raise

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__dict__.get("_iterator") is None:
            raise AttributeError(name)
        return getattr(self._iterator, name)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            self.feed.loops -= 1
            script.closed(self)
