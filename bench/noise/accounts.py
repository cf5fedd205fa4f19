"""Whose processor time it was: the job in a control group of its own, and what everyone else took meanwhile.

Reads the kernel's accounts (cgroup version 1, ``cpuacct``) twenty times a second; knows nothing of what the job is.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ACCOUNTS, LIMITS = Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup/cpu")
PERIOD = 0.05
"""Seconds between two readings."""
CORES_OF_QUOTA = 1.0
_QUOTA_PERIOD = 100_000
"""Microseconds, the kernel's usual."""
_MOST_SHARES = 262_144
"""Of an ordinary process 1024."""
_JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'


class Group:
    """The job's control groups; ``words`` stand before its command and put it in."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders

    @property
    def words(self) -> tuple[str, ...]:
        return ("sh", "-c", _JOIN, "bench-noise", *map(str, self._folders), "--")

    def used_nanoseconds(self) -> int:
        """Nanoseconds of processor time since it was made."""
        return _usage(self._folders[0])


@contextlib.contextmanager
def group(cores: float | None = None, first: bool = False) -> Iterator[Group]:
    """Groups for one job, limited to so many cores if any; whatever is left in them at the end is ended.

    What goes ``first`` gets nearly all the processor time it asks for, whatever else runs; its own processes share
    it among themselves as ever. Caches and memory are still shared with others.
    """
    name = f"bench-noise-{os.getpid()}"
    folders = [ACCOUNTS / name, *([LIMITS / name] if cores is not None or first else [])]
    try:
        for folder in folders:
            folder.mkdir(exist_ok=True)
        if cores is not None:
            (LIMITS / name / "cpu.cfs_period_us").write_text(str(_QUOTA_PERIOD))
            (LIMITS / name / "cpu.cfs_quota_us").write_text(str(round(cores * _QUOTA_PERIOD)))
        if first:
            (LIMITS / name / "cpu.shares").write_text(str(_MOST_SHARES))
        yield Group(folders)
    finally:
        for folder in folders:
            _remove(folder)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + 10.0
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            if time.monotonic() > deadline - 5:
                for pid in (folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), 9)
            time.sleep(0.1)


def _usage(folder: Path) -> int:
    return int((folder / "cpuacct.usage").read_text())


class Others:
    """Cores that processes outside a group take; use it in a ``with`` statement, then read ``seconds``."""

    def __init__(self, job: Group) -> None:
        self._job, self._stop = job, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._readings: list[tuple[float, int, int]] = []

    def __enter__(self) -> Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(PERIOD):
            self._readings.append(
                (time.monotonic(), _usage(ACCOUNTS), self._job.used_nanoseconds())
            )

    def cores(self) -> list[float]:
        """Of each second: cores that others took."""
        return per_second(self._readings)


def per_second(readings: list[tuple[float, int, int]]) -> list[float]:
    """Cores that others took in each full second of readings ``(seconds, all nanoseconds, the job's)``."""
    found, begin = [], 0
    for at in range(1, len(readings)):
        seconds = readings[at][0] - readings[begin][0]
        if seconds >= 1:
            everyone, own = (readings[at][column] - readings[begin][column] for column in (1, 2))
            found.append(max(0.0, (everyone - own) / 1e9 / seconds))
            begin = at
    return found


def quiet(cores: float, patience: float) -> bool:
    """Wait until the whole machine has used fewer ``cores`` for two seconds; False if it did not in ``patience``."""
    deadline = time.monotonic() + patience
    while True:
        before, began = _usage(ACCOUNTS), time.monotonic()
        time.sleep(2.0)
        now = time.monotonic()
        if (_usage(ACCOUNTS) - before) / 1e9 / (now - began) < cores:
            return True
        if now > deadline:
            return False
