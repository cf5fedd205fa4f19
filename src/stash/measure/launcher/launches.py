"""Launches of a job: started, followed while they run, told when it is enough, diagnosed when they fail.

A launch may have several members that run side by side (jobs of one process each). What is decided on the strength of
a launch is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from stash.core.formatting import listed
from stash.core.interrupts import follow_requests
from stash.core.ladder import without_exchange
from stash.measure.launcher import kept_files
from stash.measure.launcher.diagnose import (
    MARK_STEPS,
    Diagnosis,
    Evidence,
    closed,
    diagnose,
    fell_silent,
    left_early,
    own_output,
    question,
)
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.job import trainer_shut_out, why
from stash.measure.launcher.measurement import Measurement, Watcher
from stash.measure.launcher.peers import Peers
from stash.measure.launcher.process import Process, Request, on_terminal, request, threads_of_a_rank
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.journal import Beat, Tail
from stash.measure.protocol.messages import ClimbEnded, Message, RoundDone
from stash.measure.protocol.orders import Orders
from stash.measure.protocol.put_back import put_back

_TICK = 0.1
_ROLL_CALL = 3.0
"""Seconds between looks at the ranks' signs of life; they need the cores more."""
_SILENCE = 60.0
"""Seconds without a step, of ranks that took steps, after which a job counts as hung at the earliest …"""
_SLOWER = 5.0
"""… and how many times the longest that was seen between two."""
_PARTING = 10.0
"""Seconds for those that were measured to part from each other, before all are ended."""


@dataclass(frozen=True)
class Member:
    """One of the launches started side by side; the defaults are a launch of the whole job."""

    orders: Orders | None = None
    cluster: Cluster | None = None
    offset: int = 0
    """Added to its ranks."""
    variables: dict[str, str] = field(default_factory=dict)


class StartedProcess(Protocol):
    """What is used of a ``Process``."""

    folder: RunFolder

    def poll(self) -> int | None: ...
    def stop(self) -> None: ...
    def finish(self, exiting: Collection[int]) -> dict[int, int]: ...
    def output(self) -> str: ...
    def crashes(self) -> list[str]: ...
    def silent(self) -> list[int]: ...
    def beats(self) -> dict[int, Beat]: ...


@dataclass
class _Running:
    """A started member and how far its journal was read."""

    process: StartedProcess
    orders: Orders
    offset: int
    journal: Tail
    peers: Peers | None
    """The launchers of the other nodes; None if there can be no other node."""
    ended: float | None = None
    """When the agents said that they were done (Unix time)."""
    finished: bool = False
    """It was ended because its ranks were done, whether or not they could say so here."""
    together: bool = True
    """All ranks were done by then."""
    codes: dict[int, int] = field(default_factory=dict)
    """Exit codes of the processes that came to their own end, once it was ended."""

    heard: float | None = None
    """When a step had ended, at the last look (Unix time)."""
    longest: float | None = None
    """The longest between the steps of two looks."""
    silent: list[int] = field(default_factory=list)
    """Ranks that were gone without a word when the launch ended."""
    crashes: list[str] = field(default_factory=list)
    """Tracebacks that there were by then."""

    def broken(self) -> bool:
        """Whether it ended without having said so."""
        code = self.process.poll()
        if code is None or self.finished or self.ended is not None:
            return False
        return code != 0 or self.orders.files.journal.exists() or not self.orders.files.path.exists()

    def is_done(self, now: float) -> bool:
        """Whether every rank waits to be ended, or should by now."""
        alone = self.orders.files.exiting_since()
        if min(self.ended or now, alone or now) < now - _PARTING:
            return True
        return self.all_wait()

    def all_wait(self) -> bool:
        """Whether every rank waits to be ended."""
        ranks = {beat.pid for beat in self.process.beats().values()}
        return bool(ranks) and ranks <= self.orders.files.waiting().keys()

    def left_early(self) -> tuple[int, int] | None:
        """The first rank that ended by itself, with its exit code, if not all ended together and well."""
        ranks = {beat.pid: rank for rank, beat in self.process.beats().items()}
        ended = sorted((ranks[number], code) for number, code in self.codes.items() if number in ranks)
        return next(((rank, code) for rank, code in ended if code != 0 or not self.together), None)

    def longest_step(self, last: float, begun: float) -> float:
        """What no step took longer than, so far: what passed between looks at two, at first until the first one."""
        if self.heard is not None and last > self.heard:
            self.longest = max(last - self.heard, self.longest or 0.0)
        self.heard = last
        return last - begun if self.longest is None else self.longest

    def last_step(self) -> float | None:
        """When any rank last ended a step (monotonic time), or ``None`` before the first."""
        return max((beat.when for beat in self.process.beats().values()), default=None)


