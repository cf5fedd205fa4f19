"""Every second of a watched run in one row: from its machine's start to now, restarts included. Pure.

What windows hold is their stalls; what lies before, between and after them is known by the events around it. Rows sum
to the wall exactly: what is left, steps that were not read and clocks that differ, is a row of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from stash.core.ledger_rows import START_UP
from stash.monitor.accounting import STALLS
from stash.monitor.records import RunEvent, RunRecord, Window

BEFORE, RESTART, PAUSED, LOST, END, DOWN, UNREAD = (
    "before the run",
    "restart",
    "paused",
    "lost work",
    "end",
    "down",
    "not read",
)
ROWS = (BEFORE, START_UP, *STALLS, RESTART, LOST, PAUSED, END, DOWN, UNREAD)
ENDED, CONTINUED = "end", "continued"
"""Events of a record: its job has ended; it was started again with the same record."""
_BROKEN_BY = {"restarted": RESTART, "paused": PAUSED}
"""What a gap between windows is, by the event within it."""


@dataclass(frozen=True)
class WallRow:
    """One kind of seconds."""

    name: str
    seconds: float
    times: int = 0
    """How often it came, of rows outside of windows."""


@dataclass(frozen=True)
class WallLedger:
    """The whole; rows that never came are left out."""

    rows: tuple[WallRow, ...]
    seconds: float
    """The wall."""
    code: int | None
    """The job's last exit code; ``None`` while it goes on, or where nobody saw it."""
    loses_unknown_work: bool
    """It was started again, and no checkpoint was seen that it could have gone on from."""


@dataclass
class _Walk:
    """Goes along a record's time line; ``seconds`` and ``times`` by row."""

    seconds: defaultdict[str, float]
    times: Counter[str]
    since: float
    row: str = START_UP
    """What the time from ``since`` to the next window or event belongs to."""
    kept: dict[str, float] | None = None
    """What windows had by the last checkpoint of this start; ``None`` if there was none."""
    loses_unknown_work: bool = False

    def reach(self, moment: float) -> None:
        """Time passes, in the present row."""
        self.seconds[self.row] += moment - self.since
        self.since = moment

    def enter(self, row: str) -> None:
        self.row = row
        self.times[row] += 1

    def add_window(self, window: Window) -> None:
        self.reach(window.began)
        taken = window.last_step - window.first_step + 1
        for name, seconds in window.stalls.items():
            self.seconds[name] += (seconds or 0.0) * taken
            self.since += (seconds or 0.0) * taken
        self.row = UNREAD
        if window.saved_step is not None:
            after = window.last_step - window.saved_step
            self.kept = {
                name: self.seconds[name] - (window.stalls.get(name) or 0.0) * after
                for name in STALLS
            }

    def begin_again(self, moment: float, has_lost: bool) -> None:
        """The job is started again, after it was down."""
        self.row = DOWN
        self.reach(moment)
        if has_lost:
            self.lose_work()
        self.kept = None
        self.enter(START_UP)

    def lose_work(self) -> None:
        """What came after the last checkpoint is done again."""
        if self.kept is None:
            self.loses_unknown_work |= any(self.seconds[name] for name in STALLS)
            return
        for name in STALLS:
            lost = self.seconds[name] - self.kept[name]
            self.seconds[name] -= lost
            self.seconds[LOST] += lost
        self.times[LOST] += 1


def wall_ledger(record: RunRecord) -> WallLedger:
    """The account of all that a record tells of."""
    header = record.header
    began = header.began if header.booted is None else min(header.booted, header.began)
    walk = _Walk(defaultdict(float), Counter(), began, BEFORE)
    walk.reach(header.began)
    walk.enter(START_UP)
    code: int | None = None
    lines: list[Window | RunEvent] = [*record.windows, *record.events]
    for line in sorted(
        lines, key=lambda each: each.began if isinstance(each, Window) else each.when
    ):
        if isinstance(line, Window):
            walk.add_window(line)
        elif line.what == ENDED:
            if walk.row == UNREAD:
                walk.enter(END)
            walk.reach(line.when)
            walk.enter(DOWN)
            code = line.code
        elif line.what == CONTINUED:
            walk.begin_again(line.when, has_lost=code != 0)  # one that had ended well has not
            code = None
        elif line.what in _BROKEN_BY:
            walk.enter(_BROKEN_BY[line.what])
            if line.what == "restarted":
                walk.lose_work()
    rows = [
        WallRow(name, walk.seconds[name], walk.times[name]) for name in ROWS if walk.seconds[name]
    ]
    return WallLedger(tuple(rows), walk.since - began, code, walk.loses_unknown_work)
