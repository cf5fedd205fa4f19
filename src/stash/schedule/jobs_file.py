"""``jobs.csv``: jobs as people write them down, one a line, and as ``stash schedule import`` writes them.

Columns: job, user, submit, gpus, model, steps; deadline, weight, done and on if there are
any. Times are numbers of seconds or texts like 3h, counted from the first submission. Knows the file, no policy.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stash.core.errors import UserError
from stash.core.units import find_nearest
from stash.schedule.matrix import RateMatrix
from stash.schedule.records import EVERYONE, HOUR, YEAR_HOURS, LabCluster, QueuedJob
from stash.schedule.tables import DESCRIBED, TableLine, read_table

YEAR = YEAR_HOURS * HOUR
LONGEST_SECONDS, LATEST_SECONDS = YEAR, 10 * YEAR
"""That a job takes at its fastest; between the first submission and the last. More is a mistake, and takes hours."""
_COLUMNS = ("job", "user", "submit", "gpus", "model", "steps", "deadline", "weight", "done", "on")


@dataclass(frozen=True)
class JobsFile:
    """The jobs that can run, and what was left out and why."""

    jobs: tuple[QueuedJob, ...]
    excluded: tuple[tuple[str, str], ...] = ()


def read_jobs(path: Path, cluster: LabCluster, matrix: RateMatrix) -> JobsFile:
    """The jobs at ``path``; raises UserError with line and column of the first mistake.

    A job whose model and GPUs have no rate on this cluster is left out and named.
    """
    lines = _lines(path)
    jobs, excluded, seen = [], [], dict[str, int]()
    for line in lines:
        name = line.text("job")
        if not name:
            raise line.mistake("job", "a job needs a name")
        if name in seen:
            raise line.mistake(
                "job", f"{name} is also in line {seen[name]}; give each job its own name"
            )
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
        raise UserError(
            f"{path}:{seen[late]}: submit: it is more than ten years after the first submission"
        )
    shifted = [
        replace(
            job,
            submit=job.submit - first,
            deadline=None if job.deadline is None else job.deadline - first,
        )
        for job in jobs
    ]
    return JobsFile(tuple(shifted), tuple(excluded))


def _lines(path: Path) -> list[TableLine]:
    like = (
        "like job,user,submit,gpus,model,steps, and `stash schedule import` makes one from traces"
    )
    lines = read_table(path, "the jobs", ("job", "gpus"), like)
    if not lines:
        raise UserError(f"{path} has no job below its first line; {DESCRIBED}")
    for name in lines[0].cells:
        alike = [] if name in _COLUMNS else find_nearest(name, _COLUMNS, 1)
        if alike:
            raise UserError(f"{path}: there is no column {name}; did you mean {alike[0]}?")
    return lines


def _job(line: TableLine, name: str, cluster: LabCluster, matrix: RateMatrix) -> QueuedJob | str:
    """The job, or why it cannot run here."""
    size = line.gpus()
    model = line.text("model")
    if not model:
        raise line.mistake("model", "the job has none; give it one")
    largest = int(cluster.counts.max())
    if size > largest:
        return f"it asks for {size} GPUs at once, and no type of {cluster.name} has more than {largest}"
    job = QueuedJob(
        name=name,
        model=model,
        gpus=size,
        steps=0.0,
        submit=line.time_of("submit") or 0.0,
        user=line.text("user") or EVERYONE,
        weight=line.number_of("weight", 0, above=True) or 1.0,
        deadline=line.time_of("deadline"),
        done=line.number_of("done") or 0.0,
        on=line.text("on"),
    )
    if job.on and job.on not in cluster.types:
        raise line.mistake(
            "on", f"{job.on} is no GPU type of {cluster.name}, which has {', '.join(cluster.types)}"
        )
    if job.deadline is not None and job.deadline <= job.submit:
        raise line.mistake("deadline", "it is not after the job's submission")
    steps = line.number_of("steps", 0, above=True)
    if steps is None:
        raise line.mistake("steps", "nothing says how much work it is")
    if steps <= job.done:
        raise line.mistake(
            "done", f"{job.done:g} steps are done of {steps:g}: there is nothing left"
        )
    fastest = max((_rate(matrix, cluster, job, kind) for kind in cluster.types), default=0.0)
    if fastest <= 0:
        return f"nothing says how fast {model} on {size} GPUs is on {', '.join(cluster.types)}"
    if not (steps - job.done) / fastest <= LONGEST_SECONDS:
        raise line.mistake("steps", f"{steps:g} steps take more than a year at {fastest:g} steps/s")
    return replace(job, steps=steps)


def _rate(matrix: RateMatrix, cluster: LabCluster, job: QueuedJob, kind: str) -> float:
    few = cluster.fewest_nodes(kind, job.gpus)
    found = matrix.packed_rate(job.model, job.gpus, kind, few)
    return found.value if found is not None and few else 0.0


def jobs_text(jobs: Sequence[QueuedJob]) -> str:
    """Jobs as such a file, without what an import does not know: deadlines, weights, what is done and where."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["job", "user", "submit", "gpus", "model", "steps"])
    for job in jobs:
        writer.writerow(
            [job.name, job.user, f"{job.submit:.12g}", job.gpus, job.model, f"{job.steps:.12g}"]
        )
    return out.getvalue()
