"""Lines of the script at which the training thread was seen, of a job's slowest rank: what they do, and how much of it.

A line is known by its row of the ledger, its text, and what it was inside of. Knows nothing of stalls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from stash.core.ledger_rows import (
    BACKWARD,
    COLLECTIVE,
    COMPUTING,
    EPOCH_START,
    FORWARD,
    INPUT,
    LOOP,
    NOW_AND_THEN,
)
from stash.core.records.profile import LedgerPlace, RankLedger

_MOSTLY_THERE = 0.4
"""Of computing, from which a line of the forward pass is worth a word: a pass forwards takes about a third."""
_PARTLY_THERE = 0.3
"""The same of lines near each other in which nothing runs that has lines of its own: Python, or a compiled function."""
_SOMEWHAT_THERE = 0.15
"""The same of lines that call models which do not train, or log."""
_LOGS = re.compile(
    r"\bself\.log(_dict)?\(|\b(logger|writer|wandb|mlflow)\.|\.log_metrics\(|\bprint\("
)
"""A line whose work is to log: of others, calls of PyTorch's like ``log_softmax``, no text tells."""
_PARAMETRIZES = re.compile(r"(_Orthogonal|_SpectralNorm|_WeightNorm|ParametrizationList)\b")
"""Of ``torch.nn.utils.parametrizations``, what makes a weight again wherever it is used."""
_MOST_OF_ASKING = 10
"""Times the seconds of ``input`` that a line's ``loop`` may take and be none of its own: more is another line's work,
of which a look saw the end."""
_NEAR_LINES = 20
"""Lines apart that are one loop of the script's."""
_MOST_LETTERS = 60


class SlowLine(LedgerPlace):
    """A line at which the training thread was seen: ``seconds`` of every step, 0 of what comes now and then."""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def is_itself_computing(self) -> bool:
        """Whether it is the script's line that computes, and nothing with lines of its own that it calls."""
        return self.row in COMPUTING and not self.inside

    @property
    def words(self) -> str:
        """The line's text, or the beginning of a long one."""
        text = " ".join(self.text.split())
        return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"


