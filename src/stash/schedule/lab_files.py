"""Files of schedules, as people write them and as commands do: ``jobs.csv``, ``matrix.csv``, ``cluster.yaml``.

Jobs have the columns job, user, submit, gpus, model, steps; deadline, weight, done and on if there are any. Times are
numbers of seconds or texts like 3h, counted from the first submission. Rates have model, gpus, gpu, placement (packed,
spread, or a number of nodes), steps_per_second; low, high, origin and restart if known. What an hour of a cluster
costs is a price, or what was paid over the years of use with power and staff; nothing said is nothing known.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from stash.api import ByteRate, Dollars, Ownership, PowerPrice, Purchase, Watts
from stash.core.errors import UserError
from stash.core.records.base import Number, PlainName, Record
from stash.core.units import parse_seconds
from stash.core.user_files import load, load_rows, quantity
from stash.schedule.matrix import PACKED, SPREAD, RateKey, RateMatrix, RateOrigin, StepRate
from stash.schedule.records import (
    DESCRIBED,
    EVERYONE,
    HOUR,
    YEAR_HOURS,
    ClusterNode,
    Costs,
    LabCluster,
    QueuedJob,
)

YEAR = YEAR_HOURS * HOUR
LONGEST_SECONDS = YEAR
LATEST_SECONDS = 10 * YEAR
"""That a job takes at its fastest; between the first submission and the last. More is a mistake, and takes hours."""
_SECONDS = quantity(partial(parse_seconds, named="s"))


class _JobRow(Record):
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
    jobs = list[QueuedJob]()
    excluded = list[tuple[str, str]]()
    seen = dict[str, int]()
    for line, row in load_rows(path, _JobRow, "the jobs", DESCRIBED, 500_000, 2**26):
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


# Rates

_PLACEMENTS = {"packed": PACKED, "spread": SPREAD}


def _check_placement(text: str) -> str:
    if text not in _PLACEMENTS and not (text.isdecimal() and int(text)):
        raise ValueError("is not packed, spread or a number of nodes")
    return text


_End = Annotated[Number | None, Field(ge=0, examples=["9.1"])]


class _RateRow(Record):
    model: Annotated[str, Field(min_length=1, max_length=300, examples=["resnet50"])]
    gpus: Annotated[int, Field(ge=1, le=10**6, examples=["4"])]
    gpu: Annotated[str, Field(min_length=1, max_length=300, examples=["V100"])]
    placement: Annotated[str, AfterValidator(_check_placement), Field(examples=["packed"])]
    steps_per_second: Annotated[Number, Field(ge=0, examples=["9.45"])]
    """0: it does not run there; without a line it is unknown."""
    low: _End = None
    high: _End = None
    origin: Annotated[RateOrigin, Field(examples=["measured"])] = "given"
    restart: Annotated[Number | None, Field(ge=0, examples=["45"])] = None


def read_matrix(path: Path) -> RateMatrix:
    """The matrix at ``path``; raises UserError with line and column of mistakes."""
    rates: dict[RateKey, StepRate] = {}
    restart: dict[str, float] = {}
    for line, row in load_rows(path, _RateRow, "the throughputs", DESCRIBED, 500_000, 2**26):
        nodes = _PLACEMENTS.get(row.placement)
        key = (row.model, row.gpus, row.gpu, int(row.placement) if nodes is None else nodes)
        if key in rates:
            raise UserError(
                f"{path}:{line}: model: {row.model} on {row.gpus} {row.gpu}, {row.placement}, is given twice"
            )
        low = row.low
        value = row.steps_per_second
        high = row.high
        if low is not None and high is not None and not low <= value <= high:
            raise UserError(
                f"{path}:{line}: steps_per_second: {value:g} is not between low and high, {low:g} and {high:g}"
            )
        rates[key] = StepRate(value, low, high, row.origin)
        if row.restart is not None:
            restart[row.model] = row.restart
    if all(rate.value == 0 for rate in rates.values()):
        raise UserError(f"{path} has no rate above 0: nothing runs anywhere")
    return RateMatrix(rates, restart)


def matrix_text(matrix: RateMatrix) -> str:
    """The matrix as such a file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_RateRow.model_fields)
    words = {number: word for word, number in _PLACEMENTS.items()}
    for (model, gpus, gpu, nodes), rate in matrix.rates.items():
        ends = [
            "" if end is None else f"{end:.6g}"
            for end in (rate.low, rate.high, matrix.restart.get(model))
        ]
        where = words.get(nodes, nodes)
        writer.writerow(
            [model, gpus, gpu, where, f"{rate.value:.6g}", *ends[:2], rate.origin, ends[2]]
        )
    return out.getvalue()


