"""The watcher of a node: reads the rings of its ranks, tells the run's state, and does what that answers.

A process of its own beside training: polls twice a second, and touches nothing of the job. Time and what it may start
are handed in, so that tests can play hours in no time. What follows from what is ``watch_state``'s.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from stash.core.errors import UserError
from stash.core.records.profile import LedgerPlace
from stash.core.units import format_count
from stash.measure.protocol.orders import LINES, TraceRequest, WatchRequest
from stash.monitor.accounting import SecondsArray
from stash.monitor.baseline import RunBaseline
from stash.monitor.change_test import SLICE_SECONDS, SLICE_STEPS, Slice
from stash.monitor.collector import (
    WINDOW_SECONDS,
    WINDOW_STEPS,
    Collector,
    Cutter,
    JoinedCycles,
    RankState,
)
from stash.monitor.machine_state import MachineLooks
from stash.monitor.node_team import NodeTeam
from stash.monitor.records import Header, MachineState, RecordLine, RecordWriter, RunEvent
from stash.monitor.run_requests import (
    RunRequest,
    recorders_folder,
    take_request,
    traces_folder,
    withdraw_request,
)
from stash.monitor.strangers import CoreUse, ProcessLooks, lost_to_strangers, strangers_cores
from stash.monitor.wall_ledger import ENDED
from stash.monitor.watch_state import (
    AskForLines,
    AskForRecorders,
    Continued,
    MomentPassed,
    NothingStepped,
    Now,
    ReadRecorders,
    Requested,
    SliceTaken,
    StartCommand,
    StepsTaken,
    Stopped,
    TraceRanks,
    WatchEvent,
    WatchOptions,
    WatchState,
    WindowTaken,
)
from stash.monitor.window_lines import ROWS_OF, lines_text, unseen_text, window_of

POLL_SECONDS = 0.5
_LOOKS_SECONDS = 10.0
_ENDS_SECONDS = 5.0
"""For the watchers of other nodes to send what is left."""


def recorders_text(folder: Path) -> str:
    """What the flight recorders that ranks wrote into a folder say."""
    from stash.trace import flight

    dumps: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("nccl_trace_rank_*")):
        with suppress(UserError):
            dump = flight.read_dump(path)
            dumps[flight.rank_of(path, dump)] = dump
    if not dumps:
        return "no rank wrote one: start the job with TORCH_FR_BUFFER_SIZE=2000 to learn which collective it stands in"
    sentences = " ".join(flight.sentences(flight.account_dumps(dumps)))
    where = f"{folder.parent.name}/{folder.name}"
    return f"{sentences} Of {format_count(len(dumps), 'rank')}: `stash trace {where} --flight-recorder`"


class LineListener(Protocol):
    """Gets every line of the record as it is written; must not fail."""

    def receive_line(self, line: RecordLine) -> None: ...

    def close(self) -> None: ...


def words_of(command: str) -> list[str]:
    """The words of a command of the user's; raises UserError for one that cannot be split."""
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise UserError(f"cannot read the command {command!r}: {error}") from None
    if not found:
        raise UserError("the command is empty; name a program")
    return found


class NodeLooks:
    """What this node's machine does beside the job, looked at every ten seconds."""

    def __init__(self, machine: MachineLooks, when: float) -> None:
        self._processes = ProcessLooks()
        self._machine = machine
        self._looked = when
        self.uses: dict[int, CoreUse] = {}
        self.state: MachineState | None = None

    def sample_node(self, ranks: Mapping[int, RankState], node: int, when: float) -> None:
        """Look, if it is time to."""
        if not ranks or (self._processes.begun and when - self._looked < _LOOKS_SECONDS):
            return
        processes = {rank: state.reader.process for rank, state in ranks.items() if not state.lost}
        seconds = when - self._looked
        self.uses = self._processes.sample_processes(processes, seconds, node)
        self._looked = when
        self.state = self._machine.sample_machine(
            node,
            seconds,
            self._processes.activity,
            strangers_cores(self.uses),
            self._processes.ours.__contains__,
        )