class SlowLines(NamedTuple):
    """All of a job, the slowest first."""

    places: tuple[SlowLine, ...]
    computes_on_host: bool = True
    """Elsewhere lines at which the training thread was seen are no devices' work."""

    def of_row(self, name: str) -> SlowLine | None:
        """Where most of a row was seen."""
        return next((place for place in self.places if place.row == name), None)

    @property
    def own_collectives(self) -> tuple[SlowLine, ...]:
        """Where the script calls collectives by itself, which stalls contain."""
        return tuple(place for place in self.places if place.row == COLLECTIVE)

    def is_in_hook(self, place: SlowLine) -> bool:
        """Whether the engine calls the function of a line of ``loop`` in each backward pass."""
        whole = {each.where for each in self.places if each.row == FORWARD}
        backward = {each.where for each in self.places if each.row == BACKWARD} - whole
        return place.row == LOOP and place.caller in backward

    @property
    def seconds_in_hooks(self) -> float:
        """Of a step, at such lines."""
        return _sum_seconds(place for place in self.places if self.is_in_hook(place))

    @property
    def computing(self) -> tuple[SlowLine, ...]:
        """Lines near each other that take much of computing; none where it is spread over layers."""
        if not self.computes_on_host:
            return ()
        enough = self._seconds_of_computing
        backward = {place.where for place in self.places if place.row == BACKWARD}
        alone = self.of_row(FORWARD)
        is_of_library = alone is not None and alone.inside and alone.where not in backward
        if alone is not None and is_of_library and alone.seconds >= _MOSTLY_THERE * enough:
            return (alone,)
        whole = self._whole_steps
        own = [each for each in self.places if each.is_itself_computing]
        found = max(
            (_list_near(each, own) for each in own if each.where not in whole),
            key=_sum_seconds,
            default=(),
        )
        return found if _sum_seconds(found) >= _PARTLY_THERE * enough > 0 else ()

    @property
    def forward(self) -> tuple[SlowLine, ...]:
        """Lines of the forward pass."""
        whole = self._whole_steps
        passes = (place for place in self.places if place.row == FORWARD)
        return tuple(place for place in passes if place.where not in whole)

    def runs_a_pass(self, place: SlowLine) -> bool:
        """Whether a line runs a pass or more, like ``trainer.train()``, rather than what its own row says."""
        passes = (each for each in self.places if each.row in (FORWARD, BACKWARD))
        return _sum_seconds(each for each in passes if each.where == place.where) > place.seconds

    @property
    def _whole_steps(self) -> set[str]:
        """Where lines are that run whole steps, like ``trainer.train()``, and compute nothing of their own."""
        forward, backward = (
            {place.where for place in self.places if place.row == row}
            for row in (FORWARD, BACKWARD)
        )
        return forward & backward

    @property
    def is_mostly_computing(self) -> bool:
        """Whether more than half of it is at these."""
        return 2 * _sum_seconds(self.computing) > self._seconds_of_computing

    @property
    def frozen(self) -> tuple[SlowLine, ...]:
        """Lines that call models which do not train; none where they take little of computing."""
        return self._list_if_many(lambda place: place.is_frozen)

    @property
    def logging(self) -> tuple[SlowLine, ...]:
        """The same of lines that log."""
        return self._list_if_many(lambda place: _LOGS.search(place.text) is not None)

    @property
    def parametrized(self) -> tuple[SlowLine, ...]:
        """The same of lines that use weights which a parametrization makes at each use."""
        return self._list_if_many(lambda place: _PARAMETRIZES.match(place.inside) is not None)

    def _list_if_many(self, is_one: Callable[[SlowLine], bool]) -> tuple[SlowLine, ...]:
        found = tuple(each for each in self.places if each.row in COMPUTING and is_one(each))
        enough = _SOMEWHAT_THERE * self._seconds_of_computing
        return found if self.computes_on_host and _sum_seconds(found) > enough else ()

    @property
    def _seconds_of_computing(self) -> float:
        return _sum_seconds(place for place in self.places if place.row in COMPUTING)

    def near(self, place: SlowLine) -> tuple[SlowLine, ...]:
        """Those of its row and file around one, it included."""
        return _list_near(place, self.places)


def _list_near(place: SlowLine, among: Iterable[SlowLine]) -> tuple[SlowLine, ...]:
    return tuple(
        each
        for each in among
        if (each.row, each.file) == (place.row, place.file)
        and abs(each.line - place.line) < _NEAR_LINES
    )


def _sum_seconds(lines: Iterable[SlowLine]) -> float:
    """Of a step."""
    return sum(line.seconds for line in lines)


def find_slow_lines(ledgers: Sequence[RankLedger]) -> tuple[SlowLine, ...]:
    """Of each row, those of the rank that takes most for it; a line that asks for batches does nothing of its own.

    Of what comes now and then, one occurrence of those that the place was seen in.
    """
    found = []
    every = [place for ledger in ledgers for place in ledger.places]
    asks: dict[tuple[str, int], float] = {}
    for waiting in every:
        if waiting.row == INPUT:
            line = waiting.file, waiting.line
            asks[line] = max(waiting.seconds, asks.get(line, 0.0))
    for name in dict.fromkeys(place.row for place in every):
        ledger = max(ledgers, key=lambda one: (one.timed_seconds_of(name), one.seconds_of(name)))
        times = ledger.times_in_steps(name)
        if name == EPOCH_START:
            times = sum(len(row.at_steps) for row in ledger.rows if row.row == name)
        for place in ledger.places:
            asked = asks.get((place.file, place.line), 0.0) if name == LOOP else 0.0
            if place.row != name or (asked and place.seconds <= _MOST_OF_ASKING * asked):
                continue
            each = place.each
            if each is None and name in NOW_AND_THEN:
                each = place.seconds / max(1, times)
            seconds = place.seconds / ledger.timed_steps if each is None else 0.0
            found.append(SlowLine(**{**place.model_dump(), "seconds": seconds, "each": each}))
    return tuple(sorted(found, key=lambda place: (-place.seconds, -(place.each or 0.0))))
