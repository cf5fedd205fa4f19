"""How long threads were ready to run and had no core: the run-queue delay that the kernel's scheduler counts.

Everything else on the machine shows there, whatever it is: a thread that is ready and waits was kept from running by
somebody. Who that was is not known here. Standard library only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from stash.measure.linux.control_groups import ControlGroups

_TASKS = "/proc/self/task"
_TICKS = os.sysconf("SC_CLK_TCK")
_BYTES = 64
HOLDS = 500e-6


class ScheduledSeconds(NamedTuple):
    """Seconds since a thread began, or of several threads together."""

    ran: float
    """On a core; of a thread that runs right now as of its last timer tick."""
    delayed: float
    """Ready to run, and waiting for a core: throttled by its own control group, too."""

    def __sub__(self, before: ScheduledSeconds) -> ScheduledSeconds:
        return ScheduledSeconds(self.ran - before.ran, self.delayed - before.delayed)

    def __add__(self, other: ScheduledSeconds) -> ScheduledSeconds:  # type: ignore[override]
        return ScheduledSeconds(self.ran + other.ran, self.delayed + other.delayed)


NOTHING = ScheduledSeconds(0.0, 0.0)


class RunQueue:
    """The delay of the thread that makes this object, read in a microsecond from wherever.

    A reading holds for ``HOLDS`` seconds, so that who asks at the same boundary shares it: within them a thread that
    asks cannot have been delayed by more.
    """

    def __init__(self) -> None:
        self.read_at, self.latest = float("-inf"), 0.0
        self.thread = threading.get_native_id()
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(f"{_TASKS}/{self.thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def is_supported(self) -> bool:
        """Whether this kernel counts it."""
        return self._file is not None

    def delay(self) -> float:
        """Seconds so far; 0 where the kernel does not count it. A script that closes the file stops it."""
        if self._file is not None:
            try:
                self.latest = int(os.pread(self._file, _BYTES, 0).split(None, 2)[1]) * 1e-9
            except (OSError, ValueError, IndexError):
                self._file = None
        return self.latest

    def sample(self, now: float) -> float:
        """The same ``now``, by the last reading if that is no older than it may be."""
        if now - self.read_at > HOLDS:
            self.read_at = now
            return self.delay()
        return self.latest

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)


class Helpers:
    """The other threads of a process that work for its steps: those that exchange, and those of parallel loops.

    The latter have the name of the process itself; what libraries start for an exchange has names of its own.
    """

    def __init__(self, spared: int, process: int | str = "self") -> None:
        """``spared`` is the thread that trains."""
        self._spared, self._tasks = spared, f"/proc/{process}/task"
        self._files: dict[int, int] = {}
        self._at_rest: dict[int, bytes] = {}
        self._of_loops: set[int] = set()
        self.exchanging = False
        """Whether any of those that are followed exchanges."""

    def find_threads(self) -> None:
        """Find out which there are, and follow those that have done anything since the last look."""
        with suppress(OSError):
            there = {int(name) for name in os.listdir(self._tasks)} - {self._spared}
            for thread in self._files.keys() - there:
                os.close(self._files.pop(thread))
            # another thread may get the number of one that has ended
            self._of_loops &= self._files.keys()
            self._at_rest = {
                thread: seen for thread, seen in self._at_rest.items() if thread in there
            }
            for thread in there - self._files.keys():
                self._consider_thread(thread)
        self.exchanging = bool(self._files.keys() - self._of_loops)

    def _consider_thread(self, thread: int) -> None:
        with suppress(OSError):
            path = f"{self._tasks}/{thread}/schedstat"
            with open(path, "rb", buffering=0) as file:
                now = file.read(_BYTES)
            if self._at_rest.get(thread, now) == now:
                self._at_rest[thread] = now
                return
            self._files[thread] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            with (
                open(f"{self._tasks}/{thread}/comm") as name,
                open(f"{self._tasks}/{self._spared}/comm") as own,
            ):
                if name.read() == own.read():
                    self._of_loops.add(thread)

    def read_exchange(self) -> ScheduledSeconds:
        """What those that exchange have run and been delayed so far; a thread that has ended keeps nothing."""
        if not self._files:
            return NOTHING
        ran = delayed = 0
        for thread, file in self._files.items():
            if thread not in self._of_loops:
                with suppress(OSError):
                    words = os.pread(file, _BYTES, 0).split(None, 2)
                    ran, delayed = ran + int(words[0]), delayed + int(words[1])
        return ScheduledSeconds(ran * 1e-9, delayed * 1e-9)

    def loop_delays(self) -> dict[int, float]:
        """Seconds so far of each thread of parallel loops."""
        found = {}
        for thread in self._of_loops:
            with suppress(OSError):
                found[thread] = (
                    int(os.pread(self._files[thread], _BYTES, 0).split(None, 2)[1]) * 1e-9
                )
        return found

    def __del__(self) -> None:
        for file in self._files.values():
            os.close(file)


def sum_processes(numbers: Iterable[int]) -> ScheduledSeconds:
    """What these processes have run, and their first threads been delayed, together; those that are gone: nothing.

    A loader's worker makes batches in its first thread and hands them over in another.
    """
    ran = delayed = 0
    for number in numbers:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{number}/task"):
                with suppress(OSError, ValueError, IndexError):
                    words = Path(f"/proc/{number}/task/{thread}/schedstat").read_text().split()
                    ran += int(words[0])
                    delayed += int(words[1]) if thread == str(number) else 0
    return ScheduledSeconds(ran * 1e-9, delayed * 1e-9)


def list_others() -> list[threading.Thread]:
    """Python's threads but the calling one, and Stash's own."""
    own = threading.current_thread()
    return [
        thread
        for thread in threading.enumerate()
        if thread is not own and not thread.name.startswith("stash")
    ]


def seconds_of_threads() -> dict[threading.Thread, float]:
    """Seconds on a core so far of each of these, as far as the kernel says."""
    found = {}
    for thread in list_others():
        with suppress(OSError, ValueError, IndexError):
            words = Path(f"{_TASKS}/{thread.native_id}/schedstat").read_text().split()
            found[thread] = int(words[0]) * 1e-9
    return found


class ProcessTimes(NamedTuple):
    """Seconds on cores, exact to a tick."""

    own: float
    """Of a process, its threads that have ended too."""
    ended: float
    """Of processes below it that have ended, and were waited for."""


def times_of(process: int) -> ProcessTimes:
    """What a process has run so far; nothing of one that is gone."""
    with suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
        ticks = list(map(int, words[11:15]))
        return ProcessTimes(sum(ticks[:2]) / _TICKS, sum(ticks[2:]) / _TICKS)
    return ProcessTimes(0.0, 0.0)


def throttled_seconds() -> float | None:
    """What limits have kept this process's own control group from running so far, those of the groups above too.

    Of all cores together, so it may be more than has passed; ``None`` if unknown.
    """
    counted = map(_read_counts, _throttled_files())
    return max(
        (each[name] * unit for each in counted for name, unit in _UNITS.items() if name in each),
        default=None,
    )


def quota_periods() -> tuple[int, int] | None:
    """(periods of time in which such a limit was reached, all in which the group ran); ``None`` if unknown."""
    counted = map(_read_counts, _throttled_files())
    found = (
        (each["nr_throttled"], each["nr_periods"]) for each in counted if "nr_throttled" in each
    )
    return max(found, default=None)


_UNITS = {"throttled_time": 1e-9, "throttled_usec": 1e-6}
"""In seconds, of version 1 and version 2."""


def _read_counts(file: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        return {name: int(count) for name, count in map(str.split, file.read_text().splitlines())}
    return {}


@cache
def _throttled_files(root: Path = Path("/")) -> tuple[Path, ...]:
    """Where version 1 and version 2 of control groups may count it."""
    groups = ControlGroups(root)
    return tuple(
        folder / "cpu.stat" for name in ("cpu", "") for folder in groups.list_folders(name)
    )
