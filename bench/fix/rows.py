"""What came of each job of ``bench.fix``, kept in the repository: a row holds for the script and the time it was run.

So the table is made in several sittings, and on several machines: a row says where, when and of which commit it is. A
job whose script has changed since has none.
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path

from bench import recorded
from bench.fix.jobs import Job
from bench.machine import ROOT, machine

ROWS = Path(__file__).parent / "data" / "jobs.csv"


@dataclass(frozen=True)
class Outcome:
    """One job; seconds of a step."""

    job: Job
    typed: float
    fixed: float | None
    """Realised; ``None`` if nothing was kept, or what was is written by hand only."""
    spread: float
    """Standard error of the realised saving."""
    by_hand: float | None
    promised: float
    kept: tuple[str, ...]
    took: float
    """Seconds of ``stash fix``."""
    whole: float = 0.0
    """Seconds of all of it, the stopwatch included."""
    day: str = ""
    commit: str = ""
    """That was measured; ends with ``+`` where files differed from it."""
    machine: str = ""
    doubt: float | None = None
    """Half of the interval that ``promised`` is printed with; ``None`` of rows from before it was kept."""

    @property
    def saved_seconds(self) -> float:
        return 0.0 if self.fixed is None else self.typed - self.fixed


_FIELDS = [each.name for each in fields(Outcome) if each.name != "job"]
_TEXTS = ("kept", "day", "commit", "machine")


def sign_outcome(found: Outcome) -> Outcome:
    """With the day, the commit and the machine."""
    return replace(
        found, day=str(date.today()), commit=_commit(), machine=machine().partition(", ")[2]
    )


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "src")
        return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def read(jobs: Iterable[Job], path: Path = ROWS) -> dict[str, Outcome]:
    """By name, the rows of these jobs as they are now; raises ValueError for a row that cannot be read."""
    kept = {(row["job"], row["script"]): row for row in recorded.rows(path)}
    same = [(job, kept.get((job.name, _crc(job)))) for job in jobs]
    return {job.name: _outcome(job, row) for job, row in same if row is not None}


def keep(found: Outcome, jobs: Iterable[Job], path: Path = ROWS) -> None:
    """Put a row in place of the job's earlier one, in the order of ``jobs``; rows of scripts that changed go."""
    jobs = tuple(jobs)
    outcomes = read(jobs, path) | {found.job.name: found}
    rows = [(job, outcomes[job.name]) for job in jobs if job.name in outcomes]
    lines = (
        [job.name, _crc(job), *(_cell(getattr(row, name)) for name in _FIELDS)] for job, row in rows
    )
    recorded.write(path, ["job", "script", *_FIELDS], lines)


def _crc(job: Job) -> str:
    return f"{zlib.crc32((job.script + job.repaired_script).encode()):08x}"


def _cell(value: object) -> object:
    return " ".join(value) if isinstance(value, tuple) else value


def _outcome(job: Job, row: dict[str, str]) -> Outcome:
    texts = {"kept": tuple(row["kept"].split()), **{name: row[name] for name in _TEXTS[1:]}}
    numbers = {
        name: float(row[name]) if row.get(name) else None for name in _FIELDS if name not in _TEXTS
    }
    return Outcome(job, **{**numbers, **texts})  # type: ignore[arg-type]
