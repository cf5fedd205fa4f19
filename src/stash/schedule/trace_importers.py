"""Jobs from other people's traces: Gavel, Alibaba 2020 and 2023, Philly, Helios, and ``sacct -P``.

Each reader turns one published schema into submissions: when, who, how many GPUs, how long on which type. Which model
such a job is, no trace but Gavel's says: a named, seeded rule draws one. Knows texts, and no policy.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from stash.core.errors import UserError
from stash.core.files import parse_json
from stash.core.user_files import text_of
from stash.schedule.matrix import PACKED, RateMatrix
from stash.schedule.records import QueuedJob

_MAX_BYTES = 1 << 30
_SEE = "docs/schedule.md says what the importers read"


@dataclass(frozen=True)
class TraceJob:
    """One job of a trace; what it does not say is ``None``."""

    name: str
    user: str
    submit: float
    gpus: int
    seconds: float | None = None
    gpu: str | None = None
    model: str | None = None
    steps: float | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class ReadTrace:
    """Jobs of a trace, in order of submission, and how many lines were left out for which reason."""

    jobs: tuple[QueuedJob, ...]
    left_out: Mapping[str, int]


class _Skipped(Exception):  # noqa: N818  # no error: a line that is no training job
    """Why a line is left out."""


def gavel(text: str, path: Path) -> Iterator[TraceJob | str]:
    """Tab-separated: ten columns of the last version, or seven of the one before."""
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.split("\t")
        if len(cells) not in (7, 10):
            raise UserError(
                f"{path}:{number}: {len(cells)} columns; Gavel's traces have seven or ten, parted by tabs"
            )
        if len(cells) == 10:
            model, steps, gpus, weight, submit = cells[0], cells[5], cells[6], cells[7], cells[9]
        else:
            model, steps, submit, gpus, weight = cells[0], cells[4], cells[5], cells[6], "1"
        where = f"{path}:{number}"
        yield TraceJob(
            f"job-{number - 1:05d}", "everyone", _number(submit, where), int(_number(gpus, where)), model=model,
            steps=_number(steps, where), weight=_number(weight, where),
        )  # fmt: skip


def alibaba_2020(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``pai_task_table.csv`` of cluster-trace-gpu-v2020: no head; plan_gpu is a percentage of one GPU.

    Columns: job_name, task_name, inst_num, status, start_time, end_time, plan_cpu, plan_mem, plan_gpu, gpu_type. The
    gang is all instances of a task; a job has no submission but its start.
    """
    rows = list(csv.reader(io.StringIO(text)))
    if rows and rows[0] and rows[0][0] == "job_name":
        rows = rows[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != 10:
            raise UserError(f"{path}:{number}: {len(row)} columns; pai_task_table.csv has ten")
        name, task, instances, status, start, end, _, _, percent, kind = row
        if status != "Terminated":
            yield f"status {status or 'missing'}"
        elif not start or not end or not percent or not instances:
            yield "missing times or GPUs"
        else:
            where = f"{path}:{number}"
            begin, gpus = _number(start, where), _number(percent, where) / 100 * _number(instances, where)
            yield TraceJob(
                f"{name}/{task}",
                "everyone",
                begin,
                max(1, math.ceil(gpus)),
                _number(end, where) - begin,
                kind or None,
            )


def alibaba_2023(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``openb_pod_list*.csv`` of cluster-trace-gpu-v2023: num_gpu, gpu_spec, creation_time, deletion_time, …"""
    for number, row in enumerate(_table(text, path, ("name", "num_gpu", "creation_time", "deletion_time")), 2):
        where = f"{path}:{number}"
        gpus = _number(row["num_gpu"] or "0", where)
        start = row.get("scheduled_time") or row["creation_time"]
        if gpus < 1:
            yield "no GPUs"
        elif not row["deletion_time"] or not start:
            yield "missing times"
        else:
            kinds = (row.get("gpu_spec") or "").split("|")
            yield TraceJob(
                row["name"],
                row.get("qos") or "everyone",
                _number(row["creation_time"], where),
                int(gpus),
                _number(row["deletion_time"], where) - _number(start, where),
                kinds[0] or None,
            )


def philly(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``cluster_job_log`` of philly-traces: JSON, attempts with times and machines; the work is all attempts'."""
    try:
        found: Any = parse_json(text)
    except ValueError as error:
        raise UserError(f"{path} is not the JSON of Philly's cluster_job_log: {error}; {_SEE}") from None
    if not isinstance(found, list):
        raise UserError(f"{path} is not a list of jobs as Philly's cluster_job_log; {_SEE}")
    for number, job in enumerate(found):
        where = f"{path}, job {number}"
        if not isinstance(job, dict) or not {"jobid", "attempts", "submitted_time"} <= job.keys():
            raise UserError(f"{where} lacks jobid, attempts or submitted_time; {_SEE}")
        seconds, gpus = 0.0, 0
        for attempt in job["attempts"]:
            start, end = _moment(attempt.get("start_time"), where), _moment(attempt.get("end_time"), where)
            machines = attempt.get("detail") or attempt.get("details") or []
            gpus = max(gpus, sum(len(machine.get("gpus", ())) for machine in machines))
            if start is not None and end is not None:
                seconds += end - start
        submit = _moment(job["submitted_time"], where)
        if submit is None or seconds <= 0:
            yield "missing times"
        elif not gpus:
            yield "no GPUs"
        else:
            yield TraceJob(
                str(job["jobid"]), str(job.get("vc") or job.get("user") or "everyone"), submit, gpus, seconds
            )


def helios(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``cluster_log.csv`` of HeliosData: job_id, user, vc, gpu_num, submit_time, start_time, end_time, duration, …"""
    for number, row in enumerate(_table(text, path, ("job_id", "gpu_num", "submit_time", "duration")), 2):
        where = f"{path}:{number}"
        submit = _moment(row["submit_time"], where)
        gpus = _number(row["gpu_num"] or "0", where)
        if gpus < 1:
            yield "no GPUs"
        elif submit is None or not row["duration"] or _number(row["duration"], where) <= 0:
            yield "missing times"
        else:
            yield TraceJob(row["job_id"], row.get("vc") or row.get("user") or "everyone", submit, int(gpus),
                             _number(row["duration"], where))  # fmt: skip


_TRES = re.compile(r"gres/gpu(?::([^=,]+))?=(\d+)")


def sacct(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``sacct -P --format=JobID,User,Submit,ElapsedRaw,AllocTRES`` (or Elapsed, ReqTRES), without steps of jobs."""
    needed = ("JobID", "User", "Submit")
    for number, row in enumerate(_table(text, path, needed, "|"), 2):
        where = f"{path}:{number}"
        if "." in row["JobID"]:
            continue
        tres = _TRES.findall(row.get("AllocTRES") or row.get("ReqTRES") or "")
        typed = [(kind, int(count)) for kind, count in tres if kind]
        gpus = sum(count for _, count in typed) or sum(int(count) for _, count in tres)
        submit, seconds = _moment(row["Submit"], where), _elapsed(row, where)
        if not gpus:
            yield "no GPUs"
        elif submit is None or not seconds:
            yield "missing times"
        else:
            kind = typed[0][0] if typed else None
            yield TraceJob(row["JobID"], row["User"] or "everyone", submit, gpus, seconds, kind)


def _elapsed(row: Mapping[str, str], where: str) -> float | None:
    if row.get("ElapsedRaw"):
        return _number(row["ElapsedRaw"], where)
    text = row.get("Elapsed", "")
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24.0 + hours) * 60 + minutes) * 60 + seconds


FORMATS: Mapping[str, Callable[[str, Path], Iterator[TraceJob | str]]] = {
    "gavel": gavel, "alibaba-2020": alibaba_2020, "alibaba-2023": alibaba_2023, "philly": philly, "helios": helios,
    "sacct": sacct,
}  # fmt: skip


MODEL_RULES: Mapping[str, Callable[[Sequence[str], np.random.Generator], str]] = {
    "uniform": lambda models, draw: models[int(draw.integers(len(models)))],
    "first": lambda models, draw: models[0],
}
"""How a job without a model gets one of those that run on as many GPUs: drawn, all alike, or the matrix's first."""


def read_trace(
    path: Path, kind: str, matrix: RateMatrix, duration_on: str | None = None, rule: str = "uniform", seed: int = 0
) -> ReadTrace:
    """The jobs of a trace, each with a model and steps; raises UserError for a file that is not of this kind.

    Seconds of a trace become steps by the rate of the job's model on the type where it ran, or where that is not said
    on ``duration_on``; types are the matrix's, in capital letters or small ones.
    """
    text = text_of(path, "the trace", _SEE, _MAX_BYTES)
    draw, left_out, found = np.random.default_rng(seed), dict[str, int](), list[TraceJob]()
    for each in FORMATS[kind](text, path):
        if isinstance(each, str):
            left_out[each] = left_out.get(each, 0) + 1
        else:
            found.append(each)
    jobs: list[QueuedJob] = []
    for one in sorted(found, key=lambda each: each.submit):
        try:
            jobs.append(_as_job(one, matrix, duration_on, rule, draw))
        except _Skipped as why:
            left_out[str(why)] = left_out.get(str(why), 0) + 1
    if not jobs:
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.items()) or "it is empty"
        raise UserError(f"{path} has no job that can be taken over: {reasons}")
    return ReadTrace(tuple(jobs), left_out)


