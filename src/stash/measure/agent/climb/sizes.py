"""The size of a block, in steps."""

from __future__ import annotations

from dataclasses import dataclass

from stash.measure.run.wire import crosses


@crosses
@dataclass(frozen=True)
class BlockSize:
    """Steps of one block: run in first, then measured."""

    settle: int
    steps: int

    @property
    def together(self) -> int:
        return self.settle + self.steps
