"""Live progress of a profile: what is being measured now, and the breakdown so far.

On a terminal one updating panel; in a log a line per finished round. Only arranges what it is given.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from stash.derive.advise import verdict
from stash.derive.stalls import attribute, step_matrix
from stash.show.profile.terminal import stall_table
from stash.show.profile.view import view

if TYPE_CHECKING:
    from stash.base.records import Profile
    from stash.measure.launch.climb import Expedition
    from stash.measure.launch.wishes import Moment

_SAYS = {
    "starting": "starting the job",
    "warm-up": "warming up",
    "blocks": "measuring",
    "catch-up": "letting the other ranks catch up",
    "resident": "one device, batches on the device",
    "solo": "one device, no exchange",
    "crowd": "all devices, no exchange",
    "node": "exchange inside each node",
    "cluster": "exchange everywhere",
    "warm": "real batches, files in memory",
    "cold": "real batches, files on disk",
}


class Progress:
    """A context in which ``show`` may be called with every moment of an expedition; writes to stderr."""

    def __init__(self, expedition: Expedition) -> None:
        self._title = expedition.job.title
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._rounds = 0
        self._moment: Moment | None = None
        self._since = time.monotonic()
        self._table: RenderableType | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(self, console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        else:
            print(f"profiling {self._title} …", file=sys.stderr)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, moment: Moment) -> None:
        """Take note of where the measurement is."""
        self._moment = moment
        rounds = len(step_matrix(moment.profile).rounds) if moment.profile is not None else 0
        if moment.profile is not None and rounds > self._rounds:
            self._rounds = rounds
            if self._live is not None:
                self._table = _breakdown(moment.profile)
            else:
                print(f"  round {rounds} done after {moment.elapsed:.0f} s", file=sys.stderr)

    def __rich__(self) -> RenderableType:
        moment = self._moment
        passed = time.monotonic() - self._since
        phase = _SAYS.get(moment.phase, moment.phase) if moment else _SAYS["starting"]
        line = Text.assemble(
            ("● ", "bold green" if int(passed * 2) % 2 else "green"),
            (f"{self._title}  ", "bold"),
            (f"round {self._rounds + 1} · " if moment and moment.round is not None else "", "dim"),
            phase,
            (f"  {passed:.0f} s", "dim"),
        )
        return Group(line, self._table) if self._table is not None else line


def _breakdown(profile: Profile) -> RenderableType:
    breakdown = attribute(profile)
    return stall_table(view(breakdown, verdict(breakdown, profile), profile))