def _as_job(
    one: TraceJob, matrix: RateMatrix, duration_on: str | None, rule: str, draw: np.random.Generator
) -> QueuedJob:
    named = {kind.lower(): kind for _, _, kind, _ in matrix.rates}
    where = one.gpu or duration_on
    kind = None if where is None else named.get(where.lower())
    if where is not None and kind is None and one.steps is None:
        raise _Skipped(f"on {where}, which is no type of the matrix")

    def rate(model: str) -> float:
        known = None if kind is None else matrix.rates.get((model, one.gpus, kind, PACKED))
        return 0.0 if known is None else known.value

    model = one.model
    if model is None:
        models = [model for model, size in matrix.models if size == one.gpus and rate(model) > 0]
        if not models:
            raise _Skipped(f"with {one.gpus} GPUs, of which the matrix has no model on {kind or 'any type'}")
        model = MODEL_RULES[rule](models, draw)
    steps = one.steps
    if steps is None:
        if one.seconds is None or one.seconds <= 0 or not rate(model):
            raise _Skipped("that ran no time, or where no rate is known")
        steps = one.seconds * rate(model)
    if steps <= 0:
        raise _Skipped("without steps")
    return QueuedJob(one.name, model, one.gpus, steps, one.submit, one.user, one.weight)


def _table(text: str, path: Path, needed: tuple[str, ...], delimiter: str = ",") -> Iterator[dict[str, str]]:
    rows = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    missing = [name for name in needed if name not in (rows.fieldnames or ())]
    if missing:
        raise UserError(f"{path} has no column {missing[0]}; its first line needs {', '.join(needed)}; {_SEE}")
    for row in rows:
        yield {
            name: (value or "").strip() for name, value in row.items() if name is not None and isinstance(value, str)
        }


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{where}: {text[:40]!r} is no number of 0 or more; {_SEE}")
    return value


def _moment(text: Any, where: str) -> float | None:
    """Seconds since 1970 of a date, in UTC unless it says otherwise; ``None`` where there is none."""
    if text in (None, "", "None", "Unknown"):
        return None
    cleaned = re.sub(r" [A-Z]{3,4}$", "", str(text))  # Philly's PST and PDT: differences are what counts
    try:
        moment = datetime.fromisoformat(cleaned)
        # Not by the zone of whoever reads it: an hour in which clocks are set there would be two hours of work.
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except ValueError:
        raise UserError(f"{where}: {str(text)[:40]!r} is no time; {_SEE}") from None
