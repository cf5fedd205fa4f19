"""What a watched rank does beside stamping: bring the watchers of several nodes together, pause, trace some steps.

Watchers meet as launchers do: each says where it can be reached, and the ranks carry the invitation of node 0's to
the others, through the store that the job's ranks met at. What is asked of a rank it finds by one comparison a step.
While it is paused or traced it leaves no rows, so that no window has those steps.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stash.measure.agent import private
from stash.measure.linux.interfaces import own_address
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import Invitation, Neighbours
from stash.measure.protocol.watch_requests import TraceRequest

_KEY = "stash/watchers"
_LOOKS_SECONDS = 0.5
_MEETING_SECONDS = 120.0


class WatchersMeeting:
    """Local rank 0's part in it; asked after steps until it is over."""

    def __init__(self, folder: Path, node: int) -> None:
        self._folder, self._leads = RunFolder(folder), node == 0
        Neighbours(node, own_address()).write(self._folder)
        self._next, self._until = 0.0, time.monotonic() + _MEETING_SECONDS
        self.over = False

    def step(self) -> None:
        """Look whether the invitation has come; no question waits for another node."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next, self.over = now + _LOOKS_SECONDS, now > self._until
        store = private.default_store()
        if self._leads:
            invitation = Invitation.of(self._folder)
            if invitation is not None:
                store.set(_KEY, json.dumps(asdict(invitation)))
                self.over = True
        elif store.check([_KEY]):
            Invitation(**json.loads(store.get(_KEY))).bring(self._folder)
            self.over = True


@dataclass
class StepTrace:
    """Traces steps with torch.profiler, from where it is started until ``steps`` have ended."""

    wanted: TraceRequest
    rank: int
    first: int
    """The step that begins now."""
    _left: int = 0
    _profiler: Any = field(default=None, repr=False)

    def start(self) -> None:
        import torch.profiler

        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=kinds)
        self._profiler.start()
        self._left = self.wanted.steps

    def step(self) -> bool:
        """A step ended; whether it was the last of them, and the trace is written."""
        self._left -= 1
        if self._left > 0:
            return False
        self._profiler.stop()
        folder = Path(self.wanted.folder)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"rank{self.rank}.step{self.first}.json.gz"
        draft = target.with_name(f"{os.getpid()}.{target.name}")
        self._profiler.export_chrome_trace(str(draft))
        draft.rename(target)
        return True
