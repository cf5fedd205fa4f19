"""``jobs.csv``: jobs as people write them down, one a line, and as ``stash schedule import`` writes them.

Columns: job, user, submit, gpus, model, steps; deadline, weight, done and on if there are
any. Times are numbers of seconds or texts like 3h, counted from the first submission. Knows the file, no policy.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from stash.core.errors import UserError
from stash.core.records.base import Number, PlainName, Record
from stash.core.units import parse_seconds
from stash.core.user_files import load_rows, quantity
from stash.schedule.matrix import RateMatrix
from stash.schedule.records import DESCRIBED, EVERYONE, HOUR, YEAR_HOURS, LabCluster, QueuedJob

YEAR = YEAR_HOURS * HOUR
LONGEST_SECONDS, LATEST_SECONDS = YEAR, 10 * YEAR
"""That a job takes at its fastest; between the first submission and the last. More is a mistake, and takes hours."""
_SECONDS = quantity(partial(parse_seconds, named="s"))


class _Row(Record):
    """The columns; what a job needs is an example of itself."""

    job: Annotated[str, Field(min_length=1, max_length=300, examples=["job1"])]
    gpus: Annotated[int, Field(ge=1, le=10**6, examples=["4"])]
    model: Annotated[str, Field(min_length=1, max_length=300, examples=["resnet50"])]
    steps: Annotated[Number, Field(gt=0, examples=["90000"])]
    user: Annotated[PlainName, Field(examples=["ada"])] = EVERYONE
    submit: Annotated[float, _SECONDS, Field(ge=0, le=1e12, examples=["90min"])] = 0.0
    deadline: Annotated[float | None, _SECONDS, Field(ge=0, le=1e12, examples=["3h"])] = None
    weight: Annotated[Number, Field(gt=0, examples=["2"])] = 1.0
    done: Annotated[Number, Field(ge=0, examples=["100"])] = 0.0
    on: Annotated[PlainName, Field(examples=["V100"])] = ""


@dataclass(frozen=True)
class JobsFile:
    """The jobs that can run, and what was left out and why."""

    jobs: tuple[QueuedJob, ...]
    excluded: tuple[tuple[str, str], ...] = ()


def read_jobs(path: Path, cluster: LabCluster, matrix: RateMatrix) -> JobsFile:
    """The jobs at ``path``; raises UserError with line and column of mistakes.

    A job whose model and GPUs have no rate on this cluster is left out and named.
    """
    jobs, excluded, seen = list[QueuedJob](), list[tuple[str, str]](), dict[str, int]()
    for line, row in load_rows(path, _Row, "the jobs", DESCRIBED, 500_000, 2**26):
        facts = row.model_dump()
        job = QueuedJob(facts.pop("job"), **facts)
        if job.on and job.on not in cluster.types:
            found = f"on: {job.on} is no GPU type of {cluster.name}, which has {', '.join(cluster.types)}"
        elif job.deadline is not None and job.deadline <= job.submit:
            found = "deadline: it is not after the job's submission"
        elif job.steps <= job.done:
            found = f"done: {job.done:g} steps are done of {job.steps:g}: there is nothing left"
        else:
            found = None
        if job.name in seen:
            found = f"job: {job.name} is also in line {seen[job.name]}; give each job its own name"
        if found is not None:
            raise UserError(f"{path}:{line}: {found}")
        seen[job.name] = line
        why = _explain_exclusion(job, cluster, matrix, f"{path}:{line}")
        if why is None:
            jobs.append(job)
        else:
            excluded.append((job.name, why))
    if not jobs:
        name, why = excluded[0]
        raise UserError(f"{path} has no job that can run on {cluster.name}; {name}: {why}")
    first = min(job.submit for job in jobs)
    last = max(jobs, key=lambda job: job.submit)
    if last.submit - first > LATEST_SECONDS:
        raise UserError(
            f"{path}:{seen[last.name]}: submit: it is more than ten years after the first submission"
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


def _explain_exclusion(
    job: QueuedJob, cluster: LabCluster, matrix: RateMatrix, where: str
) -> str | None:
    """Why a job cannot run here; ``None`` where it can. Raises UserError where it would take more than a year."""
    largest = int(cluster.counts.max())
    if job.gpus > largest:
        return f"it asks for {job.gpus} GPUs at once, and no type of {cluster.name} has more than {largest}"
    fewest = {kind: cluster.fewest_nodes(kind, job.gpus) for kind in cluster.types}
    known = [
        matrix.packed_rate(job.model, job.gpus, kind, few) for kind, few in fewest.items() if few
    ]
    fastest = max((rate.value for rate in known if rate is not None), default=0.0)
    if fastest <= 0:
        return (
            f"nothing says how fast {job.model} on {job.gpus} GPUs is on {', '.join(cluster.types)}"
        )
    if not (job.steps - job.done) / fastest <= LONGEST_SECONDS:
        raise UserError(
            f"{where}: steps: {job.steps:g} steps take more than a year at {fastest:g} steps/s"
        )
    return None


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
