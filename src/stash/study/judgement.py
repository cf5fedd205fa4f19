"""How a cell ended, from what its command left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stash.core.artefact import load
from stash.core.errors import StashError
from stash.core.printable import printable_line
from stash.study.programs import SystemPrograms
from stash.study.study_folder import CellFolder, Ending

INTERRUPTED = 130
_MEMORY = re.compile(r"ran out of memory|out of memory|oom[_-]kill|Cannot allocate memory")
_ERROR = re.compile(r"^\s*(?:(?:[\w.]+\.)?\w*(?:Error|Exception|Unavailable)\b|.*\berror: )", re.M)
_OURS = re.compile(r"(?:\(.{1,100}?\) )?error: (.+)")
"""Of Stash itself, also behind what SkyPilot puts before a job's lines; what started it then says that it failed."""
_HINTS = (
    (
        re.compile(r"(?i)no cloud access|not enabled|no enabled cloud|credential"),
        "`sky check` says what is missing",
    ),
    (re.compile(r"(?i)quota|limit ?exceeded"), "ask the cloud for more, or name another region"),
    (re.compile(r"(?i)invalid partition"), "`sinfo` lists the partitions"),
    (re.compile(r"DUE TO TIME LIMIT"), "`time:` gives the job more"),
)
_END = 2**16
"""Bytes of what was printed that are looked at."""
_MAX_SENTENCE = 300


class CellJudgement(NamedTuple):
    """How one cell ended, and why in one sentence."""

    ending: Ending
    why: str = ""


def judge(cell: CellFolder, lost: str, code: int | None) -> CellJudgement:
    """Judge a cell whose command is over, its profile fetched; ``lost``: as of its ``Submission``."""
    printed = _last_of(cell.log)
    if code == 0:
        why = _unreadable(cell.profile)
        return CellJudgement("done") if why is None else CellJudgement("failed", why)
    if lost and re.search(lost, printed):
        return CellJudgement("lost", f"its machines were taken away: {_last_error(printed)}")
    ours = _own_errors(printed)
    error = _last_error(printed)
    # Of several nodes one fails and the others are then interrupted; which one's code it is, is chance.
    if code is None or (code == INTERRUPTED and not ours):
        return CellJudgement("lost", "it was interrupted")
    if _MEMORY.search(error):
        return CellJudgement("out of memory", error)
    hint = next((f"; {text}" for pattern, text in _HINTS if pattern.search(error)), "")
    return CellJudgement(
        "failed", f"{error or f'it ended with exit code {code} and no word'}{hint}"
    )


def _unreadable(profile: Path) -> str | None:
    if not profile.exists():
        return "it ended well and left no profile"
    try:
        load(profile)
    except StashError as error:
        return printable_line(str(error), _MAX_SENTENCE)
    return None


def _last_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _END))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _last_error(printed: str) -> str:
    """The last line in which Stash says what went wrong, else the last that tells of an error, else the last."""
    lines = _lines(printed)
    errors = [line for line in lines if _ERROR.match(line)]
    return printable_line((_own_errors(printed) or errors or lines or [""])[-1], _MAX_SENTENCE)


def _own_errors(printed: str) -> list[str]:
    return [found[1] for line in _lines(printed) if (found := _OURS.match(line))]


def _lines(printed: str) -> list[str]:
    return [line.strip() for line in printed.splitlines() if line.strip()]


_TRIES = 3
_FETCH_SECONDS = 60.0
"""For a file of some megabytes. Nothing else is looked at meanwhile, limits neither."""


def fetch_profile(programs: SystemPrograms, words: Sequence[str]) -> str | None:
    """Bring the profile into the cell's folder; why not, if it cannot be brought."""
    output = ""
    for number in range(_TRIES):
        if number:
            programs.sleep(2.0**number)
        code, output = programs.call(words, _FETCH_SECONDS)
        if code == 0:
            return None
    return printable_line((output.strip().splitlines() or ["it said nothing"])[-1], _MAX_SENTENCE)
