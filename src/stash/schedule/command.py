"""``stash schedule``: throughputs of profiles, jobs of traces, simulations, advice for what runs, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from stash.api import find_profile, load_catalog, page_file, print_answer
from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.output_files import output_file, write_output
from stash.core.printable import print_written
from stash.core.records.base import SUFFIX
from stash.core.units import format_count
from stash.schedule.advice_now import advice_document, advice_page, advise_now
from stash.schedule.allocation import POLICIES
from stash.schedule.economics import CloudPrice, LeavingRules, equilibrium
from stash.schedule.lab_files import (
    JobsFile,
    jobs_text,
    matrix_text,
    read_cluster,
    read_jobs,
    read_matrix,
)
from stash.schedule.matrix import RateMatrix
from stash.schedule.metrics import compare_policies
from stash.schedule.page import (
    document,
    economics_document,
    economics_page,
    matrix_document,
    matrix_page,
    page,
)
from stash.schedule.profile_rates import rates_of
from stash.schedule.records import LabCluster
from stash.schedule.simulate import simulate as run_course
from stash.schedule.slurm_requests import apply_requests, make_requests, match_queue
from stash.schedule.trace_importers import read_trace
from stash.ui.commands import App, note
from stash.ui.options import Options, argument, flag, json_flag, option

_CLUSTER = "Read machines and their cost from this file (docs/schedule.md)."
_THROUGHPUTS = "Use this matrix of `stash schedule throughputs` (default matrix.csv)."
_JOBS = "A table of jobs (docs/schedule.md), as `stash schedule import` writes it."


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise UnitError(f"there is no policy {unknown[0]}; there are {', '.join(POLICIES)}")
    return names


@dataclass(frozen=True, kw_only=True)
class _ClusterOptions(Options):
    cluster: Path = option("FILE", _CLUSTER, Path, default=...)
    json: bool = json_flag()


@dataclass(frozen=True, kw_only=True)
class ThroughputsOptions(_ClusterOptions):
    """One call of ``stash schedule throughputs``."""

    profiles: tuple[str, ...] = argument("PROFILES", "Profiles, or folders of them.", many=True)
    output: Path | None = option(
        "FILE", "Write the matrix to this file (default: print it).", Path, "--output", "-o"
    )


def throughputs(options: ThroughputsOptions) -> None:
    """Measure or predict each job's speed on every GPU type.

    Examples:
      stash schedule throughputs runs/ --cluster cluster.yaml -o matrix.csv
    """
    target = None if options.output is None else output_file(options.output, "matrix", ".csv")
    cluster = read_cluster(options.cluster)
    profiles = [(find_profile(word, None)[0], word) for word in _profile_files(options.profiles)]
    found = rates_of(profiles, cluster)
    if target is not None:
        write_output(target, matrix_text(found.matrix))
    print_answer(matrix_document(found) if options.json else matrix_page(found, cluster))
    if target is not None:
        print_written(target, options.json)


def _profile_files(words: Sequence[str]) -> list[str]:
    """Files as they are, folders as the profiles in them, oldest names first; raises UserError for an empty one."""
    found: list[str] = []
    for word in words:
        if Path(word).is_dir():
            inside = sorted(str(path) for path in Path(word).rglob(f"*{SUFFIX}"))
            if not inside:
                raise UserError(f"{word} has no *{SUFFIX} in it; `stash profile` makes one")
            found += inside
        else:
            found.append(word)
    return found


@dataclass(frozen=True, kw_only=True)
class TraceImportOptions(Options):
    """One call of ``stash schedule import``."""

    trace: Path = argument("TRACE", "The output of `sacct -P`.", Path)
    throughputs: Path = option("FILE", _THROUGHPUTS, Path, default=...)
    duration_on: str | None = option("TYPE", "Name the GPU of the trace's times, if missing.")
    output: Path | None = option(
        "FILE", "Write the jobs to this file (default: print them).", Path, "--output", "-o"
    )


def import_trace(options: TraceImportOptions) -> None:
    """Turn a Slurm trace into a table of jobs.

    Examples:
      stash schedule import slurm.txt --throughputs matrix.csv --duration-on V100 -o jobs.csv
    """
    target = (
        None if options.output is None else output_file(options.output, options.trace.stem, ".csv")
    )
    matrix = read_matrix(options.throughputs)
    found = read_trace(options.trace, matrix, options.duration_on)
    text = jobs_text(found.jobs)
    if target is None:
        print(text, end="")
    else:
        write_output(target, text)
        print_written(target, False, f" ({len(found.jobs):,} jobs)")
    for why, count in found.left_out.items():
        note(f"left out {count:,} {why}")


@dataclass(frozen=True, kw_only=True)
class _QueueOptions(_ClusterOptions):
    """What every command about jobs takes."""

    jobs: Path = argument("JOBS.csv", _JOBS, Path)
    throughputs: Path | None = option("FILE", _THROUGHPUTS, Path)

    def read(self) -> tuple[LabCluster, RateMatrix, JobsFile]:
        """The three files; raises UserError."""
        cluster = read_cluster(self.cluster)
        path = self.throughputs or self.jobs.parent / "matrix.csv"
        if self.throughputs is None and not path.exists():
            raise UserError(
                f"--throughputs is missing, and there is no {path}; `stash schedule throughputs RUNS --cluster "
                f"{self.cluster} -o {path}` makes one"
            )
        matrix = read_matrix(path)
        return cluster, matrix, read_jobs(self.jobs, cluster, matrix)


@dataclass(frozen=True, kw_only=True)
class ScheduleSimulateOptions(_QueueOptions):
    """One call of ``stash schedule simulate``."""

    policy: tuple[str, ...] = option(
        "NAME,…",
        "Compare these policies of docs/schedule.md.",
        _policies,
        default="fifo-aware,srtf,max-min",
    )
    output: Path | None = option("FILE", "Write a page (.html or .md).", Path, "--output", "-o")


def simulate(options: ScheduleSimulateOptions) -> None:
    """Simulate jobs on a cluster under several policies.

    Examples:
      stash schedule simulate jobs.csv --cluster cluster.yaml --policy fifo-aware,srtf
    """
    target = (
        None if options.output is None else output_file(options.output, "", options.output.suffix)
    )
    cluster, matrix, read = options.read()
    policies = [POLICIES[name] for name in options.policy]
    found = compare_policies(read, cluster, matrix, policies)
    shown = page(found)
    if target is not None:
        write_output(target, page_file(shown, target.suffix))
    print_answer(document(found) if options.json else shown)
    if target is not None:
        print_written(target, options.json)


def _policy(text: str) -> str:
    """One policy that what runs can follow."""
    name, *others = _policies(text)
    if others:
        raise UnitError("only one can be followed here")
    return name


@dataclass(frozen=True, kw_only=True)
class _PolicyOptions(_QueueOptions):
    policy: str = option(
        "NAME,…", "Use this policy of docs/schedule.md.", _policy, default="max-min"
    )


@dataclass(frozen=True, kw_only=True)
class QueueAdviceOptions(_PolicyOptions):
    """One call of ``stash schedule advise``."""

    engine: Literal["slurm"] | None = option(
        "slurm", "Print requests to Slurm.", parsers.one_of(("slurm",))
    )
    apply: bool = flag("Have Slurm do it, for jobs that it may requeue.")

    def check(self) -> None:
        if self.apply and self.engine != "slurm":
            raise UserError("--apply is for --engine slurm; give both")


def advise(options: QueueAdviceOptions) -> None:
    """Advise what should run where now.

    Examples:
      stash schedule advise jobs.csv --cluster cluster.yaml --engine slurm
    """
    cluster, matrix, read = options.read()
    jobs = read.jobs
    held = match_queue(jobs, cluster) if options.engine == "slurm" else None
    if held is not None:
        others = cluster.gpus - held.cluster.gpus
        cluster = held.cluster
        if others:
            note(f"jobs that are not in {options.jobs} hold {format_count(others, 'GPU')}")
        jobs = held.jobs
    found = advise_now(jobs, cluster, matrix, options.policy, read.excluded)
    asked = () if held is None else make_requests(found, held)
    print_answer(advice_document(found, asked) if options.json else advice_page(found, asked))
    if options.apply:
        for line in apply_requests(asked):
            note(line)


@dataclass(frozen=True, kw_only=True)
class EconomicsOptions(_PolicyOptions):
    """One call of ``stash schedule economics``."""

    cloud: str = option(
        "NAME", "Users could rent this instance type, like p3.2xlarge.", default=...
    )
    waiting: float = option(
        "PRICE", "An hour of waiting costs its user this.", parsers.price, default="$5/h"
    )


def economics(options: EconomicsOptions) -> None:
    """Estimate whether your own cluster pays compared with the cloud.

    Examples:
      stash schedule economics jobs.csv --cluster cluster.yaml --cloud p3.2xlarge
    """
    cluster, matrix, read = options.read()
    if cluster.costs.hourly is None:
        raise UserError(
            f"{options.cluster} does not say what all of its machines cost; give each a price, or purchase and years"
        )
    # The price of the instance; raises UserError for one that has no GPU, no price, or no rate in
    # the matrix.
    known = load_catalog()
    instance = known.instance(options.cloud)
    offers = [offer for offer in known.query() if offer.instance == instance]
    if not instance.gpu_count or not instance.gpu_model:
        raise UserError(f"--cloud {options.cloud} has no GPU; `stash catalog` lists those that do")
    if not offers:
        raise UserError(
            f"--cloud {options.cloud}: the catalog has no price; `stash catalog refresh` may bring one"
        )
    kinds = dict.fromkeys(kind for _, _, kind, _ in matrix.rates)
    gpu = next((kind for kind in kinds if kind.lower() == instance.gpu_model.lower()), None)
    if gpu is None:
        raise UserError(
            f"--cloud {options.cloud} has {instance.gpu_model}, of which the throughputs say nothing; they have "
            f"{', '.join(kinds)}: add its rates under that name"
        )
    if instance.gpu_count is None or instance.gpu_count < 1:
        raise UserError(
            f"--cloud {options.cloud} has a part of one {instance.gpu_model}, and how fast that trains is not known; "
            "name a type with whole GPUs"
        )
    dollars = min(offer.dollars_per_hour for offer in offers)
    rules = LeavingRules(
        CloudPrice(options.cloud, gpu, int(instance.gpu_count), dollars), options.waiting
    )
    queued = partial(run_course, cluster=cluster, matrix=matrix, policy=POLICIES[options.policy])
    found = equilibrium(read.jobs, cluster.gpus, cluster.costs.hourly, matrix, queued, rules)
    print_answer(
        economics_document(options.policy, found)
        if options.json
        else economics_page(cluster.name, found)
    )


app = App(no_args_is_help=True)


@app.callback()
def schedule() -> None:
    """Schedule many jobs on different GPU types, and compare policies."""


app.command()(throughputs)
app.command("import")(import_trace)
app.command()(simulate)
app.command()(advise)
app.command()(economics)
