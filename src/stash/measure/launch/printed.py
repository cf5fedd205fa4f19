"""What a job printed, taken apart: tracebacks, what its launcher reports, and its own last words. Pure.

Looks at the end of a log only, line by line, so that what a job prints for hours, or on one line without an end (a
progress bar), costs no more than its last words. What any of it means is for ``diagnose``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 200_000
"""Of a log or a traceback that are read: the cause of a failure stands at its end."""
_TRACEBACK = "Traceback (most recent call last):"
_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.M)
"""PyTorch writes it before every line of a rank's uncaught exception."""
_REPORTED = re.compile(
    r"^\s{0,9}rank\s{0,9}:\s{0,9}(\d{1,9}) [^\n]{0,99}\n\s{0,9}exitcode\s{0,9}:\s{0,9}(-?\d{1,9})", re.M
)
_ROOT_CAUSE = "Root Cause (first observed failure)"
_ELASTIC = re.compile(r"[EW]\d{4} ")
_LAUNCHERS = ("torch/distributed/run.py", "bin/torchrun", "bin/accelerate", "ChildFailedError")
"""In the traceback of a launcher, which only says that a rank has failed."""
_CLOSED = re.compile(r"Sending process (\d+) closing signal")


class Reported(NamedTuple):
    """A rank in torchrun's report of a failure."""

    rank: int
    code: int


def tail(path: Path) -> str:
    """The end of a text file; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MOST_BYTES))
            return file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def reported(output: str) -> list[Reported]:
    """The ranks that torchrun says have failed, its root cause first."""
    others, _, root_cause = output.partition(_ROOT_CAUSE)
    found = [*_REPORTED.findall(root_cause), *_REPORTED.findall(others)]
    return [Reported(int(rank), int(code)) for rank, code in found]


def closed(output: str) -> set[int]:
    """The processes that torchrun ended because another had failed."""
    return {int(pid) for pid in _CLOSED.findall(output)}


def own_output(output: str, lines: int = 8) -> str:
    """The last lines the job itself printed, without what its launcher, or a rank's traceback, says of it."""
    said = output[: _launcher_speaks(output)].splitlines()
    kept = [line for line in said if line.strip() and not _PREFIX.match(line) and not _CLOSED.search(line)]
    return "\n".join(kept[-lines:])


def launchers_words(output: str) -> str:
    """What the job's launcher says about its failure."""
    return output[_launcher_speaks(output) :]


def last_traceback(output: str) -> str:
    """The last Python traceback in the output that is not its launcher's own."""
    text = _PREFIX.sub("", output)
    found = [text[begin:end] for begin, end in _tracebacks(text)]
    return next((each for each in reversed(found) if not _is_launchers(each)), "")


def errors(traceback: str) -> list[str]:
    """The lines of a traceback that speak: exceptions with their messages, not the source they came from."""
    lines = _PREFIX.sub("", traceback).splitlines()
    return [line for line in lines if line.strip() and not line.startswith((" ", "\t", _TRACEBACK))]


def _tracebacks(text: str) -> Iterator[tuple[int, int]]:
    """Where each begins, and ends: with the first line that is not indented."""
    begin, position = None, 0
    for line in text.splitlines(keepends=True):
        if _TRACEBACK in line:
            if begin is not None:
                yield begin, position
            begin = position + line.index(_TRACEBACK)
        elif begin is not None and line.strip() and not line.startswith((" ", "\t")):
            yield begin, position + len(line)
            begin = None
        position += len(line)
    if begin is not None:
        yield begin, position


def _is_launchers(traceback: str) -> bool:
    return any(name in traceback for name in _LAUNCHERS)


def _launcher_speaks(output: str) -> int:
    """Where the launcher's report begins: with a line of torchrun's log, or with its traceback."""
    first = next((begin for begin, end in _tracebacks(output) if _is_launchers(output[begin:end])), len(output))
    position = 0
    for line in output[:first].splitlines(keepends=True):
        if _ELASTIC.match(line) and "torch/distributed/elastic" in line and "failed" in line:
            return position
        position += len(line)
    return first
