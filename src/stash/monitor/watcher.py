"""The watcher of a node: reads the rings of its ranks, writes windows, alerts and events, and tells whoever listens.

A process of its own beside training: polls twice a second, and touches nothing of the job. Time and what it may start
are handed in, so that tests can play hours in no time.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stash.core.errors import UserError
from stash.core.formatting import dollars
from stash.core.records.rank_ledger import LedgerPlace
from stash.core.units import format_seconds
from stash.measure.protocol.orders import LINES, TraceRequest, WatchRequest
from stash.measure.protocol.stamped import StepStage
from stash.monitor.accounting import AMBIGUOUS, SecondsArray, by_calls
from stash.monitor.baseline import RunBaseline
from stash.monitor.change_test import (
    SLICE_SECONDS,
    SLICE_STEPS,
    ChangeTest,
    GrowthTest,
    Slice,
    SlowGrowth,
    StallChange,
)
from stash.monitor.collector import WINDOW_SECONDS, WINDOW_STEPS, Collector, Cutter, Joined
from stash.monitor.machine_state import MachineLooks, causes, most_telling
from stash.monitor.money import bill
from stash.monitor.node_team import NodeTeam, facts_of
from stash.monitor.records import Alert, Header, MachineState, RecordLine, RecordWriter, RunEvent, RunRecord
from stash.monitor.run_requests import RunRequest, taken_request, traces_folder, withdraw_request
from stash.monitor.strangers import CoreUse, ProcessLooks, lost_to_strangers, strangers_cores
from stash.monitor.wall_ledger import CONTINUED, ENDED
from stash.monitor.window_lines import ROWS_OF, advice, described, digits, lines_text, unseen_text, whose, window_of

POLL_SECONDS = 0.5
STUCK_SECONDS = 120.0
_STUCK_STEPS = 10
_WARNS_AT = 0.8
"""Of the money that may be spent."""
_LOOKS_SECONDS = 10.0
_TRACES_EVERY = 3600.0
"""Seconds between two traces that alerts began."""
_NEVER_STEPPED_SECONDS = 300.0
_ENDS_SECONDS = 5.0
"""For the watchers of other nodes to send what is left."""


class LineListener(Protocol):
    """Gets every line of the record as it is written; must not fail."""

    def take(self, line: RecordLine) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class WatchOptions:
    """How a run is watched; ``None``: not asked for."""

    stuck_after: float = STUCK_SECONDS
    on_alert: str | None = None
    max_dollars: float | None = None
    on_budget: str | None = None
    force: bool = False
    "Compare with the baseline even if the jobs differ."
    capture: int | None = None
    """Steps to trace when an alert begins."""


@dataclass
class Commands:
    """The user's commands that were started and may still run; without a shell."""

    start: Callable[..., Any] = subprocess.Popen
    failed: Callable[[str], None] = lambda text: None
    _running: list[Any] = field(default_factory=list)

    def run(self, command: str, given: dict[str, Any]) -> None:
        """Start ``command`` with JSON on its standard input; an error is told and ends nothing."""
        self._running = [each for each in self._running if each.poll() is None]
        try:
            process = self.start(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            self._running.append(process)
            with suppress(OSError):  # it does not read
                process.stdin.write(json.dumps(given).encode())
                process.stdin.close()
        except (OSError, ValueError) as error:
            self.failed(f"cannot run `{command}`: {error}")


def words_of(command: str) -> list[str]:
    """The words of a command of the user's; raises UserError for one that cannot be split."""
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise UserError(f"cannot read the command {command!r}: {error}") from None
    if not found:
        raise UserError("the command is empty; name a program")
    return found


class NodeWatcher:
    """Watches one node's ranks; ``listeners`` get what the record gets."""

    def __init__(
        self, folder: Path, record: RecordWriter, header: Header, options: WatchOptions,
        baseline: RunBaseline | None = None, listeners: Sequence[LineListener] = (), *,
        clock: Callable[[], float] = time.time, commands: Commands | None = None,
        machine: MachineLooks | None = None,
    ) -> None:  # fmt: skip
        self._record, self._header, self._options, self._baseline = record, header, options, baseline
        withdraw_request(record.path)  # of an earlier run of that name
        self._listeners, self._clock = listeners, clock
        self._commands = commands or Commands(failed=lambda text: self._event("command failed", text))
        self._folder = folder
        self.collector = Collector(folder, self._event)
        self._team = NodeTeam(folder, self.collector, self._event, clock)
        self._slices = Cutter(SLICE_SECONDS, SLICE_STEPS)
        self._windows = Cutter(WINDOW_SECONDS, WINDOW_STEPS, self._lost)
        self._looks, self._looked, self._uses = ProcessLooks(), clock(), dict[int, CoreUse]()
        self._machine_looks = machine or MachineLooks()
        self._machine: MachineState | None = None
        self._pieces: dict[int, dict[int, Sequence[float]]] = {}
        self._differ: list[float] = []
        self._request, self._traced = WatchRequest(0), float("-inf")
        self._stepless = False
        self._changes: ChangeTest | None = None
        self._growth = GrowthTest()
        self._lines_of: tuple[str, ...] = ()
        """Rows whose lines were asked for."""
        self._open: dict[str, Alert] = {}
        self._numbers = 0
        self._moved = clock()
        self._usual: float | None = None
        self._stuck: Alert | None = None
        self._told_money = self._capped = self._full = False
        if record.before is not None:
            self._header = record.header
            self._go_on(record.before)

    def _go_on(self, before: RunRecord) -> None:
        """With the record of a job that was started before: alerts that were open are about that start."""
        self._write(RunEvent(when=self._clock(), what=CONTINUED, text="the job was started again"))
        self._numbers = max((alert.number for alert in before.alerts), default=0)
        for alert in before.alerts:
            if not alert.ended:
                self._end(alert, "the job was started again")

    def _write(self, line: RecordLine) -> None:
        self._record.write(line)
        why, lines = self._record.failed, [line]
        if why is not None and not self._full:
            lines.insert(0, RunEvent(when=self._clock(), what="not recorded", text=f"the record lacks lines: {why}"))
        self._full = why is not None
        for each in lines:
            for listener in self._listeners:
                listener.take(each)

    def _event(self, what: str, text: str) -> None:
        if self._team.hands_on:
            self._team.event(what, text)
        else:
            self._write(RunEvent(when=self._clock(), what=what, text=text))

    def poll(self) -> None:
        """Read what is new, and say what follows from it."""
        self.collector.find()
        own = self.collector.poll()
        joined = self._team.gather(own, self._facts())
        self._follow_requests()
        self._tell_lines()
        if self._team.hands_on:
            return
        if joined is not None:
            self._moved = self._clock()
            self._know_job()
            self._moves()
            if (part := self._slices.take(joined)) is not None:
                self._test(part)
            if (part := self._windows.take(joined)) is not None:
                self._window(part)
        elif self.collector.ranks and not self._request.paused:
            self._look_whether_it_moves()
        elif not self.collector.ranks and not self._stepless and self._clock() - self._moved > _NEVER_STEPPED_SECONDS:
            self._stepless = True
            minutes = f"{_NEVER_STEPPED_SECONDS / 60:.0f} minutes"
            self._event(
                "no step", f"no optimizer has stepped in {minutes}: if the job trains, it is in another Python"
            )
        self._count_money()

    def _facts(self) -> dict[str, Any]:
        """Look at this node's processes if it is time to, and take what was followed in full."""
        now = self._clock()
        if self.collector.ranks and (now - self._looked >= _LOOKS_SECONDS or not self._looks.begun):
            processes = {rank: state.reader.process for rank, state in self.collector.ranks.items() if not state.lost}
            self._looks.node, seconds = self._team.node or 0, now - self._looked
            self._uses, self._looked = self._looks.look(processes, seconds), now
            self._machine = self._machine_looks.look(
                self._looks.node, seconds, self._looks.activity, strangers_cores(self._uses),
                self._looks.ours.__contains__,
            )  # fmt: skip
        for rank, (number, pieces) in self.collector.pieces.items():
            self._compare(rank, number, pieces)
        facts, self._team.facts = self._team.facts, []
        for each in facts:
            for rank, (number, *pieces) in each.get("pieces", {}).items():
                self._compare(int(rank), int(number), pieces)
        return facts_of(self._uses, self._machine, self.collector.pieces) if self._team.hands_on else {}

    def _compare(self, rank: int, number: int, pieces: Sequence[float]) -> None:
        """Once all ranks' pieces of a step are here: how far its two accounts are apart."""
        step = self._pieces.setdefault(number, {})
        step[rank] = pieces
        if len(step) == self.collector.expected:
            if (apart := by_calls(step)) is not None:
                self._differ.append(apart)
            del self._pieces[number]
        while len(self._pieces) > 8:
            del self._pieces[min(self._pieces)]

    def _lost(self, joined: Joined) -> SecondsArray | None:
        return lost_to_strangers(joined, {**self._uses, **self._team.uses}, self._header.device in (None, "cpu"))

    def _follow_requests(self) -> None:
        """Hand on what was asked for beside the record, or by node 0; and to ranks that began meanwhile."""
        asked = [RunRequest.made(json.loads(each)) for each in self._team.asked()]
        if not self._team.hands_on and (beside := taken_request(self._record.path)) is not None:
            asked.append(beside)
            self._team.tell(json.dumps(beside.row()).encode())
        for each in asked:
            self._ask(each)
        for state in self.collector.ranks.values():
            if state.asked != self._request.number and self._request.paused:
                state.asked = self._request.number
                state.reader.request(state.asked)

    def _ask(self, request: RunRequest) -> None:
        """Have the ranks of this node follow a request; and say so in the record."""
        paused = self._request.paused if request.paused is None else request.paused
        folder = str(request.folder or traces_folder(self._record.path))
        trace = TraceRequest(request.steps, request.ranks, folder) if request.steps else None
        self._request = WatchRequest(self._request.number + 1, paused, trace)
        with suppress(OSError):  # no room: asked once more, they follow
            self._request.write(self._folder)
        for state in self.collector.ranks.values():
            state.asked = self._request.number
            with suppress(OSError):
                state.reader.request(state.asked)
        if not self._team.hands_on:
            self._event(*request.described(folder))
        if request.paused is False:
            self._moved = self._clock()
        if request.steps:  # traced steps leave no rows
            self._moved = self._clock() + request.steps * (self._usual or 0.0)

    def _capture(self, late: int | None) -> bool:
        """An alert has begun: trace the rank that is late, and rank 0 to compare it with; at most once an hour."""
        if self._options.capture is None or self._clock() - self._traced < _TRACES_EVERY:
            return False
        self._traced = self._clock()
        request = RunRequest(
            None, self._options.capture, tuple(sorted({0, late or 0})), str(traces_folder(self._record.path))
        )
        self._team.tell(json.dumps(request.row()).encode())
        self._ask(request)
        return True

    def _know_job(self) -> None:
        """At the first steps: how many ranks there are, and whether the baseline is of the like."""
        first, unseen = next(iter(self.collector.ranks.values())).reader, self.collector.unseen()
        known = {
            "ranks": self.collector.expected, "device": first.device or None, "loaders": tuple(first.loaders),
            "nodes": self._team.nodes(self._header.nodes),
            "unseen": "" if unseen is None else unseen_text(*unseen),
        }  # fmt: skip
        if self._changes is not None and all(getattr(self._header, name) == value for name, value in known.items()):
            return
        if self._changes is None:
            why = None if self._baseline is None else self._baseline.why_not(self.collector.expected)
            if why is not None and not self._options.force:
                self._event(
                    "no baseline", f"the run is not compared with the profile: {why}; add --force to compare anyway"
                )
                self._baseline = None
                self._header = self._header.model_copy(update={"baseline": None, "baseline_stalls": {}})
            self._changes = ChangeTest(None if self._baseline is None else self._baseline.stalls)
        self._header = self._header.model_copy(update=known)
        self._write(self._header)

    def _test(self, part: Slice) -> None:
        assert self._changes is not None
        self._usual = part.account.step_seconds
        for change in self._changes.take(part):
            if change.ended:
                began = self._open.pop(change.stall, None)
                if began is not None:
                    text = f"{whose(change.stall, change.rank, change.stage)} is as before since step {change.step:,}"
                    self._end(began, text)
            else:
                self._begin_alert(change)

    def _begin_alert(self, change: StallChange) -> None:
        self._numbers += 1
        than = self._baseline.source if self._baseline is not None else "before"
        who = whose(change.stall, change.rank, change.stage)
        late = None if change.rank is None else self._node_of(change.rank)
        why = "; ".join(causes(each) for each in self._machines() if each.node == late)
        text = (
            f"steps are {change.ratio - 1:.0%} longer than {than} since step {change.step:,}: {who} takes "
            f"{format_seconds(change.seconds)} ± {format_seconds(change.plus_minus)} more a step; "
            f"{advice(change, why)}"
        )
        alert = Alert(
            number=self._numbers, when=self._clock(), what="slower", step=change.step, stall=change.stall,
            rank=change.rank, stage=change.stage, ratio=digits(change.ratio), seconds=digits(change.seconds),
            plus_minus=digits(change.plus_minus), text=text,
        )  # fmt: skip
        self._open[change.stall] = alert.model_copy(update={"began": alert.when})
        self._alert(alert)
        if not self._capture(change.rank):
            self._ask_for_lines(change.stall, change.rank)

    def _alert(self, alert: Alert) -> None:
        alert = alert if alert.began is not None else alert.model_copy(update={"began": alert.when})
        self._write(alert)
        if self._options.on_alert is not None:
            self._commands.run(self._options.on_alert, alert.model_dump(mode="json"))

    def _end(self, alert: Alert, text: str) -> None:
        self._alert(alert.model_copy(update={"ended": True, "when": self._clock(), "text": text}))

    def _node_of(self, rank: int) -> int | None:
        use = self._uses.get(rank) or self._team.uses.get(rank)
        return None if use is None else int(use.machine)

    def _machines(self) -> list[MachineState]:
        """Of every node, as it was looked at last."""
        return [*([] if self._machine is None else [self._machine]), *self._team.machines.values()]

    def _window(self, part: Slice) -> None:
        window = window_of(part, self._header.device)
        calls, self._differ = self._differ, []
        late = tuple(each.model_copy(update={"node": self._node_of(each.rank)}) for each in window.stragglers)
        window = window.model_copy(update={
            "stragglers": late,
            "ambiguous": sum(calls) / len(calls) > AMBIGUOUS if calls else window.ambiguous,
            "machines": most_telling(self._machines(), {each.node for each in late}),
        })  # fmt: skip
        self._write(window)
        between = window.stalls.get("other") or 0.0
        grown = self._growth.take(window.first_step, between, window.step_seconds)
        if grown is not None:
            self._tell_growth(grown)

    def _tell_growth(self, grown: SlowGrowth) -> None:
        self._numbers += 1
        text = (
            f"what lies between steps grows: {format_seconds(grown.before)} a step at first, "
            f"{format_seconds(grown.now)} since step {grown.step:,}; its lines follow"
        )
        self._alert(Alert(
            number=self._numbers, when=self._clock(), what="slower", step=grown.step, stall="other",
            ratio=digits(grown.ratio), seconds=digits(grown.now - grown.before), text=text,
        ))  # fmt: skip
        self._ask_for_lines("other", None)

    def _ask_for_lines(self, stall: str, rank: int | None) -> None:
        """Have a rank of this node say which lines of the script a stall is at; of all that are slower the first."""
        asked = min(self.collector.ranks, default=None) if rank is None else rank
        if asked not in self.collector.ranks or self._request.paused:
            return
        self._lines_of = ROWS_OF.get(stall, ())
        self._request = WatchRequest(self._request.number + 1, lines=(asked,))
        with suppress(OSError):
            self._request.write(self._folder)
            state = self.collector.ranks[asked]
            state.asked = self._request.number
            state.reader.request(state.asked)

    def _tell_lines(self) -> None:
        """What ranks have said to that."""
        for path in self._folder.glob(f"{LINES}.*.json"):
            with suppress(OSError, ValueError, TypeError, KeyError):
                rank, rows = int(path.name.split(".")[1]), json.loads(path.read_text())
                path.unlink()
                places = [LedgerPlace.model_validate(row) for row in rows]
                places = [place for place in places if place.row in self._lines_of]
                if places:
                    self._event("lines", lines_text(rank, places))

    def _look_whether_it_moves(self) -> None:
        still = self._clock() - self._moved
        if self._stuck is not None or still < max(self._options.stuck_after, _STUCK_STEPS * (self._usual or 0.0)):
            return
        stages = self._team.stages()
        if not stages:
            return  # the run is at its end
        self._numbers += 1
        waiting = (StepStage.EXCHANGE, StepStage.COLLECTIVE)
        late = [rank for rank, stage in stages.items() if stage not in waiting]
        self._stuck = Alert(
            number=self._numbers, when=self._clock(), what="nothing moves", step=self.collector.taken,
            rank=late[0] if len(late) == 1 else None, seconds=digits(still),
            text=f"no step for {still:.0f} s: {described(stages)}", began=self._clock(),
        )  # fmt: skip
        self._alert(self._stuck)

    def _moves(self) -> None:
        if self._stuck is not None:
            self._end(self._stuck, f"steps continue since step {self.collector.taken:,}")
            self._stuck = None

    def _count_money(self) -> None:
        price, most = self._header.price, self._options.max_dollars
        if price is None or most is None or self._capped:
            return
        elapsed = self._clock() - self._header.began
        spent = bill(price, elapsed, (), 0, None).so_far
        if spent >= most:
            self._capped = True
            self._money(f"{dollars(spent)} are spent, all of --max-dollars {dollars(most)}", spent / most)
            if self._options.on_budget is not None:
                given = {"dollars": spent, "max_dollars": most, "step": self.collector.taken}
                self._commands.run(self._options.on_budget, given)
        elif spent >= _WARNS_AT * most and not self._told_money:
            self._told_money = True
            self._money(f"{dollars(spent)} of --max-dollars {dollars(most)} are spent", spent / most)

    def _money(self, text: str, ratio: float) -> None:
        self._numbers += 1
        self._alert(Alert(
            number=self._numbers, when=self._clock(), what="money", step=self.collector.taken, ratio=digits(ratio),
            text=text,
        ))  # fmt: skip

    def finish(self, code: int | None) -> None:
        """The job has ended with that code: what is left is written."""
        self.poll()
        until = time.monotonic() + _ENDS_SECONDS
        while not self._team.ends() and time.monotonic() < until:
            time.sleep(0.05)
        handed_on = self._team.hands_on
        if not handed_on:
            if (joined := self._team.rest()) is not None and (part := self._windows.take(joined)) is not None:
                self._window(part)
            rest = self._windows.rest()
            if rest is not None:
                self._window(rest)
            how = "the job has ended" if code == 0 else f"the job has ended with exit code {code}"
            self._write(RunEvent(when=self._clock(), what=ENDED, text=how, code=code))
        for listener in self._listeners:
            listener.close()
        self._team.close()
        self._record.close(keep=not handed_on)
