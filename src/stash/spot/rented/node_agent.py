"""Runs around torchrun on a rented node of a gang: the guard, and the node's line to the head.

Reports to the head that it is there, in which group its script was started, notices, and how torchrun ended; starts
torchrun again in every round that the head calls. Requests for checkpoints travel by the head too, and lie on each
node's own disk: a bucket is too slow to be looked at between two steps, and shows new files late.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGHUP, SIGQUIT

from stash.core.errors import StashError
from stash.core.interrupts import interrupted_by
from stash.core.membership import signature
from stash.measure.host.notices import Notice, NoticeWatch, sigterm_as_notice
from stash.measure.linux.processes import end_at_once
from stash.spot.emulate.hosts import MARK, leftovers
from stash.spot.emulate.hosts import started as processes
from stash.spot.rented.notice_guard import LOOK_SECONDS, NoticeResponse, end, started, status
from stash.spot.sync import checkpoint_request
from stash.spot.sync.agents import RUN_ID, complaint, meeting, script_failed
from stash.spot.sync.group_monitor import GangOrders
from stash.spot.sync.rendezvous import Noticeboard

_BEAT_SECONDS = 1.0
_CONNECT_SECONDS = 600.0
"""For the head to be reached."""
_KEPT_BYTES = 2**16
"""Of what was written to standard error last."""


class RentedNode:
    """One node, for as long as it is one."""

    def __init__(
        self, command: Sequence[str], name: str, folder: Path, notes: Path, grace: float, token: str,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        """``notes``: an empty folder of this machine alone, whose name is not used twice."""
        self._command, self._name, self._token, self._say, self._grace = command, name, token, say, grace
        self._notes = notes
        self._variables = {
            checkpoint_request.FOLDER: str(folder),
            checkpoint_request.NOTES: str(notes),
            MARK: str(notes),
        }
        self._response = NoticeResponse(notes, grace, say)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = _Errors()
        self._round = 0
        self._group: tuple[int, str, int] | None = None
        self._code = 0
        self._saved: checkpoint_request.SavedNote | None = None
        self._before = GangOrders()

    def run(self, watch: NoticeWatch, connect: Callable[[], Noticeboard]) -> int:
        """Run until it is over, or the machine's time is; raises StashError where the head is not there."""
        with sigterm_as_notice(watch.receive, self._grace), interrupted_by(SIGHUP, SIGQUIT), watch:
            head = _reached(connect)
            try:
                return self._live(watch, head)
            except RuntimeError as error:
                raise StashError(f"the head is gone: {error}") from error
            finally:
                if self._process is not None:
                    end(self._process)
                end_at_once(lambda: leftovers(self._notes))

    def _live(self, watch: NoticeWatch, head: Noticeboard) -> int:
        head.post("up", self._name)
        beaten = 0.0
        while True:
            notice = watch.next(LOOK_SECONDS)
            if notice is not None:
                self._take(notice, head)
            if self._response.due() and self._process is not None:
                end(self._process)
            self._see_end(head)
            if self._response.ending and self._process is None:
                head.post("left", self._name)
                return 0
            if time.monotonic() - beaten >= _BEAT_SECONDS:
                beaten = time.monotonic()
                orders = head.orders()
                if orders.over:
                    return self._code
                head.beat(self._name)
                self._relay(orders, head)
                self._follow(orders, head)

    def _take(self, notice: Notice, head: Noticeboard) -> None:
        self._response.take(notice)
        if notice.kind == "withdrawn":
            head.post("withdrawn", self._name)
        elif self._response.wanted is not None and notice.kind != "at risk":
            left = max(0.0, self._response.left(notice))
            head.post("notice", self._name, seconds=left, word=self._response.wanted.word)

    def _follow(self, orders: GangOrders, head: Noticeboard) -> None:
        """Be in the round that is called, and report in which group."""
        if orders.round != self._round and not self._response.ending:
            if self._process is not None:
                self._say(f"starting again, for the {orders.round}. time")
                self._process.kill()  # all goes on from the last checkpoint
                self._process.wait()
                end_at_once(lambda: leftovers(self._notes))
            self._round, self._group, self._code = orders.round, None, 0
            # torchrun's keys in the store have this in their names, so it is not the secret itself.
            named = {RUN_ID: signature(self._token.encode(), b"torchrun", b"%d" % orders.round).hex()}
            self._process = started(self._command, {**self._variables, **named}, subprocess.PIPE)
            self._errors = _Errors(self._process)
        groups = {found for _, variables in processes(self._notes) if (found := meeting(variables)) is not None}
        if len(groups) == 1:
            (only,) = groups
            group = self._round, f"{only.run} {only.port}", only.size
            if group != self._group:
                self._group = group
                head.post("started", self._name, round=group[0], meeting=only.port, size=group[2])

    def _see_end(self, head: Noticeboard) -> None:
        if self._process is None or self._process.poll() is None:
            return
        self._code, self._process = status(self._process), None
        end_at_once(lambda: leftovers(self._notes))
        if not self._response.ending:
            printed = self._errors.last()
            facts = {"code": self._code, "script": script_failed(printed), "why": complaint(printed)[:300]}
            head.post("ended", self._name, round=self._round, **facts)

    def _relay(self, orders: GangOrders, head: Noticeboard) -> None:
        """Keep the two files on this disk alike with those on all others."""
        if checkpoint_request.listened(self._notes):
            if not orders.listens:
                head.post("listens", self._name)
        elif orders.listens:
            checkpoint_request.listen(self._notes)
        before, self._before = self._before, orders
        if orders.wanted is not None and orders.wanted != before.wanted:
            checkpoint_request.ask(
                self._notes, orders.wanted
            )  # of two requests the later counts, here as on all nodes
        here = checkpoint_request.last_saved(self._notes)
        if here is not None and here != self._saved:
            self._saved = here
            head.post("saved", self._name, word=here.word, seconds=here.seconds)
        elif orders.saved is not None and orders.saved != before.saved:
            self._saved = checkpoint_request.SavedNote(*orders.saved)
            checkpoint_request.saved(self._notes, self._saved)


class _Errors:
    """What a command writes to standard error: passed on, and the last of it kept."""

    def __init__(self, process: subprocess.Popen[bytes] | None = None) -> None:
        self._last = b""
        self._thread = threading.Thread(target=self._pass_on, args=(process,), daemon=True)
        self._thread.start()

    def _pass_on(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None or process.stderr is None:
            return
        with process.stderr as stream:
            for line in stream:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
                self._last = (self._last + line)[-_KEPT_BYTES:]

    def last(self) -> str:
        """Once it has ended, and all that it started."""
        self._thread.join(5.0)
        return self._last.decode(errors="replace")


def _reached(connect: Callable[[], Noticeboard]) -> Noticeboard:
    patience = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return connect()
        except RuntimeError as error:
            if time.monotonic() >= patience:
                raise StashError(f"the head cannot be reached: {error}") from error
            time.sleep(_BEAT_SECONDS)
