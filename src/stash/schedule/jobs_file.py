"""``jobs.csv``: jobs as people write them down, one a line, and as ``stash schedule import`` writes them.

Columns: job, user, submit, gpus, model, and steps or hours_on TYPE; deadline, weight, done and on if there are
any. Times are numbers of seconds or texts like 3h, counted from the first submission. Knows the file, no policy.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stash.core.errors import UnitError, UserError
from stash.core.printable import shortened
from stash.core.units import nearest, parse_seconds
from stash.core.user_files import table_rows, text_of
from stash.schedule.lab_file import DESCRIBED
from stash.schedule.matrix import RateMatrix
from stash.schedule.records import EVERYONE, HOUR, YEAR_HOURS, LabCluster, QueuedJob

YEAR = YEAR_HOURS * HOUR
LONGEST_SECONDS, LATEST_SECONDS = YEAR, 10 * YEAR
"""That a job takes at its fastest; between the first submission and the last. More is a mistake, and takes hours."""
_HOURS_ON = "hours_on "
_MAX_BYTES = 64 * 2**20
_COLUMNS = ("job", "user", "submit", "gpus", "model", "steps", "deadline", "weight", "done", "on")


@dataclass(frozen=True)
class JobsFile:
    """The jobs that can run, and what was left out and why."""

    jobs: tuple[QueuedJob, ...]
    excluded: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Line:
    path: Path
    number: int
    cells: Mapping[str, str]

    def mistake(self, column: str, why: str) -> UserError:
        return UserError(f"{self.path}:{self.number}: {column}: {why}")

    def number_of(self, column: str, least: float = 0.0, above: bool = False) -> float | None:
        text = self.cells.get(column, "").strip()
        if not text:
            return None
        try:
            value = float(text.replace("_", ""))
        except ValueError:
            raise self.mistake(column, f"{shortened(text, 40)!r} is no number") from None
        if not math.isfinite(value) or value < least or (above and value <= least):
            raise self.mistake(column, f"{text} must be {'above' if above else 'at least'} {least:g}")
        return value

    def time_of(self, column: str) -> float | None:
        text = self.cells.get(column, "").strip()
        if not text:
            return None
        if text.startswith("-"):
            raise self.mistake(column, f"{text} is negative; times count from the first submission")
        try:
            return parse_seconds(text, named="s")
        except UnitError as error:
            raise self.mistake(column, f"{error}; write seconds, or a time like 3h") from None


def read_jobs(path: Path, cluster: LabCluster, matrix: RateMatrix) -> JobsFile:
    """The jobs at ``path``; raises UserError with line and column of the first mistake.

    A job whose model and GPUs have no rate on this cluster is left out and named. ``hours_on
    TYPE`` becomes steps by the matrix.
    """
    lines = _lines(path)
    jobs, excluded, seen = [], [], dict[str, int]()
    for line in lines:
        name = line.cells.get("job", "").strip()
        if not name:
            raise line.mistake("job", "a job needs a name")
        if name in seen:
            raise line.mistake("job", f"{name} is also in line {seen[name]}; give each job its own name")
        seen[name] = line.number
        found = _job(line, name, cluster, matrix)
        if isinstance(found, str):
            excluded.append((name, found))
        else:
            jobs.append(found)
    if not jobs:
        why = f"; {excluded[0][0]}: {excluded[0][1]}" if excluded else ""
        raise UserError(f"{path} has no job that can run on {cluster.name}{why}")
    first, last = min(job.submit for job in jobs), max(job.submit for job in jobs)
    if last - first > LATEST_SECONDS:
        late = next(job.name for job in jobs if job.submit == last)
        raise UserError(f"{path}:{seen[late]}: submit: it is more than ten years after the first submission")
    shifted = [
        replace(job, submit=job.submit - first, deadline=None if job.deadline is None else job.deadline - first)
        for job in jobs
    ]
    return JobsFile(tuple(shifted), tuple(excluded))


def _lines(path: Path) -> list[_Line]:
    text = text_of(path, "the jobs", DESCRIBED, _MAX_BYTES)
    rows = table_rows(text, path, DESCRIBED)
    head = [cell.strip() for cell in rows[0][1]] if rows else []
    for needed in ("job", "gpus"):
        if needed not in head:
            alike = nearest(needed, head, 1)
            hint = f" ({alike[0]} is another)" if alike else ""
            raise UserError(
                f"{path} has no column {needed}{hint}; its first line is like job,user,submit,gpus,model,steps, and "
                "`stash schedule import` makes one from traces"
            )
    unknown = [name for name in head if name not in _COLUMNS and not name.startswith(_HOURS_ON)]
    for name in unknown:
        alike = nearest(name, _COLUMNS, 1)
        if alike:
            raise UserError(f"{path}: there is no column {name}; did you mean {alike[0]}?")
    filled = [(number, row) for number, row in rows[1:] if any(cell.strip() for cell in row)]
    if not filled:
        raise UserError(f"{path} has no job below its first line; {DESCRIBED}")
    return [_Line(path, number, dict(zip(head, row, strict=False))) for number, row in filled]


def _job(line: _Line, name: str, cluster: LabCluster, matrix: RateMatrix) -> QueuedJob | str:
    """The job, or why it cannot run here."""
    gpus = line.number_of("gpus", 1)
    if gpus is None or gpus != int(gpus):
        raise line.mistake("gpus", f"{line.cells.get('gpus', '').strip() or 'nothing'} is no whole number of GPUs")
    model = line.cells.get("model", "").strip()
    if not model:
        raise line.mistake("model", "the job has none; give it one")
    size = int(gpus)
    largest = int(cluster.counts.max())
    if size > largest:
        return f"it asks for {size} GPUs at once, and no type of {cluster.name} has more than {largest}"
    job = QueuedJob(
        name=name, model=model, gpus=size, steps=0.0, submit=line.time_of("submit") or 0.0,
        user=line.cells.get("user", "").strip() or EVERYONE,
        weight=line.number_of("weight", 0, above=True) or 1.0,
        deadline=line.time_of("deadline"), done=line.number_of("done") or 0.0,
        on=line.cells.get("on", "").strip(),
    )  # fmt: skip
    if job.on and job.on not in cluster.types:
        raise line.mistake("on", f"{job.on} is no GPU type of {cluster.name}, which has {', '.join(cluster.types)}")
    if job.deadline is not None and job.deadline <= job.submit:
        raise line.mistake("deadline", "it is not after the job's submission")
    steps = _steps(line, job, matrix)
    if isinstance(steps, str):
        return steps
    if steps <= job.done:
        raise line.mistake("done", f"{job.done:g} steps are done of {steps:g}: there is nothing left")
    fastest = max((_rate(matrix, cluster, job, kind) for kind in cluster.types), default=0.0)
    if fastest <= 0:
        return f"nothing says how fast {model} on {size} GPUs is on {', '.join(cluster.types)}"
    if not (steps - job.done) / fastest <= LONGEST_SECONDS:
        raise line.mistake("steps", f"{steps:g} steps take more than a year at {fastest:g} steps/s")
    return replace(job, steps=steps)


def _rate(matrix: RateMatrix, cluster: LabCluster, job: QueuedJob, kind: str) -> float:
    few = cluster.fewest_nodes(kind, job.gpus)
    found = matrix.rates.get((job.model, job.gpus, kind, few)) or matrix.rates.get((job.model, job.gpus, kind, 0))
    return found.value if found is not None and few else 0.0


def _steps(line: _Line, job: QueuedJob, matrix: RateMatrix) -> float | str:
    steps = line.number_of("steps", 0, above=True)
    hours = {name[len(_HOURS_ON) :].strip(): line.number_of(name, 0, above=True)
             for name in line.cells if name.startswith(_HOURS_ON)}  # fmt: skip
    given = {kind: value for kind, value in hours.items() if value is not None}
    if (steps is not None) + len(given) != 1:
        what = "nothing" if steps is None and not given else "more than one"
        raise line.mistake("steps", f"{what} says how much work it is; give steps, or the hours on one type")
    if steps is not None:
        return steps
    kind, duration = next(iter(given.items()))
    rate = matrix.rates.get((job.model, job.gpus, kind, 0)) or next(
        (each for (model, gpus, gpu, _), each in matrix.rates.items()
         if (model, gpus, gpu) == (job.model, job.gpus, kind)), None)  # fmt: skip
    if rate is None or rate.value <= 0:
        return f"its hours are on {kind}, where nothing says how fast {job.model} on {job.gpus} GPUs is"
    return duration * HOUR * rate.value


def jobs_text(jobs: Sequence[QueuedJob]) -> str:
    """The jobs as such a file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    optional = [name for name in ("deadline", "done", "on") if any(getattr(job, name) for job in jobs)]
    writer.writerow(["job", "user", "submit", "gpus", "model", "steps", "weight", *optional])
    for job in jobs:
        more = [getattr(job, name) for name in optional]
        writer.writerow([
            job.name, job.user, f"{job.submit:.12g}", job.gpus, job.model, f"{job.steps:.12g}", f"{job.weight:g}",
            *("" if each in (None, 0.0, "") else each for each in more),
        ])  # fmt: skip
    return out.getvalue()