class NodeWatcher:
    """Watches one node's ranks; ``listeners`` get what the record gets."""

    def __init__(
        self,
        folder: Path,
        record: RecordWriter,
        header: Header,
        options: WatchOptions,
        baseline: RunBaseline | None = None,
        listeners: Sequence[LineListener] = (),
        *,
        clock: Callable[[], float] = time.time,
        start: Callable[..., Any] = subprocess.Popen,
        machine: MachineLooks | None = None,
    ) -> None:
        self._record = record
        self._options = options
        self._folder = folder
        withdraw_request(record.path)  # of an earlier run of that name
        self._listeners = listeners
        self._clock = clock
        self._start = start
        self._running: list[Any] = []
        """The user's commands that may still run."""
        self.collector = Collector(folder, self._record_event)
        self._team = NodeTeam(folder, self.collector, self._record_event, clock)
        self._slices = Cutter(SLICE_SECONDS, SLICE_STEPS)
        self._windows = Cutter(WINDOW_SECONDS, WINDOW_STEPS, self._lost_seconds)
        self._looks = NodeLooks(machine or MachineLooks(), clock())
        self._request = WatchRequest(0)
        self._lines_of: tuple[str, ...] = ()
        """Rows whose lines were asked for."""
        self._full = False
        before = record.before
        self._state = WatchState(
            header if before is None else record.header, options, baseline, clock()
        )
        if before is not None:
            self._handle_event(Continued(before))

    def _handle_event(self, event: WatchEvent) -> None:
        """Tell the state, and do what it answers."""
        for action in self._state.handle_event(event, Now(self._clock(), self.collector.taken)):
            match action:
                case StartCommand():
                    self._start_command(action)
                case TraceRanks():
                    place = str(traces_folder(self._record.path))
                    request = RunRequest(
                        steps=self._options.capture or 0, ranks=action.ranks, folder=place
                    )
                    self._team.tell_nodes(request.model_dump_json().encode())
                    self._apply_request(request)
                case AskForLines():
                    self._ask_for_lines(action.stall, action.rank)
                case AskForRecorders():
                    request = RunRequest(
                        recorders=True, folder=str(recorders_folder(self._record.path, action.step))
                    )
                    self._team.tell_nodes(request.model_dump_json().encode())
                    self._apply_request(request)
                case ReadRecorders():
                    self._record_event(
                        "flight recorder",
                        recorders_text(recorders_folder(self._record.path, action.step)),
                    )
                case _:
                    self._write(action)

    def _start_command(self, action: StartCommand) -> None:
        """Start it without a shell, with JSON on its standard input; an error is told and ends nothing."""
        self._running = [each for each in self._running if each.poll() is None]
        words = shlex.split(action.command)
        try:
            process = self._start(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            self._running.append(process)
            with suppress(OSError):  # it does not read
                process.stdin.write(json.dumps(action.given).encode())
                process.stdin.close()
        except (OSError, ValueError) as error:
            self._record_event("command failed", f"cannot run `{action.command}`: {error}")

    def _write(self, line: RecordLine) -> None:
        self._record.write(line)
        why = self._record.failed
        lines = [line]
        if why is not None and not self._full:
            lines.insert(
                0,
                RunEvent(
                    when=self._clock(), what="not recorded", text=f"the record lacks lines: {why}"
                ),
            )
        self._full = why is not None
        for each in lines:
            for listener in self._listeners:
                listener.receive_line(each)

    def _record_event(self, what: str, text: str) -> None:
        if self._team.hands_on:
            self._team.add_event(what, text)
        else:
            self._write(RunEvent(when=self._clock(), what=what, text=text))

    def poll(self) -> None:
        """Read what is new, and say what follows from it."""
        self.collector.find_ranks()
        own = self.collector.poll()
        self._looks.sample_node(self.collector.ranks, self._team.node, self._clock())
        joined = self._team.gather(own, self._looks.uses, self._looks.state)
        # Hand on what was asked for beside the record, or by node 0; and to ranks that began
        # meanwhile.
        requests = [RunRequest.model_validate_json(each) for each in self._team.take_requests()]
        if not self._team.hands_on and (beside := take_request(self._record.path)) is not None:
            requests.append(beside)
            self._team.tell_nodes(beside.model_dump_json().encode())
        for each in requests:
            self._apply_request(each)
        for state in self.collector.ranks.values():
            if state.asked != self._request.number and self._request.paused:
                state.send_request(self._request.number)
        # what ranks have said to requests for lines
        for path in self._folder.glob(f"{LINES}.*.json"):
            with suppress(OSError, ValueError, TypeError, KeyError):
                rank = int(path.name.split(".")[1])
                rows = json.loads(path.read_text())
                path.unlink()
                places = [LedgerPlace.model_validate(row) for row in rows]
                places = [place for place in places if place.row in self._lines_of]
                if places:
                    self._record_event("lines", lines_text(rank, places))
        if self._team.hands_on:
            return
        if joined is not None:
            first = next(iter(self.collector.ranks.values())).reader
            unseen = self.collector.unseen_collectives()
            job = {
                "ranks": self.collector.expected_ranks,
                "device": first.device or None,
                "loaders": tuple(first.loaders),
                "nodes": self._team.count_nodes(self._state.header.nodes),
                "unseen": "" if unseen is None else unseen_text(*unseen),
            }
            self._handle_event(StepsTaken(job))
            if (part := self._slices.add_cycles(joined)) is not None:
                self._handle_event(SliceTaken(part, self._machine_states(), self._rank_nodes()))
            self._record_window(self._windows.add_cycles(joined))
        elif not self.collector.ranks:
            self._handle_event(NothingStepped())
        elif not self._request.paused and self._state.is_still(self._clock()):
            stages = self._team.rank_stages()
            if stages:  # else the run is at its end
                self._handle_event(Stopped(stages))
        self._handle_event(MomentPassed())

    def _lost_seconds(self, joined: JoinedCycles) -> SecondsArray | None:
        return lost_to_strangers(
            joined, self._core_uses(), self._state.header.device in (None, "cpu")
        )

    def _core_uses(self) -> dict[int, CoreUse]:
        """Of ranks on all nodes."""
        return {**self._team.uses, **self._looks.uses}

    def _rank_nodes(self) -> dict[int, int]:
        """By rank, the node that it is on."""
        return {rank: use.node for rank, use in self._core_uses().items()}

    def _machine_states(self) -> list[MachineState]:
        """Of every node, as it was looked at last."""
        own = self._looks.state
        return [*([] if own is None else [own]), *self._team.machines.values()]

    def _record_window(self, part: Slice | None) -> None:
        if part is not None:
            device = self._state.header.device
            self._handle_event(
                WindowTaken(window_of(part, device, self._rank_nodes(), self._machine_states()))
            )

    def _apply_request(self, request: RunRequest) -> None:
        """Have the ranks of this node follow a request; and say so in the record."""
        paused = self._request.paused if request.paused is None else request.paused
        folder = str(request.folder or traces_folder(self._record.path))
        trace = TraceRequest(request.steps, request.ranks, folder) if request.steps else None
        recorders = folder if request.recorders else ""
        self._request = WatchRequest(self._request.number + 1, paused, trace, recorders=recorders)
        with suppress(OSError):  # no room: asked once more, they follow
            self._request.write(self._folder)
        for state in self.collector.ranks.values():
            with suppress(OSError):
                state.send_request(self._request.number)
        if not self._team.hands_on:
            self._handle_event(Requested(request, folder))

    def _ask_for_lines(self, stall: str, rank: int | None) -> None:
        """Have a rank of this node say which lines of the script a stall is at; of all that are slower the first."""
        first = min(self.collector.ranks, default=None) if rank is None else rank
        if first not in self.collector.ranks or self._request.paused:
            return
        self._lines_of = ROWS_OF.get(stall, ())
        self._request = WatchRequest(self._request.number + 1, lines=(first,))
        with suppress(OSError):
            self._request.write(self._folder)
            self.collector.ranks[first].send_request(self._request.number)

    def finish(self, code: int | None) -> None:
        """The job has ended with that code: what is left is written."""
        self.poll()
        until = time.monotonic() + _ENDS_SECONDS
        while not self._team.have_others_ended() and time.monotonic() < until:
            time.sleep(0.05)
        handed_on = self._team.hands_on
        if not handed_on:
            if (joined := self._team.merge_rest()) is not None:
                self._record_window(self._windows.add_cycles(joined))
            self._record_window(self._windows.cut_rest())
            how = "the job has ended" if not code else f"the job has ended with exit code {code}"
            self._write(RunEvent(when=self._clock(), what=ENDED, text=how, code=code))
        for listener in self._listeners:
            listener.close()
        self._team.close()
        self._record.close(keep=not handed_on)
