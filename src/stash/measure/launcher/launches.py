"""Launches of a job: started, followed while they run, stopped when it is enough, diagnosed when they fail.

What is decided on the strength of a launch is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from stash.core.formatting import join_names
from stash.core.interrupts import follow_requests
from stash.core.jsonl import Tail
from stash.core.ladder import UNTOUCHED, has_no_exchange
from stash.core.measured import Block
from stash.measure.launcher.diagnose import (
    MARK_STEPS,
    Diagnosis,
    Evidence,
    diagnose,
    diagnose_early_exit,
    diagnose_lost_nodes,
    find_closed,
    own_output,
)
from stash.measure.launcher.guarded import name_left_file, report_sentences
from stash.measure.launcher.measurement import Measurement, Watcher
from stash.measure.launcher.peers import Peers
from stash.measure.launcher.process import (
    Process,
    Request,
    make_request,
    threads_of_a_rank,
)
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.journal import new_messages
from stash.measure.protocol.messages import LadderEnded, Message, RoundDone
from stash.measure.protocol.orders import Orders
from stash.measure.protocol.put_back import put_back

_TICK = 0.1
_LOOK_SECONDS = 3.0
"""Between looks at the ranks' signs of life; they need the cores more."""
_GLANCE_SECONDS = 1.0
"""Between looks at the programs that run at the same time as the job."""
_LOOK_SHARE = 50
"""Rounds and other programs are looked at for a fiftieth of the time: it is the job's cores that this takes."""
_SAID_AFTER = 30.0
"""Seconds without a first step after which a note is printed."""
_LONGEST_QUESTION = 300
_SILENCE = 60.0
"""Seconds without a step, of ranks that took steps, after which a job counts as hung at the earliest …"""
_SLOWER = 5.0
"""… and how many times the longest that was seen between two."""
_SHUTDOWN_SECONDS = 10.0
"""For ranks that were measured to leave each other, before all are ended."""


class _Finish(NamedTuple):
    """How a launch was ended once its ranks were done."""

    codes: dict[int, int]
    """Exit codes of the processes that had come to their own end."""
    together: bool
    """All ranks were done by then."""


@dataclass
class _Running:
    """A started launch: what never changes, how far its journal was read, and what is known of its end."""

    process: Process
    orders: Orders
    journal: Tail
    peers: Peers | None
    """The launchers of the other nodes; None if there can be no other node."""
    ended: float | None = None
    """When the agents wrote that they were done (Unix time)."""
    finish: _Finish | None = None
    """None while it runs, and of one that was not ended because its ranks were done."""
    silent: Sequence[int] = ()
    """Ranks that were gone without a traceback when the launch ended."""
    crashes: Sequence[str] = ()
    """Tracebacks that there were by then."""

    @property
    def files(self) -> RunFolder:
        return self.orders.files

    def read_messages(self, now: float) -> list[Message]:
        """What its agents wrote since the last call."""
        messages = new_messages(self.journal)
        if any(isinstance(message, LadderEnded) for message in messages):
            self.ended = now
        return messages

    def stop(self) -> None:
        """End what is left of it; who was gone by then is known."""
        self.silent, self.crashes = self.process.silent(), self.process.crashes()
        self.process.stop()
        if self.peers is not None:
            self.peers.close()

    def end_whole(self) -> None:
        """Its ranks are done: nothing of the job may follow on their end."""
        codes = self.process.finish(self.files.list_marked("exiting"))
        self.finish = _Finish(codes, together=self.ended is not None or self.all_wait())

    def steps_by_rank(self) -> dict[int, int]:
        return {rank: beat.steps for rank, beat in self.process.beats().items()}

    def is_broken(self) -> bool:
        """Whether it ended without having written so."""
        code = self.process.poll()
        if code is None or self.finish is not None or self.ended is not None:
            return False
        return code != 0 or self.files.journal.exists() or not self.files.path.exists()

    def is_done(self, now: float) -> bool:
        """Whether every rank waits to be ended, or should by now."""
        exiting = min(self.files.list_marked("exiting").values(), default=None)
        return min(self.ended or now, exiting or now) < now - _SHUTDOWN_SECONDS or self.all_wait()

    def all_wait(self) -> bool:
        """Whether every rank waits to be ended."""
        ranks = {beat.pid for beat in self.process.beats().values()}
        waiting = self.files.list_marked("finished") | self.files.list_marked("exiting")
        return bool(ranks) and ranks <= waiting.keys()

    def left_early(self) -> tuple[int, int] | None:
        """The first rank that ended by itself, with its exit code, if not all ended together and well."""
        if self.finish is None:
            return None
        ranks = {beat.pid: rank for rank, beat in self.process.beats().items()}
        ended = sorted(
            (ranks[number], code) for number, code in self.finish.codes.items() if number in ranks
        )
        return next(
            ((rank, code) for rank, code in ended if code != 0 or not self.finish.together), None
        )

    def last_step(self) -> float | None:
        """When any rank last ended a step (monotonic time), or ``None`` before the first."""
        return max((beat.when for beat in self.process.beats().values()), default=None)


