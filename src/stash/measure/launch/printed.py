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
_LAUNCHERS = (
    "torch/distributed/run.py", "bin/torchrun", "bin/accelerate", "accelerate/commands/launch.py", "ChildFailedError",
)  # fmt: skip
"""In the traceback of a launcher, which only says that a rank has failed."""
_CLOSED = re.compile(r"Sending process (\d+) closing signal")
_USAGE = re.compile(r"usage:", re.I)
"""What argparse, click and typer begin with, where an option is wrong …"""
_WRONG = re.compile(r"^(?:\S[^:]{0,99}: )?error: (.+)$", re.I)
"""… and how the first two end; the third draws a box around it."""
_BOXED = re.compile(r"^│ +(.*?) *│$")
_NAMES_ERROR = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b")
_OF_HYDRA = "Set the environment variable HYDRA_FULL_ERROR=1"
"""Its last line, where it shows no traceback; what is wrong stands in the paragraph above."""
_HINT = re.compile(rf"^(?:\s|{_OF_HYDRA}|To append to your config|See https://|Config search path:)")
_MOST_OF_HYDRA = 3
_LAST_WORDS = 40
"""Lines among which a job says why it ends."""
_LONGEST_CAUSE = 300


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


def stated(output: str) -> str:
    """Why a job ended, where it said so without a traceback: a wrong option, a configuration that does not fit."""
    said = output[: _launcher_speaks(output)]
    lines = [line.rstrip() for line in said.splitlines() if not _ELASTIC.match(line)]
    while lines and not lines[-1]:
        lines.pop()
    lines = lines[-_LAST_WORDS:]
    if _TRACEBACK in said or not lines:
        return ""
    if lines[-1].startswith(_OF_HYDRA):
        return _cut(_of_hydra(lines[:-1]))
    usage = max((position for position, line in enumerate(lines) if _USAGE.match(line)), default=None)
    found = [] if usage is None else lines[usage + 1 :]
    wrong = next((match[1] for line in found if (match := _WRONG.match(line)) is not None), "")
    return _cut((wrong or " ".join(match[1] for line in found if (match := _BOXED.match(line)))).rstrip("."))


def _of_hydra(lines: list[str]) -> str:
    """The lines of its last paragraph that are no hints: of the one before, where that lists where it looked."""
    said: list[str] = []
    for line in reversed(lines):
        if line.strip():
            said += [] if _HINT.match(line) else [line.strip()]
        elif said:
            break
    causes = list(dict.fromkeys(reversed(said)))[-_MOST_OF_HYDRA:]  # each rank prints its own
    return " ".join(line if line.endswith(".") else f"{line}." for line in causes).rstrip(".")


def cause(own_words: str) -> str:
    """The line of what a job said that tells best why it failed: an error, not the hints that follow on it."""
    if stating := stated(own_words):
        return stating
    said = errors(own_words)
    return next((line for line in reversed(said) if _NAMES_ERROR.match(line)), said[-1] if said else "")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_CAUSE else f"{text[:_LONGEST_CAUSE]} …"


def question(output: str) -> str:
    """What was printed last without an end of line, as whoever waits for an answer does; empty if nothing was."""
    last = output.rpartition("\n")[2].strip()
    return "" if "\r" in last or len(last) > _LONGEST_CAUSE else last


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