class Launches:
    """All launches of one measurement, one after the other, each in a folder of its own."""

    def __init__(
        self,
        measurement: Measurement,
        folder: Path,
        start: Callable[[Request, RunFolder], StartedProcess] = Process,
        neighbours: Callable[[], Sequence[int]] = list,
    ) -> None:
        self.folder = folder
        self._neighbours = neighbours
        self.watcher: Watcher = lambda moment: None
        self._measurement, self._start_process = measurement, start
        self._last: StartedProcess | None = None
        self._asked = ""

    # Describing ---------------------------------------------------------------------------------------

    def orders(self, folder: Path) -> Orders:
        """For a launch that climbs the whole ladder."""
        m = self._measurement
        return Orders(
            folder=str(folder),
            rungs=m.wishes.rungs,
            budget=m.wishes.budget,
            began=m.began,
            launch=m.launches,
            first_round=1 + max((block.round for block in m.gathered.blocks), default=-1),
            may_isolate=m.may_isolate,
            pin=m.gpus == 0 and m.job.kind != "command" and m.cluster.nproc > 1,
            data_root=m.wishes.data_root,
            keep_logging=m.wishes.keep_logging,
            host=m.host.model_dump(mode="json"),
        )

    def request(self, orders: Path, cluster: Cluster | None = None) -> Request:
        """The command of one launch under the orders in that file."""
        m = self._measurement
        threads = threads_of_a_rank(m.job, m.cluster, m.host.cores or 1, m.gpus)
        return request(m.job, cluster or m.cluster, orders, threads)

    # Running ------------------------------------------------------------------------------------------

    def run(self, *members: Member) -> Diagnosis | None:
        """Run one launch to its end; the value says why it failed, if it did."""
        clock = self._measurement.clock
        running: list[_Running] = []
        begun = called = clock.monotonic()
        try:
            for member in members or (Member(),):
                running.append(self._start(member))
            self._measurement.launches += 1
            while any(each.process.poll() is None for each in running):
                follow_requests()
                for each in running:
                    self._follow(each)
                    if each.peers is not None:
                        each.peers.open()  # ranks that just met wait for it
                if clock.monotonic() - called > _ROLL_CALL:
                    called = clock.monotonic()
                    self._mention_neighbours()
                    self._pass_on_question(running)
                    if (lost := self._lost(running)) is not None:
                        return lost
                    silence = self._silence(running, begun)
                    if silence is not None:
                        return self._hung(running, silence)
                    if (shut := self._shut_out(running)) is not None:
                        return shut
                for each in running:
                    self._finish(each)
                if any(each.broken() for each in running):
                    break
                clock.sleep(_TICK)
            if any(each.broken() for each in running) and (lost := self._lost(running)) is not None:
                return lost  # its end broke the connections of our ranks
        finally:
            self._mention_neighbours()
            for each in running:
                # Those still there are about to be ended by us, and may say so.
                each.silent, each.crashes = each.process.silent(), each.process.crashes()
                each.process.stop()
                if each.peers is not None:
                    each.peers.close()
                self._take(each)
                files = each.orders.files
                kept = put_back(files.kept) + put_back(files.kept_here)
                self._measurement.gathered.note(*kept_files.sentences(kept))
                self._mention_others(each)
        return next((found for each in running if (found := self._diagnosis(each)) is not None), None)

    def _start(self, member: Member) -> _Running:
        m = self._measurement
        folder = self.folder / f"launch-{m.launches}-{member.offset}"
        folder.mkdir()
        orders = replace(member.orders or self.orders(folder), folder=str(folder), launch=m.launches)
        asked = self.request(orders.write(), member.cluster)
        asked = replace(asked, variables={**asked.variables, **member.variables})
        peers = None if m.may_isolate else Peers(orders.files)
        self._last = self._start_process(asked, orders.files)
        return _Running(self._last, orders, member.offset, Tail(orders.files.journal), peers)

    def _take(self, each: _Running) -> list[Message]:
        m, messages = self._measurement, each.journal.messages()
        for message in messages:
            if isinstance(message, ClimbEnded):
                each.ended = m.clock.time()
            m.take(message, each.offset)
        return messages

    def _mention_others(self, each: _Running) -> None:
        others, notes = each.orders.files.besides(), self._measurement.gathered.notes
        many = "another process" if others == 1 else f"{others} other processes"
        note = (
            f"{many} trained beside the one that was measured, in no process group with it; what that took from its "
            "step is part of every stall"
        )
        if others and note not in notes:
            notes.append(note)

    def _mention_neighbours(self) -> None:
        for process in self._neighbours():
            self._measurement.gathered.note(
                f"another profile (process {process}) ran on this machine at the same time: what it took of cores, "
                "links and disk is part of these stalls, and this one of its; profile one after the other"
            )

    def _pass_on_question(self, running: list[_Running]) -> None:
        """Show what the job asks on a terminal before it trains: its output goes to a log, what is typed to it."""
        if not on_terminal() or any(each.last_step() is not None for each in running):
            return
        asked = next((said for each in running if (said := question(each.process.output()))), "")
        if asked and asked != self._asked:
            self.watcher(replace(self._measurement.moment(False), said=f"the job asks: {asked}"))
        self._asked = asked

    def _follow(self, each: _Running) -> None:
        """Take what was told since; let the agents stop once it is enough."""
        m = self._measurement
        messages = self._take(each)
        finished = any(isinstance(message, RoundDone) for message in messages)
        enough = (finished and m.enough()) or (m.out_of_budget and m.gathered.rounds > 0)
        if enough and each.orders.rounds is None:
            with suppress(FileNotFoundError):  # the job has removed the folder: it ends anyway
                each.orders.files.stop.touch()
        if messages:
            self.watcher(m.moment(finished))

    def _finish(self, each: _Running) -> None:
        """End a launch whole once its ranks are done: nothing of the job may follow on their end."""
        if each.process.poll() is None and each.is_done(self._measurement.clock.time()):
            self._take(each)
            waiting = each.orders.files.waiting()
            each.codes = each.process.finish([number for number, exits in waiting.items() if exits])
            each.finished, each.together = True, each.ended is not None or each.all_wait()

    # What is left of the last one ---------------------------------------------------------------------

    def steps(self) -> int:
        """Steps of the rank that got farthest in the last launch; 0 if none stepped on this machine."""
        beats = self._last.beats() if self._last is not None else {}
        return max((beat.steps for beat in beats.values()), default=0)

    def log(self) -> Path | None:
        """Where the last launch's output is."""
        return self._last.folder.output if self._last is not None else None

    def last_words(self) -> str:
        """What the job itself printed at the end of the last launch."""
        return own_output(self._last.output()) if self._last is not None else ""

    # When things go wrong -----------------------------------------------------------------------------

    def _silence(self, running: list[_Running], begun: float) -> float | None:
        """Seconds without a step of any rank, if there were too many of them."""
        wishes = self._measurement.wishes
        signs = [sign for each in running if (sign := each.last_step()) is not None]
        if not signs:
            limit = wishes.start_timeout
        else:
            longest = max(each.longest_step(max(signs), begun) for each in running)
            limit = max(_SILENCE, wishes.budget, _SLOWER * longest)
        quiet = self._measurement.clock.monotonic() - max(signs, default=begun)
        return quiet if quiet > limit else None

    def _shut_out(self, running: list[_Running]) -> Diagnosis | None:
        """What to say of a job that trains where the agent cannot get in, and would do so for ever."""
        if any(each.last_step() is not None for each in running):
            return None
        options = (trainer_shut_out(str(each.orders.files.orders)) for each in running)
        return next((Diagnosis(why(found), users_mistake=True) for found in options if found is not None), None)

    def _lost(self, running: list[_Running]) -> Diagnosis | None:
        """What to say when another node is gone; the profile then rests on what this node knows of the rounds."""
        gathered = self._measurement.gathered
        for each in running:
            if each.peers is None:
                continue
            each.peers.greet()
            silence = each.peers.silence(self._unix_time(each.last_step()))
            if silence is None:
                continue
            each.peers.tell(silence)
            self._take(each)
            if not gathered.led:
                for message in Tail(each.orders.files.copy).messages():
                    gathered.take(message, each.offset)
            failure = fell_silent(silence.nodes, silence.since, self.steps())
            gathered.notes.append(failure.sentence)
            gathered.end = "node lost"
            return failure
        return None

    def _unix_time(self, when: float | None) -> float | None:
        """What the wall clock would have shown then, had it never jumped."""
        clock = self._measurement.clock
        return None if when is None else clock.time() - (clock.monotonic() - when)

    def _hung(self, running: list[_Running], silence: float) -> Diagnosis | None:
        m = self._measurement
        beats = {rank: beat for each in running for rank, beat in each.process.beats().items()}
        if not beats:
            return Diagnosis(
                f"{m.job.title} took no training step within {silence:.0f} s; if it needs longer to start, "
                f"give it more with --start-timeout SECONDS; if it trains, {MARK_STEPS}",
                self.last_words(),
            )
        phase, rounds = m.gathered.phase.name, m.gathered.rounds
        if without_exchange(phase) and rounds == 0 and running[0].orders.may_isolate and m.isolated is None:
            m.gathered.unsafe = "the job hung when ranks stepped without exchanging gradients"
            return None
        fewest = min(beat.steps for beat in beats.values())
        behind = [str(rank) for rank, beat in sorted(beats.items()) if beat.steps == fewest]
        # In a step that all exchange in, the ranks that wait have got as far as the one they wait for.
        who = "all ranks got equally far" if 1 < len(behind) == len(beats) else f"rank {listed(behind)} got least far"
        return Diagnosis(
            f"no rank of {m.job.title} ended a step for {silence:.0f} s; {who} ({fewest} steps, last block: {phase})"
        )

    def _diagnosis(self, each: _Running) -> Diagnosis | None:
        """Why a launch failed, if it did."""
        job, process = self._measurement.job, each.process
        folder = each.orders.files
        if not folder.path.exists():
            return Diagnosis(
                f"the folder of the run, {folder.run}, was removed while {job.title} ran; if it is the job that "
                "empties the temporary folder, let it have one of its own (TMPDIR)"
            )
        left = each.left_early()
        output, beats = process.output(), process.beats()
        if left is not None:
            return left_early(left, output, {rank: beat.steps for rank, beat in beats.items()}, job.title)
        if not each.broken():
            return None
        ended_by_launcher = closed(output)
        return diagnose(
            Evidence(
                exit_code=process.poll() or 0,
                crashes=each.crashes,
                output=output,
                silent=[rank for rank in each.silent if beats[rank].pid not in ended_by_launcher],
                steps={rank: beat.steps for rank, beat in beats.items()},
                left=each.peers.left if each.peers is not None else None,
                title=job.title,
                batch=job.batch,
            )
        )
