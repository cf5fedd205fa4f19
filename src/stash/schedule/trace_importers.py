"""Jobs of ``sacct -P``: when, who, how many GPUs, how long on which type.

Which model such a job is, Slurm does not say: one is drawn. Knows texts, and no policy.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from stash.core.errors import UserError
from stash.core.user_files import text_of
from stash.schedule.matrix import PACKED, RateMatrix
from stash.schedule.records import EVERYONE, QueuedJob

_MAX_BYTES = 1 << 30
_SEED = 17
_SEE = "docs/how-to/schedule.md says what the importer reads"
_NEEDED = ("JobID", "User", "Submit", "ElapsedRaw", "AllocTRES")
_TRES = re.compile(r"gres/gpu(?::([^=,]+))?=(\d+)")


@dataclass(frozen=True)
class ReadTrace:
    """Jobs of a trace, in order of submission, and how many lines were left out for which reason."""

    jobs: tuple[QueuedJob, ...]
    left_out: Mapping[str, int]


class _Skipped(Exception):  # noqa: N818  # no error: a line that is no training job
    """Why a line is left out."""


def read_trace(path: Path, matrix: RateMatrix, duration_on: str | None = None) -> ReadTrace:
    """The jobs of ``sacct -P --format=JobID,User,Submit,ElapsedRaw,AllocTRES``.

    Seconds become steps by the rate of the job's model on the type where it ran, or where that is not said on
    ``duration_on``; types are the matrix's, in capital letters or small ones. A job gets one of the models that run
    on as many GPUs, drawn. Raises UserError for a file that is not of this kind.
    """
    lines = csv.DictReader(io.StringIO(text_of(path, "the trace", _SEE, _MAX_BYTES)), delimiter="|")
    missing = [name for name in _NEEDED if name not in (lines.fieldnames or ())]
    if missing:
        raise UserError(
            f"{path} has no column {missing[0]}; its first line needs {', '.join(_NEEDED)}; {_SEE}"
        )
    draw = np.random.default_rng(_SEED)
    left_out = Counter[str]()
    jobs = list[QueuedJob]()
    rows = [
        (number, {name: str(value or "").strip() for name, value in row.items()})
        for number, row in enumerate(lines, 2)
    ]
    for number, row in sorted(rows, key=lambda each: each[1]["Submit"]):
        if "." in row["JobID"]:
            continue
        try:
            jobs.append(_job(row, f"{path}:{number}", matrix, duration_on, draw))
        except _Skipped as why:
            left_out[str(why)] += 1
    if not jobs:
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.items()) or "it is empty"
        raise UserError(f"{path} has no job that can be taken over: {reasons}")
    return ReadTrace(tuple(sorted(jobs, key=lambda each: each.submit)), left_out)


def _job(
    row: Mapping[str, str],
    where: str,
    matrix: RateMatrix,
    duration_on: str | None,
    draw: np.random.Generator,
) -> QueuedJob:
    tres = _TRES.findall(row["AllocTRES"])
    typed = [(kind, int(count)) for kind, count in tres if kind]
    gpus = sum(count for _, count in typed) or sum(int(count) for _, count in tres)
    text = row["ElapsedRaw"]
    try:
        value = float(text or "0")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{where}: {text[:40]!r} is no number of 0 or more; {_SEE}")
    submit = read_moment(row["Submit"], where)
    seconds = value
    if not gpus:
        raise _Skipped("no GPUs")
    if submit is None or not seconds:
        raise _Skipped("missing times")
    on = typed[0][0] if typed else duration_on
    kind = (
        None if on is None else {gpu.lower(): gpu for _, _, gpu, _ in matrix.rates}.get(on.lower())
    )
    if on is not None and kind is None:
        raise _Skipped(f"on {on}, which is no type of the matrix")
    rates = {
        model: rate.value
        for (model, size, gpu, nodes), rate in matrix.rates.items()
        if (size, gpu, nodes) == (gpus, kind, PACKED) and rate.value > 0
    }
    if not rates:
        raise _Skipped(
            f"with {gpus} GPUs, of which the matrix has no model on {kind or 'any type'}"
        )
    model = [*rates][int(draw.integers(len(rates)))]
    return QueuedJob(
        row["JobID"], model, gpus, seconds * rates[model], submit, row["User"] or EVERYONE
    )


def read_moment(text: str, where: str) -> float | None:
    """Seconds since 1970 of a date, in UTC unless it says otherwise; ``None`` where there is none."""
    if text in ("", "None", "Unknown"):
        return None
    try:
        moment = datetime.fromisoformat(text)
        # Not by the zone of whoever reads it: an hour in which clocks are set there would be two hours of work.
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except ValueError:
        raise UserError(f"{where}: {text[:40]!r} is no time; {_SEE}") from None
