"""What a watcher knows of a run, and what follows from each thing that happens to it. Pure: events in, actions out.

Knows no rings, sockets, files or processes: ``watcher`` makes the events, and does what is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from stash.core.formatting import format_dollars, join_names
from stash.core.units import format_seconds
from stash.measure.protocol.stamped import StepStage
from stash.monitor.baseline import RunBaseline
from stash.monitor.change_test import ChangeTest, GrowthTest, Slice, StallChange
from stash.monitor.machine_state import error_counts, explain_lateness, slow_parts
from stash.monitor.money import forecast_bill
from stash.monitor.records import (
    Alert,
    Header,
    MachineState,
    RecordLine,
    RunEvent,
    RunRecord,
    Window,
)
from stash.monitor.run_requests import RunRequest
from stash.monitor.wall_ledger import CONTINUED
from stash.monitor.window_lines import advise, describe_stages, digits, name_owner

STUCK_SECONDS = 120.0
_STUCK_STEPS = 10
_STUCK = "nothing moves"
_SLOW_PART = "slow part"
_SLOW_WINDOWS = 2
_WORTH_NAMING = 0.05
"""Of a step: a stall below it needs no explanation."""
_WARNS_AT = 0.8
"""Of the money that may be spent."""
_TRACES_EVERY = 3600.0
"""Seconds between two traces that alerts began."""
_NEVER_STEPPED_SECONDS = 300.0
_RECORDERS_SECONDS = 5.0
"""From asking for flight recorders to reading them."""


@dataclass(frozen=True)
class WatchOptions:
    """How a run is watched; ``None``: not asked for."""

    stuck_after: float = STUCK_SECONDS
    on_alert: str | None = None
    max_dollars: float | None = None
    force: bool = False
    "Compare with the baseline even if the jobs differ."
    capture: int | None = None
    """Steps to trace when an alert begins."""


class Now(NamedTuple):
    """What is known at the moment of an event."""

    when: float
    """Unix time."""
    taken: int
    """The last step that any rank has taken."""


# Events.


class Continued(NamedTuple):
    """A record goes on that an earlier start of the job began."""

    before: RunRecord


class StepsTaken(NamedTuple):
    """All ranks have taken further steps."""

    job: Mapping[str, Any]
    """Fields of the header, as the ranks tell them by now."""


class SliceTaken(NamedTuple):
    """A slice of training is complete."""

    part: Slice
    machines: Sequence[MachineState]
    """Of every node, as it was looked at last."""
    nodes: Mapping[int, int]
    """By rank, its node."""


class WindowTaken(NamedTuple):
    """A window is complete."""

    window: Window


class Stopped(NamedTuple):
    """No rank has stepped for long; what each does."""

    stages: Mapping[int, StepStage]


class NothingStepped(NamedTuple):
    """There is no rank yet."""


class Requested(NamedTuple):
    """Ranks were asked to pause, to go on, or to trace into ``folder``."""

    request: RunRequest
    folder: str


class MomentPassed(NamedTuple):
    """Time goes on, and what it costs."""


WatchEvent = (
    Continued
    | StepsTaken
    | SliceTaken
    | WindowTaken
    | Stopped
    | NothingStepped
    | Requested
    | MomentPassed
)


# Actions.


class StartCommand(NamedTuple):
    """Start a command of the user's with JSON on its standard input."""

    command: str
    given: dict[str, Any]


class TraceRanks(NamedTuple):
    """Trace some steps of these ranks."""

    ranks: tuple[int, ...]


class AskForLines(NamedTuple):
    """Have a rank, or any, say at which lines of the script a stall is."""

    stall: str
    rank: int | None


class AskForRecorders(NamedTuple):
    """Have all ranks write their flight recorders, of a stop after that step."""

    step: int


class ReadRecorders(NamedTuple):
    """Say what is in them."""

    step: int


WatchAction = RecordLine | StartCommand | TraceRanks | AskForLines | AskForRecorders | ReadRecorders
"""A line is to be written."""