# Clusters

_MAX_NODES = 100_000


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Machines(_Entry):
    gpu: Annotated[str, Field(min_length=1, max_length=100)]
    gpus: Annotated[int, Field(ge=1, le=1024)]
    count: Annotated[int, Field(ge=1, le=_MAX_NODES)] = 1
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    cores: Annotated[float | None, Field(gt=0, le=4096)] = None
    network: ByteRate = None
    price: Dollars = None
    purchase: Purchase = None
    years: Annotated[float | None, Field(gt=0, le=50)] = None
    power: Watts = None


class ClusterFile(_Entry):
    """The file as it is written."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = "the cluster"
    nodes: Annotated[tuple[_Machines, ...], Field(min_length=1, max_length=10_000)]
    power_price: PowerPrice = None
    staff: Annotated[float | None, Field(ge=0, le=1e9)] = None


def read_cluster(path: Path) -> LabCluster:
    """The cluster at ``path``; raises UserError."""
    file = load(path, ClusterFile, "the cluster", DESCRIBED)
    nodes: list[ClusterNode] = []
    for number, entry in enumerate(file.content.nodes):
        if entry.price is not None and entry.purchase is not None:
            raise file.mistake(
                ("nodes", number, "purchase"),
                "a machine has a price an hour, or was bought; not both",
            )
        if entry.purchase is not None and entry.years is None:
            raise file.mistake(("nodes", number, "purchase"), "over how many years? give years: 5")
        if entry.power is not None and file.content.power_price is None:
            raise file.mistake(
                ("nodes", number, "power"),
                "what does it cost? give power_price: $0.15/kWh above nodes",
            )
        stem = entry.name or f"{entry.gpu.lower()}-{number + 1}"
        names = (
            [stem] if entry.count == 1 else [f"{stem}-{each + 1}" for each in range(entry.count)]
        )
        nodes += [
            ClusterNode(name, entry.gpu, entry.gpus, entry.cores, entry.network) for name in names
        ]
    names = [node.name for node in nodes]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise file.mistake(
            ("nodes",),
            f"two machines are called {twice}; give each line of nodes a name of its own",
        )
    return LabCluster(tuple(nodes), _costs(file.content), file.content.name)


def _costs(content: ClusterFile) -> Costs:
    """Machines and power by their own type; staff over all GPUs alike."""
    dollars: dict[str, float] = {}
    gpus: dict[str, int] = {}
    known = True
    for entry in content.nodes:
        if entry.price is None and entry.purchase is None:
            known = False
            continue
        owned = Ownership(
            entry.purchase or 0.0, entry.years or 1.0, 1.0, entry.power, content.power_price
        )
        hourly = (entry.price or 0.0) + owned.dollars_per_hour
        dollars[entry.gpu] = dollars.get(entry.gpu, 0.0) + entry.count * hourly
        gpus[entry.gpu] = gpus.get(entry.gpu, 0) + entry.count * entry.gpus
    staff = (content.staff or 0.0) / YEAR_HOURS
    everything = sum(entry.count * entry.gpus for entry in content.nodes)
    by_type = {kind: each / gpus[kind] + staff / everything for kind, each in dollars.items()}
    return Costs(by_type, sum(dollars.values()) + staff if known else None)