class _Pace:
    """The longest time between two steps, as far as it was seen by looking now and then (monotonic seconds)."""

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self._last: float | None = None
        self._longest: float | None = None

    def longest_step(self, last: float) -> float:
        """The longest step, with the last one seen now; until two were seen, the time to the first."""
        if self._last is not None and last > self._last:
            self._longest = max(last - self._last, self._longest or 0.0)
        self._last = last
        return last - self.begun if self._longest is None else self._longest


class Launches:
    """All launches of one measurement, one after the other, each in a folder of its own."""

    def __init__(
        self,
        measurement: Measurement,
        folder: Path,
        start: Callable[[Request, RunFolder], Process] = Process,
        neighbours: Callable[[], Sequence[int]] = list,
        watcher: Watcher = lambda moment: None,
        until: float | None = None,
    ) -> None:
        self._folder, self._neighbours, self._watcher = folder, neighbours, watcher
        self._until = until
        """Of launches that leave nothing behind: when they are ended (the clock's monotonic seconds)."""
        self._measurement, self._start_process = measurement, start
        self._last: Process | None = None
        self._said_to_wait = False
        self._next_look = 0.0

    def move(self, folder: Path, watcher: Watcher) -> Launches:
        """The same with folders in this one, shown to ``watcher``."""
        return Launches(
            self._measurement, folder, self._start_process, self._neighbours, watcher, self._until
        )

    def leave_nothing(self, until: float) -> None:
        """Files that the job makes go again; past ``until`` no launch goes on (the clock's monotonic seconds)."""
        self._until = until

    def say(self, notice: str) -> None:
        """Tell who waits at once."""
        self._watcher(self._measurement.make_moment(notice=notice))

    def make_orders(self) -> Orders:
        """The orders of a launch that runs the whole ladder; its folder is known once it is started."""
        m = self._measurement
        return Orders(
            folder=str(self._folder),
            rungs=m.approach.rungs,
            budget=m.wishes.budget,
            began=m.began,
            launch=m.launches,
            first_round=1 + max((block.round for block in m.gathered.blocks), default=-1),
            may_start_again=m.starts_all_ranks,
            pin=m.gpus == 0 and m.job.kind != "command" and m.cluster.nproc > 1,
            data_root=m.wishes.data_root and os.path.realpath(m.wishes.data_root),
            keep_logging=m.wishes.keep_logging,
            traces=m.wishes.trace and os.path.realpath(m.wishes.trace),
            passing=self._until is not None,
            host=m.host.model_dump(mode="json"),
        )

    def make_request(self, orders: Path | None = None) -> Request:
        """The command of one launch under the orders in that file."""
        m, orders = self._measurement, orders or RunFolder(self._folder).orders
        threads = threads_of_a_rank(m.job, m.cluster, m.host.cores or 1, m.gpus)
        return make_request(m.job, m.cluster, orders, threads)

    def run_launch(
        self, orders: Orders, variables: Mapping[str, str] | None = None
    ) -> Diagnosis | None:
        """Run one launch to its end; the value says why it failed, if it did."""
        m = self._measurement
        begun, failure = m.clock.monotonic(), self._diagnose_lateness()
        if failure is not None:
            return failure
        running = self._start(orders, variables or {})
        try:
            m.count_launch()
            self._watcher(m.make_moment())  # who watches gets ready while the script does
            failure = self._follow_launch(running, begun)
        finally:
            self._mention_neighbours()
            running.stop()
            self._read_messages(running)
            report = put_back(running.files.kept) + put_back(running.files.kept_here)
            m.gathered.note(*report_sentences(replace(report, new=())))
            m.gathered.left_files.update(dict.fromkeys(map(name_left_file, report.new)))
            others = len(running.files.list_marked("extra"))
            many = "another process" if others == 1 else f"{others} other processes"
            if others:
                m.gathered.note(
                    f"{many} trained besides the one that was measured, in no process group with it; what that "
                    "took from its step is part of every stall"
                )
        return failure or self._diagnose_end(running)

    def _diagnose_lateness(self) -> Diagnosis | None:
        m = self._measurement
        if self._until is None or m.clock.monotonic() < self._until:
            return None
        return Diagnosis(f"{m.job.title} was ended: the time given was over", users_mistake=True)

    def _follow_launch(self, running: _Running, begun: float) -> Diagnosis | None:
        """Follow a launch until it has ended, or something says that it should be; the value is what, if so."""
        m, clock = self._measurement, self._measurement.clock
        looked, next_glance = begun, begun + _GLANCE_SECONDS
        pace = _Pace(begun)
        while running.process.poll() is None:
            follow_requests()
            self._take_news(running)
            if running.peers is not None:
                running.peers.open_socket()  # ranks that just met wait for it
            self._measurement.read_energy()
            if (began := clock.monotonic()) > next_glance:
                m.bystanders.sample_programs(count=m.seconds_spent() > 0)
                took = clock.monotonic() - began
                next_glance = began + max(_GLANCE_SECONDS, _LOOK_SHARE * took)
            if clock.monotonic() - looked > _LOOK_SECONDS:
                looked = clock.monotonic()
                self._mention_neighbours()
                self._say_that_it_waits(running, begun)
                failure = self._diagnose_lost(running) or self._diagnose_hung(running, pace)
                if failure is not None:
                    return failure
            if (late := self._diagnose_lateness()) is not None:
                return late
            if running.process.poll() is None and running.is_done(clock.time()):
                self._read_messages(running)
                running.end_whole()
            if running.is_broken():
                break
            clock.sleep(_TICK)
        # The end of a node breaks the connections of our ranks.
        return self._diagnose_lost(running) if running.is_broken() else None

    def _start(self, orders: Orders, variables: Mapping[str, str]) -> _Running:
        m = self._measurement
        folder = self._folder / f"launch-{m.launches}"
        folder.mkdir()
        orders = replace(orders, folder=str(folder), launch=m.launches)
        asked = self.make_request(orders.write())
        asked = replace(asked, variables={**asked.variables, **variables})
        peers = None if m.starts_all_ranks else Peers(orders.files)
        self._last = self._start_process(asked, orders.files)
        return _Running(self._last, orders, Tail(orders.files.journal), peers)

    def _read_messages(self, running: _Running) -> list[Message]:
        m = self._measurement
        messages = running.read_messages(m.clock.time())
        for message in messages:
            m.add_message(message)
        return messages

    def _mention_neighbours(self) -> None:
        if any(self._neighbours()):
            self._measurement.gathered.note(
                "another profile ran on this machine at the same time; the links and disk that each used lengthen "
                "the other's stalls: profile one at a time"
            )

    def _say_that_it_waits(self, running: _Running, begun: float) -> None:
        """Say once that no step was seen yet, long before it is given up: it may be one that Stash cannot see."""
        m, silence = self._measurement, self._measurement.clock.monotonic() - begun
        if self._said_to_wait or silence < _SAID_AFTER or running.last_step() is not None:
            return
        self._said_to_wait = True
        text = f"no training step seen in {silence:.0f} s, of {m.wishes.start_timeout:.0f} s (--start-timeout) at most"
        words = running.process.output().rpartition("\n")[2].strip()  # a question, if it asks one
        asks = f"; it waits at: {words[-_LONGEST_QUESTION:]}" if words else ""
        self.say(f"{text}{asks}; if it trains by now, {MARK_STEPS}")

    def _take_news(self, running: _Running) -> None:
        """Take new messages; let the agents stop once it is enough."""
        m = self._measurement
        messages = self._read_messages(running)
        finished = any(isinstance(message, RoundDone) for message in messages)
        began = m.clock.monotonic()
        looks = finished and began >= self._next_look
        if m.out_of_time or (finished and m.is_over()) or (looks and m.is_enough()):
            with suppress(FileNotFoundError):  # the job has removed the folder: it ends anyway
                running.files.stop.touch()
        if messages:
            first = any(
                isinstance(message, Block) and message.rung == UNTOUCHED.name
                for message in messages
            )
            self._watcher(m.make_moment(looks or first))
        if looks:
            now = m.clock.monotonic()
            self._next_look = now + _LOOK_SHARE * (now - began)

    def steps(self) -> int:
        """Steps of the rank that got farthest in the last launch; 0 if none stepped on this machine."""
        beats = self._last.beats() if self._last is not None else {}
        return max((beat.steps for beat in beats.values()), default=0)

    def log_path(self) -> Path | None:
        """Where the last launch's output is."""
        return self._last.folder.output if self._last is not None else None

    def last_words(self) -> str:
        """What the job itself printed at the end of the last launch."""
        return own_output(self._last.output()) if self._last is not None else ""

    def _diagnose_lost(self, running: _Running) -> Diagnosis | None:
        """What to say when another node is gone; the profile then rests on what this node knows of the rounds."""
        gathered, clock, peers = self._measurement.gathered, self._measurement.clock, running.peers
        if peers is None:
            return None
        peers.greet()
        step = running.last_step()
        # what the wall clock would have shown then, had it never jumped
        since_step = None if step is None else clock.time() - (clock.monotonic() - step)
        silence = peers.find_silence(since_step)
        if silence is None:
            return None
        peers.tell_peers(silence)
        self._read_messages(running)
        if not gathered.led:
            for message in new_messages(Tail(running.files.copy)):
                gathered.add_message(message)
        failure = diagnose_lost_nodes(silence.nodes, silence.since, self.steps())
        gathered.notes.append(failure.sentence)
        gathered.add_message(LadderEnded("node lost"))
        return failure

    def _diagnose_hung(self, running: _Running, pace: _Pace) -> Diagnosis | None:
        """What to say when no rank has ended a step for too long; of ranks that cannot step alone, notes that too."""
        m = self._measurement
        seen = running.last_step()
        last = pace.begun if seen is None else seen
        limit = (
            max(_SILENCE, m.wishes.budget, _SLOWER * pace.longest_step(last))
            if seen is not None
            else m.wishes.start_timeout
        )
        silence = m.clock.monotonic() - last
        if silence <= limit:
            return None
        beats = running.process.beats()
        if not beats:
            return Diagnosis(
                f"{m.job.title} took no training step within {silence:.0f} s; if it needs longer to start, "
                f"give it more with --start-timeout SECONDS; if it trains, {MARK_STEPS}",
                self.last_words(),
            )
        phase, rounds = m.gathered.phase.name, m.gathered.rounds
        if has_no_exchange(phase) and rounds == 0 and m.starts_all_ranks:
            why = "the job hung when ranks stepped without exchanging gradients"
            m.gathered.add_message(LadderEnded("unsafe", why))
            return Diagnosis(why)
        fewest = min(beat.steps for beat in beats.values())
        behind = [str(rank) for rank, beat in sorted(beats.items()) if beat.steps == fewest]
        # In a step that all exchange in, the ranks that wait have got as far as the one they wait for.
        who = (
            "all ranks got equally far"
            if 1 < len(behind) == len(beats)
            else f"rank {join_names(behind)} got least far"
        )
        return Diagnosis(
            f"no rank of {m.job.title} ended a step for {silence:.0f} s; {who} ({fewest} steps, last block: {phase})"
        )

    def _diagnose_end(self, running: _Running) -> Diagnosis | None:
        """Why a launch failed, if it did."""
        job, process, folder = self._measurement.job, running.process, running.files
        if not folder.path.exists():
            return Diagnosis(
                f"the folder of the run, {folder.run_path}, was removed while {job.title} ran; if it is the job that "
                "empties the temporary folder, let it have one of its own (TMPDIR)"
            )
        left, output = running.left_early(), process.output()
        if left is not None:
            return diagnose_early_exit(left, output, running.steps_by_rank(), job.title)
        if not running.is_broken():
            return None
        ended_by_launcher, beats = find_closed(output), process.beats()
        return diagnose(
            Evidence(
                exit_code=process.poll() or 0,
                crashes=running.crashes,
                output=output,
                silent=[
                    rank for rank in running.silent if beats[rank].pid not in ended_by_launcher
                ],
                steps=running.steps_by_rank(),
                left=running.peers.left if running.peers is not None else None,
                title=job.title,
            )
        )
