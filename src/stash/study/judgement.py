"""How a cell ended, from what its command left, what its engine says of it, and what it cost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from stash.core.artefact import load, save
from stash.core.errors import StashError
from stash.core.printable import printable_line
from stash.core.records.circumstances import CellCost
from stash.study.backend import Submission
from stash.study.programs import SystemPrograms
from stash.study.status import HOUR
from stash.study.study_folder import CellFolder, Ending

INTERRUPTED = 130
_MEMORY = re.compile(r"ran out of memory|out of memory|oom[_-]kill|Cannot allocate memory")
_ERROR = re.compile(
    r"^\s*(?:error: |(?:[\w.]+\.)?\w*(?:Error|Exception|Unavailable)\b|sbatch: error: |.*\berror: "
    r"|ssh: |.*: Permission denied \()",
    re.M,
)
_OURS = re.compile(r"(?:\(.{1,100}?\) )?error: (.+)")
"""Of Stash itself, also behind what SkyPilot puts before a job's lines; what started it then says that it failed."""
_HINTS = (
    (re.compile(r"(?i)no cloud access|not enabled|no enabled cloud|credential"), "`sky check` says what is missing"),
    (re.compile(r"(?i)quota|limit ?exceeded"), "ask the cloud for more, or name another region"),
    (re.compile(r"(?i)invalid partition"), "`sinfo` lists the partitions"),
    (re.compile(r"Permission denied \(|Host key verification failed"), "`ssh` has to get there without being asked"),
    (re.compile(r"DUE TO TIME LIMIT"), "`time:` gives the job more"),
    (re.compile(r"(?i)job submit limit|MaxSubmit"), "a lower `at_once:` keeps fewer jobs in the queue"),
    (re.compile(r"(?i)invalid account|account.{0,40}not"), "`sacctmgr show associations` lists the accounts"),
)
_END = 2**16
"""Bytes of what was printed that are looked at."""
_MAX_SENTENCE = 300


class CellJudgement(NamedTuple):
    """How one cell ended, and why in one sentence."""

    ending: Ending
    why: str = ""


def judge(cell: CellFolder, submission: Submission, code: int | None) -> CellJudgement:
    """Judge a cell whose command is over, and whose profile was fetched if there was one to fetch."""
    printed = _last_of(cell.log)
    if code == 0:
        why = _unreadable(cell.profile)
        return CellJudgement("done") if why is None else CellJudgement("failed", why)
    if submission.lost and re.search(submission.lost, printed):
        return CellJudgement("lost", f"its machines were taken away: {_last_error(printed)}")
    ours, error = _own_errors(printed), _last_error(printed)
    # Of several nodes one fails and the others are then interrupted; which one's code it is, is chance.
    if code is None or (code == INTERRUPTED and not ours):
        return CellJudgement("lost", "it was interrupted")
    if _MEMORY.search(error):
        return CellJudgement("out of memory", error)
    hint = next((f"; {text}" for pattern, text in _HINTS if pattern.search(error)), "")
    return CellJudgement("failed", f"{error or f'it ended with exit code {code} and no word'}{hint}")


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
_LOOK_SECONDS = 30.0
_MAX_ANSWER = 200


def fetch(programs: SystemPrograms, submission: Submission) -> str | None:
    """Bring the profile into the cell's folder; why not, if it cannot be brought."""
    for words in submission.fetch:
        for number in range(_TRIES):
            if number:
                programs.sleep(2.0**number)
            called = programs.call(words, _FETCH_SECONDS)
            if called.code == 0:
                break
        else:
            last = (called.output.strip().splitlines() or [f"exit code {called.code}"])[-1]
            return printable_line(last, _MAX_ANSWER)
    return None


def waiting(programs: SystemPrograms, submission: Submission) -> tuple[bool, str | None]:
    """Whether what is submitted has yet to begin, and why it never will, if somebody who knows says so."""
    if not submission.waits:
        return False, None
    called = programs.call(submission.check, _LOOK_SECONDS)
    if called.code or not re.search(submission.waits, called.output):
        return False, None
    found = re.search(submission.hopeless, called.output) if submission.hopeless else None
    return True, None if found is None else printable_line(found[1], _MAX_ANSWER)


def write_cost(profile: Path, seconds: float, dollars_per_hour: float, price_source: str) -> None:
    """Add the cost of so many seconds to the profile saved there; raises ArtefactError."""
    cost = CellCost(
        dollars=dollars_per_hour * seconds / HOUR,
        seconds=seconds,
        dollars_per_hour=dollars_per_hour,
        price_source=price_source,
    )
    save(load(profile).model_copy(update={"cost": cost}), profile)
