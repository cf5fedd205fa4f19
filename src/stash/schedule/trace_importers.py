"""Jobs of Gavel's traces and of ``sacct -P``.

Each reader turns one published schema into submissions: when, who, how many GPUs, how long on which type. Which model
such a job is, Slurm does not say: one is drawn. Knows texts, and no policy.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from stash.core.errors import UserError
from stash.core.user_files import text_of
from stash.schedule.matrix import PACKED, RateMatrix
from stash.schedule.records import QueuedJob

_MAX_BYTES = 1 << 30
_SEED = 17
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
            f"job-{number - 1:05d}", "everyone", read_number(submit, where), int(read_number(gpus, where)),
            model=model, steps=read_number(steps, where), weight=read_number(weight, where),
        )  # fmt: skip


_TRES = re.compile(r"gres/gpu(?::([^=,]+))?=(\d+)")


def sacct(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``sacct -P --format=JobID,User,Submit,ElapsedRaw,AllocTRES`` (or Elapsed, ReqTRES), without steps of jobs."""
    needed = ("JobID", "User", "Submit")
    for number, row in enumerate(read_table(text, path, needed, "|"), 2):
        where = f"{path}:{number}"
        if "." in row["JobID"]:
            continue
        tres = _TRES.findall(row.get("AllocTRES") or row.get("ReqTRES") or "")
        typed = [(kind, int(count)) for kind, count in tres if kind]
        gpus = sum(count for _, count in typed) or sum(int(count) for _, count in tres)
        submit, seconds = read_moment(row["Submit"], where), _elapsed(row, where)
        if not gpus:
            yield "no GPUs"
        elif submit is None or not seconds:
            yield "missing times"
        else:
            kind = typed[0][0] if typed else None
            yield TraceJob(row["JobID"], row["User"] or "everyone", submit, gpus, seconds, kind)


def _elapsed(row: Mapping[str, str], where: str) -> float | None:
    if row.get("ElapsedRaw"):
        return read_number(row["ElapsedRaw"], where)
    text = row.get("Elapsed", "")
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24.0 + hours) * 60 + minutes) * 60 + seconds


TraceReader = Callable[[str, Path], Iterator[TraceJob | str]]
FORMATS: Mapping[str, TraceReader] = {"gavel": gavel, "sacct": sacct}


def read_trace(path: Path, reader: TraceReader, matrix: RateMatrix, duration_on: str | None = None) -> ReadTrace:
    """The jobs of a trace, each with a model and steps; raises UserError for a file that is not of this kind.

    Seconds of a trace become steps by the rate of the job's model on the type where it ran, or where that is not said
    on ``duration_on``; types are the matrix's, in capital letters or small ones. A job without a model gets one of
    those that run on as many GPUs, drawn.
    """
    text = text_of(path, "the trace", _SEE, _MAX_BYTES)
    draw, left_out, found = np.random.default_rng(_SEED), dict[str, int](), list[TraceJob]()
    for each in reader(text, path):
        if isinstance(each, str):
            left_out[each] = left_out.get(each, 0) + 1
        else:
            found.append(each)
    jobs: list[QueuedJob] = []
    for one in sorted(found, key=lambda each: each.submit):
        try:
            jobs.append(_as_job(one, matrix, duration_on, draw))
        except _Skipped as why:
            left_out[str(why)] = left_out.get(str(why), 0) + 1
    if not jobs:
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.items()) or "it is empty"
        raise UserError(f"{path} has no job that can be taken over: {reasons}")
    return ReadTrace(tuple(jobs), left_out)


def _as_job(one: TraceJob, matrix: RateMatrix, duration_on: str | None, draw: np.random.Generator) -> QueuedJob:
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
        model = models[int(draw.integers(len(models)))]
    steps = one.steps
    if steps is None:
        if one.seconds is None or one.seconds <= 0 or not rate(model):
            raise _Skipped("that ran no time, or where no rate is known")
        steps = one.seconds * rate(model)
    if steps <= 0:
        raise _Skipped("without steps")
    return QueuedJob(one.name, model, one.gpus, steps, one.submit, one.user, one.weight)


def read_table(text: str, path: Path, needed: tuple[str, ...], delimiter: str = ",") -> Iterator[dict[str, str]]:
    rows = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    missing = [name for name in needed if name not in (rows.fieldnames or ())]
    if missing:
        raise UserError(f"{path} has no column {missing[0]}; its first line needs {', '.join(needed)}; {_SEE}")
    for row in rows:
        yield {
            name: (value or "").strip() for name, value in row.items() if name is not None and isinstance(value, str)
        }


def read_number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{where}: {text[:40]!r} is no number of 0 or more; {_SEE}")
    return value


def read_moment(text: Any, where: str) -> float | None:
    """Seconds since 1970 of a date, in UTC unless it says otherwise; ``None`` where there is none."""
    if text in (None, "", "None", "Unknown"):
        return None
    try:
        moment = datetime.fromisoformat(str(text))
        # Not by the zone of whoever reads it: an hour in which clocks are set there would be two hours of work.
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except ValueError:
        raise UserError(f"{where}: {str(text)[:40]!r} is no time; {_SEE}") from None
