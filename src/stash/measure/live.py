"""Live progress of a profile: what is being measured now, how far that is, and the breakdown so far.

On a terminal, or below a notebook's cell, one updating panel; where nothing can be updated (a log, a pipe,
``TERM=dumb``) lines of text, never more than a few dozen. Only arranges what it is given.
"""

from __future__ import annotations

import html
import io
import math
import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from stash.advice.stopping import Standing, make_standing
from stash.advice.verdict import verdict
from stash.analysis.as_typed import first_steps
from stash.analysis.breakdown import Breakdown
from stash.analysis.disturbance import remove_disturbance
from stash.analysis.stability import MIN_ROUNDS
from stash.core.formatting import join_names
from stash.core.printable import printable_line
from stash.core.units import format_count, format_seconds
from stash.report.profile_page import table_rows
from stash.ui.stall_lines import StallTable
from stash.ui.terminal import each_text, plain_text, progress_console

if TYPE_CHECKING:
    from stash.core.records.profile import Profile
    from stash.measure.launcher.measurement import Moment
    from stash.measure.launcher.profile_options import ProfileOptions
    from stash.measure.launcher.session import ProfileSession

_PHASES = {
    "starting": "starting the job",
    "warm-up": "warming up",
    "first-steps": "timing unmodified steps",
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
_NOTEBOOK_COLUMNS, _REDRAWN_SECONDS = 88, 0.25
_LINES = 20
"""In a log, of all rounds within the budget; fast jobs take hundreds of rounds."""
_WORTH_SAYING = 0.01
"""Of a step, from which a wait is said."""


class Progress:
    """A context in which ``show`` may be called with every moment of a session; writes to stderr."""

    def __init__(
        self,
        session: ProfileSession,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._wishes = printable_line(session.job.title), session.measurement.wishes
        self._console = console or progress_console()
        self._plain = self._console.color_system is None or self._console.no_color
        self._clock = clock
        self._live: Live | None = None
        self._since = self._updated = clock()
        self._moment: Moment | None = None
        self._standing = Standing(0)
        self._table: RenderableType | None = None
        self._next_line = 0.0
        self._knows_step = self._has_looked = False

    def __enter__(self) -> Progress:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(self, console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        else:
            self._print_line(f"profiling {self._title} ...")
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, moment: Moment) -> None:
        """Take note of where the measurement is."""
        if moment.notice is not None:
            self._print_above(printable_line(moment.notice))
        forecast = _forecast_rounds(moment.round_seconds, self._wishes.budget)
        is_new = self._moment is None or self._moment.round_seconds is None
        if forecast and is_new and self._live is None:
            self._print_line(f"  {forecast}")
        # said again of no second launch
        if moment.step_seconds is not None and not self._knows_step:
            self._knows_step = True
            self._print_above(
                f"about {format_seconds(moment.step_seconds)} a step while warming up; timing unmodified steps …"
            )
        if moment.steps is not None and not self._has_looked:
            self._has_looked = True
            self._print_above(_early_answer(moment))
        self._moment, self._updated = moment, self._clock()
        if moment.profile is None:
            return
        if moment.breakdown is None:
            self._print_above(
                _first_answer(moment.profile, "closer look" if self._has_looked else "first look")
            )
            return
        now = make_standing(moment.breakdown, self._wishes.noise)
        if now.rounds <= self._standing.rounds:
            return
        self._standing = now
        if self._live is not None:
            self._table = _table(moment.breakdown, moment.profile, self._plain)
        elif moment.elapsed >= self._next_line:
            self._next_line = moment.elapsed + self._wishes.budget / _LINES
            far, *known = map(plain_text, _how_far(now, moment.elapsed, self._wishes))
            self._print_line("; ".join((f"  round {now.rounds} done ({far})", *known)))

    def _print_above(self, line: str) -> None:
        """A line that stays, above what is updated; nothing of an empty one."""
        if not line:
            return
        if self._live is None:
            self._print_line(f"  {line}")
        else:
            self._live.console.print(Text(line))

    def _print_line(self, line: str) -> None:
        print(line, file=self._console.file, flush=True)

    def __rich__(self) -> RenderableType:
        moment, now = self._moment, self._clock()
        phase = _PHASES.get(moment.phase, moment.phase) if moment else _PHASES["starting"]
        under_way = moment is not None and moment.round is not None
        head = Text.assemble(
            ("*" if self._plain else "●", "bold green"),
            (f" {self._title}  ", "bold"),
            (f"round {self._standing.rounds + 1}: " if under_way else "", "dim"),
            phase,
        )
        if moment is None or not moment.elapsed:
            # no block has begun yet, from which the budget counts
            far = [f"{now - self._since:.0f} s"]
        else:
            rounds = f"{format_count(self._standing.rounds, 'round')}, "
            far = _how_far(self._standing, moment.elapsed + now - self._updated, self._wishes)
            far[0] = rounds + far[0]
        forecast = _forecast_rounds(moment.round_seconds, self._wishes.budget) if moment else ""
        lines = [head, *(Text(f"  {line}", style="dim") for line in (*far, forecast) if line)]
        return Group(*lines, *([] if self._table is None else [self._table]))


class NotebookProgress(Progress):
    """The same below a notebook's cell: one output that is written again, without widgets to install."""

    def __init__(
        self, session: ProfileSession, clock: Callable[[], float] = time.monotonic
    ) -> None:
        console = Console(
            file=io.StringIO(), width=_NOTEBOOK_COLUMNS, color_system=None, force_jupyter=False
        )
        super().__init__(session, console, clock)
        self._above: list[str] = []
        self._drawn = clock()

    def __enter__(self) -> NotebookProgress:
        self._output: Any = import_module("IPython.display").display(
            self._bundle(), raw=True, display_id=True
        )
        return self

    def __exit__(self, *ended_by: object) -> None:
        how = "ended after" if any(ended_by) else "profiled in"
        done = f"{self._title}: {how} {self._clock() - self._since:.0f} s"
        self._output.update(_preformat(done), raw=True)

    def show(self, moment: Moment) -> None:
        """Take note, and draw it: a round's end at once, else four times a second."""
        super().show(moment)
        if moment.breakdown is not None and moment.profile is not None:
            self._table = _table(moment.breakdown, moment.profile, plain=True)
        if moment.breakdown is not None or self._clock() - self._drawn >= _REDRAWN_SECONDS:
            self._drawn = self._clock()
            self._output.update(self._bundle(), raw=True)

    def _print_above(self, line: str) -> None:
        self._above += [line] if line else []

    def _print_line(self, line: str) -> None:
        """Lines of a log, which the panel says as well."""

    def _bundle(self) -> dict[str, str]:
        with self._console.capture() as drawn:
            self._console.print(*self._above, self, sep="\n")
        return _preformat(drawn.get())


def _preformat(text: str) -> dict[str, str]:
    """By media type, as a notebook takes it."""
    return {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}


def _forecast_rounds(round_seconds: float | None, budget: float) -> str:
    """What a budget of few rounds can reach, before they are measured; empty if there is time for enough."""
    if round_seconds is None or MIN_ROUNDS * round_seconds <= budget:
        return ""
    enough = math.ceil(1.5 * MIN_ROUNDS * round_seconds / 10) * 10
    reach = (
        f"measuring takes that long, not {budget:.0f} s, and gives no intervals"
        if round_seconds > budget
        else f"so {budget:.0f} s give an estimate with wide intervals or none"
    )
    return f"a round takes about {round_seconds:.0f} s, {reach}; --budget {enough} gives {MIN_ROUNDS} rounds"


def _early_answer(moment: Moment) -> str:
    """What the very first of a job's unmodified steps tell, while more are timed."""
    step, waited = moment.step_seconds or 0.0, moment.waited_seconds or 0.0
    says = ""
    if waited > _WORTH_SAYING * step > 0:
        says = f", {format_seconds(waited)} ({waited / step:.0%}) of it waiting for the data loader"
    return f"first look ({moment.steps} unmodified steps): {format_seconds(step)} a step{says}; timing more …"


def _first_answer(profile: Profile, name: str) -> str:
    """What the job's first steps tell before anything is changed: seen, which is not yet what a remedy saves."""
    first = first_steps(profile, remove_disturbance(profile))
    if first is None:
        return ""
    step = first.step.value
    parts = [("the data loader", first.loading), ("the exchange", first.exchange)]
    known = [
        f"{format_seconds(part)} ({part / step:.0%}) of it waiting for {name}"
        for name, part in parts
        if part > _WORTH_SAYING * step
    ]
    waits = join_names(known) if known else "no significant waits"
    return f"{name} ({first.steps} unmodified steps): {format_seconds(step)} a step, {waits}"


def _how_far(now: Standing, elapsed: float, wishes: ProfileOptions) -> list[str]:
    """``21 s of 60 s, about 12 s left``, and of the stall known least ``prep ±4.2% of the step (target ±2.2%)``."""
    budget = wishes.budget
    time_spent = f"{elapsed:.0f} s" + (f" of {budget:.0f} s" if elapsed < budget < math.inf else "")
    left = now.seconds_left(elapsed, budget)
    if left <= 0 or math.isinf(left):
        ends = ""
    else:
        ends = f", {'at most' if left == budget - elapsed else 'about'} {math.ceil(left)} s left"
    far = [f"{time_spent}{ends}"]
    if now.stall is not None:
        is_known = max(now.reached, now.wanted) < 1
        known = (
            f" ±{now.reached:.1%} of the step (target ±{now.wanted:.1%})"
            if is_known
            else ": measuring …"
        )
        far.append(f"{now.stall}{known}")
    return far


def _table(breakdown: Breakdown, profile: Profile, plain: bool) -> RenderableType:
    strong = verdict(breakdown, profile).stalls
    stalls, step = table_rows(breakdown.stalls, breakdown.skipped, breakdown.step, strong)
    return StallTable(each_text(printable_line, (*stalls, step)), plain)
