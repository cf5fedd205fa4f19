"""Which programs use a machine's cores while the job runs: read from /proc now and then by whoever waits for it.

Programs are named as a user knows them: by their file, or by the script that an interpreter runs. What processes did
that ended between two looks counts for the one that waited for them. No arguments, no owners.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from stash.core.records.circumstances import OtherProgram
from stash.measure.launcher.gpu_looks import GpuLooks
from stash.measure.linux.processes import Status, status_of

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_MIN_CORES = 0.02
_MAX_PROGRAMS = 3
_INTERPRETER = re.compile(r"(python|pypy|node|perl|ruby|java|(?:ba|da|z|k)?sh)[\d.]*")
_TAKE_VALUE = ("-W", "-X", "-o", "+o", "-O", "-cp", "-classpath", "-r", "-I")
"""Options of interpreters whose value is the next word, and is not what runs."""
_CODE = re.compile(r"-[a-zA-Z]*c[a-z]*|--eval|--print")
_OTHERS_CODE = re.compile(r"-[eEp]|--eval|--print")
"""Options with code, which is no name: of Python and of shells, and of others."""


def _is_ours(number: int, every: Mapping[int, Status]) -> bool:
    """Whether it is this very process, or below it."""
    seen = {0}
    while number not in seen:
        if number == os.getpid():
            return True
        seen.add(number)
        number = every[number].parent if number in every else number
    return False


def program_name(words: Sequence[str]) -> str:
    """What a user calls the process with these words: its program, or the script that an interpreter runs."""
    program = os.path.basename(words[0]) if words else ""
    interpreter = _INTERPRETER.fullmatch(program)
    if interpreter is None:
        return program
    code = (
        _CODE if interpreter[1].endswith("sh") or interpreter[1].startswith("py") else _OTHERS_CODE
    )
    for before, word in pairwise(words):
        if code.fullmatch(word):
            return program
        if not word.startswith(("-", "+")) and before not in _TAKE_VALUE:
            # or the module or archive that the option before it runs
            script = os.path.basename(word)
            # no descriptor
            is_name = any(map(str.isalpha, script)) and not any(map(str.isspace, script))
            return script if is_name else program
    return program


class Bystanders:
    """The programs that are no part of the processes below this one; call ``sample_programs`` now and then."""

    def __init__(self, proc: Path = _PROC, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._clock, self.gpus = proc, clock, GpuLooks()
        self._before: dict[int, Status] = {}
        self._used: dict[str, float] = defaultdict(float)
        self._looked: float | None = None
        self._seconds = 0.0

    def sample_programs(self, count: bool = True) -> None:
        """Add up what was used since the last look, unless it is not to ``count``."""
        now, numbers = self._clock(), [int(folder.name) for folder in self._proc.glob("[0-9]*")]
        every = {
            number: status
            for number in numbers
            if (status := status_of(number, self._proc)) is not None
        }
        found = {number: each for number, each in every.items() if not _is_ours(number, every)}
        if count:
            self.gpus.sample_gpus(lambda number: _is_ours(number, every))
        if count and self._looked is not None:
            self._seconds += now - self._looked
            handed_on: dict[int, int] = defaultdict(int)
            for number, gone in self._before.items():
                if number not in found:  # the nearest above it that is there has its ticks now
                    heir = gone.parent  # parents may have ended with their children
                    while heir not in found and heir in self._before:
                        heir = self._before[heir].parent
                    handed_on[heir] += gone.ticks
            for number, process in found.items():
                before = self._before[number].ticks if number in self._before else 0
                since = process.ticks - before - handed_on[number]
                if since > 0:
                    name, words = "", []
                    with suppress(OSError):
                        folder = self._proc / str(number)
                        name = (folder / "comm").read_text(errors="replace").strip()
                        words = (folder / "cmdline").read_text(errors="replace").split("\0")
                    name = program_name(list(filter(None, words))) or name or "unknown"
                    self._used[name[:40]] += since / _TICKS
        self._before, self._looked = found, now

    def list_programs(self) -> tuple[OtherProgram, ...]:
        """The busiest, with the cores that each used on average."""
        if not self._seconds:
            return ()
        ranked = sorted(
            ((used / self._seconds, name) for name, used in self._used.items()), reverse=True
        )
        busy = [(name, cores) for cores, name in ranked[:_MAX_PROGRAMS] if cores > _MIN_CORES]
        return tuple(OtherProgram(name=name, cores=round(cores, 2)) for name, cores in busy)