@dataclass(frozen=True)
class _Pace:
    """How steps go on."""

    moved: float
    """When the last one was seen."""
    usual: float = 0.0
    """Seconds of one, of late."""
    recorders: tuple[float, ReadRecorders] | None = None
    """When flight recorders that ranks were asked for are read."""
    is_stepless: bool = False
    """Whether it was said that none was taken."""


@dataclass(frozen=True)
class _Notices:
    """What was said and done so far that is not repeated."""

    number: int = 0
    """Of the last alert."""
    spent: float = 0.0
    """Of the money that may be spent, the share that was warned of."""
    traced: float = float("-inf")
    """When an alert began a trace."""


@dataclass(frozen=True)
class _PartLooks:
    """What looks at the parts of machines have shown."""

    errors: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """What drivers had counted when each GPU was first seen."""
    slow_windows: int = 0
    """Windows in a row in which some part was slow."""


class WatchState:
    """The state of one watched run; ``handle_event`` is all that changes it."""

    def __init__(
        self, header: Header, options: WatchOptions, baseline: RunBaseline | None, when: float
    ) -> None:
        self.header = header
        self._options = options
        self._baseline = baseline
        self._changes: tuple[ChangeTest, str] | None = None
        """What steps are held against, and what that is called."""
        self._growth = GrowthTest()
        self._open: dict[str, Alert] = {}
        """Alerts that have not ended, by what they are about."""
        self._pace, self._notices, self._looks = _Pace(when), _Notices(), _PartLooks()

    def handle_event(self, event: WatchEvent, now: Now) -> list[WatchAction]:
        """What is to be done now that this has happened."""
        return [*_TABLE[type(event)](self, event, now)]

    def is_still(self, when: float) -> bool:
        """Whether it is time to look at what ranks do that take no steps."""
        patience = max(self._options.stuck_after, _STUCK_STEPS * self._pace.usual)
        return _STUCK not in self._open and when - self._pace.moved >= patience

    def _continue(self, event: Continued, now: Now) -> Iterator[WatchAction]:
        """Alerts that were open are about the start before."""
        yield RunEvent(when=now.when, what=CONTINUED, text="the job was started again")
        last = max((alert.number for alert in event.before.alerts), default=0)
        self._notices = replace(self._notices, number=last)
        for alert in event.before.alerts:
            if not alert.ended:
                yield from self._end(alert, "the job was started again", now)

    def _follow_steps(self, event: StepsTaken, now: Now) -> Iterator[WatchAction]:
        """At the first of them it is known how many ranks there are, and whether the baseline is of the like."""
        self._pace = replace(self._pace, moved=now.when)
        is_first = self._changes is None
        if is_first:
            known, ranks = self._baseline, event.job["ranks"]
            if known is not None and known.ranks != ranks and not self._options.force:
                text = (
                    f"the run is not compared with the profile: {known.source} has {known.ranks} ranks, this run "
                    f"{ranks}; add --force to compare anyway"
                )
                yield RunEvent(when=now.when, what="no baseline", text=text)
                known = None
                self.header = self.header.model_copy(
                    update={"baseline": None, "baseline_stalls": {}}
                )
            than = "before" if known is None else known.source
            self._changes = ChangeTest(None if known is None else known.stalls), than
        if is_first or any(
            getattr(self.header, name) != value for name, value in event.job.items()
        ):
            self.header = self.header.model_copy(update=event.job)
            yield self.header
        if _STUCK in self._open:
            yield from self._end(
                self._open.pop(_STUCK), f"steps continue since step {now.taken:,}", now
            )

    def _test_slice(self, event: SliceTaken, now: Now) -> Iterator[WatchAction]:
        assert self._changes is not None
        self._pace = replace(self._pace, usual=event.part.account.step_seconds)
        test, than = self._changes
        for change in test.add_slice(event.part):
            if not change.ended:
                yield from self._tell_change(change, than, event, now)
            elif (began := self._open.pop(change.stall, None)) is not None:
                who = name_owner(change.stall, change.rank, change.stage)
                yield from self._end(began, f"{who} is as before since step {change.step:,}", now)

    def _tell_change(
        self, change: StallChange, than: str, event: SliceTaken, now: Now
    ) -> Iterator[WatchAction]:
        late = None if change.rank is None else event.nodes.get(change.rank)
        why = "; ".join(
            text
            for each in event.machines
            if late in (None, each.node) and (text := explain_lateness(each, self._looks.errors))
        )
        text = (
            f"steps are {change.ratio - 1:.0%} longer than {than} since step {change.step:,}: "
            f"{name_owner(change.stall, change.rank, change.stage)} takes {format_seconds(change.seconds)} ± "
            f"{format_seconds(change.plus_minus)} more a step; {advise(change, why)}"
        )
        yield from self._begin(
            now,
            what="slower",
            step=change.step,
            stall=change.stall,
            rank=change.rank,
            stage=change.stage,
            ratio=digits(change.ratio),
            seconds=digits(change.seconds),
            plus_minus=digits(change.plus_minus),
            text=text,
        )
        if self._options.capture is not None and now.when - self._notices.traced >= _TRACES_EVERY:
            self._notices = replace(self._notices, traced=now.when)
            yield TraceRanks(tuple(sorted({0, change.rank or 0})))
        else:
            yield AskForLines(change.stall, change.rank)

    def _write_window(self, event: WindowTaken, now: Now) -> Iterator[WatchAction]:
        window = event.window
        yield window
        yield from self._watch_parts(window, now)
        grown = self._growth.add_window(
            window.first_step, window.stalls.get("other") or 0.0, window.step_seconds
        )
        if grown is not None:
            text = (
                f"what lies between steps grows: {format_seconds(grown.before)} a step at first, "
                f"{format_seconds(grown.now)} since step {grown.step:,}; its lines follow"
            )
            yield from self._begin(
                now,
                is_open=False,
                what="slower",
                step=grown.step,
                stall="other",
                ratio=digits(grown.ratio),
                seconds=digits(grown.now - grown.before),
                text=text,
            )
            yield AskForLines("other", None)

    def _watch_parts(self, window: Window, now: Now) -> Iterator[WatchAction]:
        """A part that is slow or fails in two windows in a row, named beside the stall that it may explain."""
        errors = {**error_counts(window.machines), **self._looks.errors}
        parts = {
            each.node: text
            for each in window.machines
            if (text := join_names(slow_parts(each, errors)))
        }
        self._looks = _PartLooks(errors, self._looks.slow_windows + 1 if parts else 0)
        began = self._open.get(_SLOW_PART)
        if began is not None and not parts:
            yield from self._end(
                self._open.pop(_SLOW_PART), "no part of a machine is slow any more", now
            )
        if began is not None or self._looks.slow_windows < _SLOW_WINDOWS:
            return
        named = "; ".join(
            f"node {node}: {text}" if self.header.nodes > 1 else text
            for node, text in parts.items()
        )
        stalls = {
            name: value for name, value in window.stalls.items() if value and name != "compute"
        }
        largest = max(stalls, key=lambda name: stalls[name], default=None)
        beside = ""
        if largest is not None and stalls[largest] > _WORTH_NAMING * window.step_seconds:
            beside = f"; meanwhile {largest} takes {format_seconds(stalls[largest])} a step"
        yield from self._begin(now, what=_SLOW_PART, step=window.last_step, text=f"{named}{beside}")

    def _tell_stop(self, event: Stopped, now: Now) -> Iterator[WatchAction]:
        still = now.when - self._pace.moved
        stages = event.stages
        waiting = (StepStage.EXCHANGE, StepStage.COLLECTIVE)
        late = [rank for rank, stage in stages.items() if stage not in waiting]
        yield from self._begin(
            now,
            what=_STUCK,
            step=now.taken,
            rank=late[0] if len(late) == 1 else None,
            seconds=digits(still),
            text=f"no step for {still:.0f} s: {describe_stages(stages)}",
        )
        if len(stages) > 1:
            self._pace = replace(
                self._pace, recorders=(now.when + _RECORDERS_SECONDS, ReadRecorders(now.taken))
            )
            yield AskForRecorders(now.taken)

    def _miss_steps(self, event: NothingStepped, now: Now) -> Iterator[WatchAction]:
        if not self._pace.is_stepless and now.when - self._pace.moved > _NEVER_STEPPED_SECONDS:
            self._pace = replace(self._pace, is_stepless=True)
            minutes = f"{_NEVER_STEPPED_SECONDS / 60:.0f} minutes"
            text = (
                f"no optimizer has stepped in {minutes}: if the job trains, it is in another Python"
            )
            yield RunEvent(when=now.when, what="no step", text=text)

    def _follow_request(self, event: Requested, now: Now) -> Iterator[WatchAction]:
        if event.request.recorders:
            return
        what, text = event.request.describe(event.folder)
        yield RunEvent(when=now.when, what=what, text=text)
        if event.request.paused is False:
            self._pace = replace(self._pace, moved=now.when)
        if event.request.steps:  # traced steps leave no rows
            self._pace = replace(
                self._pace, moved=now.when + event.request.steps * self._pace.usual
            )

    def _pass_moment(self, event: MomentPassed, now: Now) -> Iterator[WatchAction]:
        recorders = self._pace.recorders
        if recorders is not None and now.when >= recorders[0]:
            self._pace = replace(self._pace, recorders=None)
            yield recorders[1]
        yield from self._count_money(event, now)

    def _count_money(self, event: MomentPassed, now: Now) -> Iterator[WatchAction]:
        price = self.header.price
        most = self._options.max_dollars
        if price is None or most is None or self._notices.spent >= 1:
            return
        spent = forecast_bill(price, now.when - self.header.began, (), 0, None).so_far
        reached = next((share for share in (1.0, _WARNS_AT) if spent >= share * most), 0.0)
        if reached <= self._notices.spent:
            return
        self._notices = replace(self._notices, spent=reached)
        text = f"{format_dollars(spent)} of --max-dollars {format_dollars(most)} are spent"
        if reached == 1:
            text = f"{format_dollars(spent)} are spent, all of --max-dollars {format_dollars(most)}"
        yield from self._begin(
            now, is_open=False, what="money", step=now.taken, ratio=digits(spent / most), text=text
        )

    def _begin(self, now: Now, is_open: bool = True, **fields: Any) -> Iterator[WatchAction]:
        """Tell a new alert; one that ``is_open`` is ended some time."""
        self._notices = replace(self._notices, number=self._notices.number + 1)
        alert = Alert(number=self._notices.number, when=now.when, began=now.when, **fields)
        if is_open:
            self._open[alert.stall or alert.what] = alert
        yield from self._tell_alert(alert)

    def _end(self, alert: Alert, text: str, now: Now) -> Iterator[WatchAction]:
        fields = {"ended": True, "when": now.when, "began": alert.first_told, "text": text}
        yield from self._tell_alert(alert.model_copy(update=fields))

    def _tell_alert(self, alert: Alert) -> Iterator[WatchAction]:
        yield alert
        if self._options.on_alert is not None:
            yield StartCommand(self._options.on_alert, alert.model_dump(mode="json"))


_TABLE: Mapping[type, Callable[[WatchState, Any, Now], Iterator[WatchAction]]] = {
    Continued: WatchState._continue,
    StepsTaken: WatchState._follow_steps,
    SliceTaken: WatchState._test_slice,
    WindowTaken: WatchState._write_window,
    Stopped: WatchState._tell_stop,
    NothingStepped: WatchState._miss_steps,
    Requested: WatchState._follow_request,
    MomentPassed: WatchState._pass_moment,
}
