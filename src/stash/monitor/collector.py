"""Reads the rings of a node's ranks and joins them into cycles, slices and windows; knows which ranks are there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stash.measure.protocol.stamped import RingReader, StampedStep, StepStage
from stash.monitor.accounting import (
    STAGES,
    SecondsArray,
    account_cycles,
    account_undisturbed,
    join_cycles,
)
from stash.monitor.change_test import Slice

WINDOW_SECONDS, WINDOW_STEPS = 10.0, 20
_CHECKPOINT = STAGES.index(StepStage.CHECKPOINT)
_KEPT_ROWS = 20_000
"""Of a rank that the others are far behind: more than that are given up."""


@dataclass(frozen=True)
class JoinedCycles:
    """Cycles that every rank of the node has whole; arrays as in ``accounting.join_cycles``."""

    ranks: tuple[int, ...]
    numbers: list[int]
    seconds: SecondsArray
    delays: SecondsArray
    ended: float
    """When the last of them ended (Unix time)."""


@dataclass
class RankState:
    """A rank as its ring shows it."""

    reader: RingReader
    rows: list[StampedStep] = field(default_factory=list)
    lost: bool = False
    note: str = ""
    asked: int = 0
    """The last request that its rank was told of."""

    def read_news(self) -> Iterator[tuple[str, str]]:
        """Read its new rows; the values are what happened to it, as (what, sentence)."""
        rank = self.reader.rank
        self.rows += self.reader.read_new()
        note = self.reader.note
        if note and note != self.note:
            self.note = note
            yield "note", f"rank {rank}: {note}"
        if not self.lost and not self.is_alive and not self.reader.read_state()[1]:
            self.lost = True
            yield "lost", f"rank {rank} is gone (process {self.reader.process})"
        if len(self.rows) > _KEPT_ROWS:
            del self.rows[:-_KEPT_ROWS]

    def drop_until(self, number: int) -> float:
        """Forget the rows before a step; the value is when it ended (Unix time)."""
        self.rows = [row for row in self.rows if row.number >= number]
        return float(self.rows[0].ended + self.reader.offset)

    def send_request(self, number: int) -> None:
        """Tell its rank of the request of that number."""
        self.asked = number
        self.reader.write_request(number)

    @property
    def is_alive(self) -> bool:
        return os.path.exists(f"/proc/{self.reader.process}")

    @property
    def is_over(self) -> bool:
        """Whether it trains no more: it has ended, or is gone."""
        return self.lost or self.reader.read_state()[1]


class Collector:
    """The rings in ``folder``; ``tell`` gets what happens to ranks, as (what, sentence)."""

    def __init__(
        self, folder: Path, tell: Callable[[str, str], None] = lambda what, text: None
    ) -> None:
        self._folder = folder
        self._tell = tell
        self.ranks: dict[int, RankState] = {}
        self._known: set[str] = set()
        self.taken = 0
        """The last step that any rank has taken."""

    def find_ranks(self) -> None:
        """Look for ranks that have begun, or begun again."""
        for path in self._folder.glob("ring.*"):
            if path.name not in self._known:
                with suppress(OSError, ValueError):  # not written whole yet
                    self._consider_rank(path.name, RankState(RingReader(path)))

    def _consider_rank(self, name: str, found: RankState) -> None:
        """Watch a rank that has begun; not what else steps optimizers while the rank of that number lives."""
        rank = found.reader.rank
        before = self.ranks.get(rank)
        if before is not None and before.is_alive and not before.reader.read_state()[1]:
            if not found.is_alive:  # it came and went
                self._known.add(name)
            return
        self._known.add(name)
        if before is not None:
            self._tell("restarted", f"rank {rank} was started again")
            # it lies in memory, which a pod has little of
            before.reader.path.unlink(missing_ok=True)
            for state in self.ranks.values():
                state.rows.clear()
            self.taken = 0
        self.ranks[rank] = found

    @property
    def expected_ranks(self) -> int:
        """Ranks of the whole job, as the ranks know it."""
        return max((state.reader.ranks for state in self.ranks.values()), default=0)

    def poll(self) -> JoinedCycles | None:
        """Cycles that were completed since the last call by all ranks that are here; none if there is no new one."""
        for state in self.ranks.values():
            for what, text in state.read_news():
                self._tell(what, text)
            if state.rows:
                self.taken = max(self.taken, state.rows[-1].number)
        ranks = tuple(
            sorted(rank for rank, state in self.ranks.items() if state.rows and not state.note)
        )
        here = [rank for rank, state in self.ranks.items() if not state.note and not state.is_over]
        if not ranks or not set(here).issubset(ranks):
            return None
        numbers, seconds, delays = join_cycles({rank: self.ranks[rank].rows for rank in ranks})
        if not numbers:
            # Wait no more for ranks that are done, once all that are `here` have taken steps that
            # they never will.
            upto = min((self.ranks[rank].rows[-1].number for rank in here), default=0)
            for state in self.ranks.values():
                if state.is_over and state.rows and state.rows[-1].number < upto:
                    state.rows.clear()
            return None
        # the last one's optimizer stage belongs to the next cycle
        ended = [self.ranks[rank].drop_until(numbers[-1]) for rank in ranks]
        return JoinedCycles(ranks, numbers, seconds, delays, max(ended))

    def unseen_collectives(self) -> tuple[int, int, float | None] | None:
        """Of a step: (collectives that C++ issued, all, seconds of one if known), of the rank with most of them."""
        found = [state.reader.unseen_note.split() for state in self.ranks.values()]
        known = [
            (int(e[0]), int(e[1]), float(e[2]) if len(e) > 2 else None) for e in found if len(e) > 1
        ]
        return max(known, key=lambda each: each[0], default=None)

    def rank_stages(self) -> dict[int, StepStage]:
        """What each rank that still trains does now."""
        return {
            rank: state.reader.read_state()[0]
            for rank, state in self.ranks.items()
            if not state.is_over
        }


@dataclass
class Cutter:
    """Cuts a stream of cycles into parts of at least so many seconds and steps."""

    least_seconds: float
    least_steps: int
    lost: Callable[[JoinedCycles], SecondsArray | None] = lambda joined: None
    """What strangers cost of a part's seconds, if that is known."""
    _held: list[JoinedCycles] = field(default_factory=list)

    def add_cycles(self, joined: JoinedCycles) -> Slice | None:
        """The part that is complete with these cycles, if one is."""
        last = self._held[-1] if self._held else joined
        if last.ranks != joined.ranks or (
            self._held and joined.numbers[0] <= last.numbers[-1]
        ):  # they began again
            self._held.clear()
        self._held.append(joined)
        steps = sum(len(each.numbers) for each in self._held)
        seconds = sum(float(each.seconds.sum(axis=2).max(axis=1).sum()) for each in self._held)
        taken = self._held[-1].numbers[-1] - self._held[0].numbers[0] + 1
        if seconds * taken / steps < self.least_seconds or taken < self.least_steps:
            return None
        return self.cut_rest()

    def cut_rest(self) -> Slice | None:
        """What there is, complete or not."""
        held = self._held
        self._held = []
        if not held:
            return None
        whole = join_parts(held)
        lost = self.lost(whole)
        delays = whole.delays[:, :, 0]
        if lost is None:
            found = account_cycles(whole.ranks, whole.seconds, delays)
        else:
            found = account_undisturbed(whole.ranks, whole.seconds, delays, lost)
        saved = np.flatnonzero(whole.seconds[:, :, _CHECKPOINT].any(axis=1))
        saved_step = whole.numbers[saved[-1]] if len(saved) else None
        return Slice(whole.numbers[0], whole.numbers[-1], found, whole.ended, saved_step)


def join_parts(held: Sequence[JoinedCycles]) -> JoinedCycles:
    """Several of the same ranks as one, those of the last."""
    held = [each for each in held if each.ranks == held[-1].ranks]
    if len(held) == 1:
        return held[0]
    numbers = [number for each in held for number in each.numbers]
    seconds, delays = (
        np.concatenate([getattr(each, name) for each in held]) for name in ("seconds", "delays")
    )
    return JoinedCycles(held[-1].ranks, numbers, seconds, delays, held[-1].ended)
