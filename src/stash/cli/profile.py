"""``stash profile``: profiles a training job, shows the breakdown, writes the artefact.

Parses, calls the library, renders. What the job itself prints goes to a log, shown when the job fails.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from stash.base.errors import JobError, UserError
from stash.base.interrupts import interrupted_by
from stash.cli.arguments import Split, split, value_takers
from stash.cli.output import output_file
from stash.cli.ranks import Nnodes, NodeRank, NprocPerNode, RdzvEndpoint

if TYPE_CHECKING:
    from stash.base.records import Probe, Profile
    from stash.measure.launch.climb import Expedition
    from stash.measure.launch.job import Job
    from stash.measure.launch.wishes import Result

JOB, MEASURE = "What to profile", "How to measure"


class ProfileCommand(TyperCommand):
    """Takes the job's words off the command line before typer parses the rest."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        options: list[Any] = [p for p in self.params if p.param_type_name == "option"]
        takers = value_takers(((*p.opts, *p.secondary_opts), not p.is_flag and not p.count) for p in options)
        ctx.obj = split(args, takers)
        return super().parse_args(ctx, list(ctx.obj.own))

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return ["[OPTIONS]", "(SCRIPT [ARGS…] | -m MODULE [ARGS…] | --workload NAME | -- COMMAND…)"]


def profile(
    ctx: typer.Context,
    workload: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A workload of the zoo; see `stash zoo`.", rich_help_panel=JOB),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The workload's data; without it, data in memory.", rich_help_panel=JOB),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The workload's batch per device.", rich_help_panel=JOB),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where the profile goes; else named after the job."),
    ] = None,
    precision: Annotated[
        float,
        typer.Option(
            metavar="PCT",
            help="Stop when every stall is known to ± this % of a step.",
            rich_help_panel=MEASURE,
        ),
    ] = 2.0,
    budget: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="… or after so long, from the first step.", rich_help_panel=MEASURE),
    ] = 60.0,
    rungs: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Only these rungs of the ladder.", rich_help_panel=MEASURE),
    ] = None,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="A launch of its own for every rung.", rich_help_panel=MEASURE)
    ] = False,
    data_root: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Where the job's data lie, if it reads them from C code.",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long to wait for the first step.", rich_help_panel=MEASURE),
    ] = 300.0,
    probe: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep the links that `stash probe` measured with the profile.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command that would be started, and stop.")
    ] = False,
    nproc_per_node: NprocPerNode = None,
    nnodes: Nnodes = None,
    node_rank: NodeRank = None,
    rdzv_endpoint: RdzvEndpoint = None,
) -> None:
    """Profile a training job: every millisecond of a step attributed to compute or to a stall.

    The job runs for about a minute and is ended before it would save anything. No change to it is needed.

    [bold]Examples[/bold]

      stash profile train.py --lr 0.1
      stash profile -m my.training --config big.yaml
      stash profile --workload resnet50 --data /data/imagenet --batch 64
      stash profile -- accelerate launch train.py
      stash profile --nnodes 2 --node-rank 0 --rdzv-endpoint node0:29500 train.py
    """
    from stash.base.ladder import NAMES, parse_rungs
    from stash.measure.launch import job as jobs
    from stash.measure.launch.climb import Expedition
    from stash.measure.launch.surroundings import cluster
    from stash.measure.launch.wishes import Wishes

    chosen = _job(ctx.obj, workload, data, batch)
    wishes = Wishes(
        precision=_positive("--precision", precision) / 100,
        budget=_positive("--budget", budget),
        rungs=parse_rungs(rungs) if rungs else NAMES,
        isolate=isolate,
        data_root=_folder(data_root) or data,
        patience=_positive("--patience", patience),
    )
    target, probed = _output(output, chosen), _probe(probe)
    from stash.measure.host.describe import count_gpus

    where = cluster(
        jobs.shape(chosen) == "ranks", nproc_per_node, nnodes, node_rank, rdzv_endpoint,
        count_gpus(), len(os.sched_getaffinity(0)),
    )  # fmt: skip
    expedition = Expedition(chosen, where, wishes)
    request = expedition.request()  # refuses what cannot be started, before anything is
    if dry_run:
        print(request.describe())
        return
    _finish(_with_links(_watched(expedition), probed), target, chosen)


def _job(words: Split, workload: str | None, data: str | None, batch: int | None) -> Job:
    from stash.measure.launch import job as jobs

    if workload is not None:
        if words.kind in ("script", "module"):
            raise UserError(
                f"--workload {workload} and {words.words[0]} are two jobs; profile one of them "
                "(the workload's own options go after `--`)"
            )
        return jobs.workload(workload, data, batch, words.words)
    for flag, value in (("--data", data), ("--batch", batch)):
        if value is not None:
            raise UserError(
                f"{flag} belongs to --workload; give your own job its options after its name"
                + (", and use --data-root to say where its data lie" if flag == "--data" else "")
            )
    if words.kind == "none" or (words.kind != "none" and not words.words):
        raise UserError(
            "nothing to profile; type `stash profile train.py`, or `stash profile --workload resnet18` "
            "(`stash zoo` lists workloads, `stash profile --help` shows all ways)"
        )
    first, rest = words.words[0], words.words[1:]
    if words.kind == "script":
        return jobs.script(first, rest)
    return jobs.module(first, rest) if words.kind == "module" else jobs.command(words.words)


def _positive(flag: str, value: float) -> float:
    if value <= 0:
        raise UserError(f"{flag} {value:g}: it must be more than 0")
    return value


def _folder(path: str | None) -> str | None:
    if path is not None and not Path(path).is_dir():
        raise UserError(f"--data-root {path}: there is no such folder")
    return path


def _output(wanted: Path | None, job: Job) -> Path:
    """Where the profile will go; checked before a minute is spent measuring."""
    from stash.base.records import SUFFIX

    return output_file(wanted, job.title.removesuffix(".py").replace("/", "-"), SUFFIX)


def _probe(path: Path | None) -> Probe | None:
    """The probe to embed; refused before a minute is spent measuring if it is of other machines."""
    if path is None:
        return None
    from stash.keep.artefact import load_probe
    from stash.keep.probed import check_probed

    probe = load_probe(path)
    check_probed(probe, str(path), socket.gethostname())
    return probe


def _watched(expedition: Expedition) -> Result:
    from stash.cli.progress import Progress

    # A batch system's time limit is as orderly as Ctrl-C.
    with interrupted_by(signal.SIGTERM), Progress(expedition) as progress:
        expedition.watcher = progress.show
        return expedition.run()


def _with_links(result: Result, probe: Probe | None) -> Result:
    if probe is None or result.profile is None:
        return result
    from stash.keep.probed import with_links

    return replace(result, profile=with_links(result.profile, probe))


def _finish(result: Result, target: Path, job: Job) -> None:
    """Save and show what was measured, then say what went wrong, if anything did."""
    from stash.keep.artefact import save

    if result.profile is not None:
        try:
            _show(result.profile)  # first: should saving fail, the measured minute is not lost
        finally:
            save(result.profile, target)
        print(f"\nSaved {target}; show it again with `stash show {shlex.quote(str(target))}`.")
    if result.failure is not None:
        if result.failure.own_words:
            print(result.failure.own_words.rstrip(), file=sys.stderr)
        if result.log is not None:
            print(f"(all the job printed: {result.log})", file=sys.stderr)
        kept = ". The rounds measured before are kept." if result.profile is not None else ""
        kind = UserError if result.failure.users_mistake else JobError
        raise kind(f"{result.failure.sentence}{kept}")
    if result.interrupted:
        if result.profile is None:
            print("interrupted before the first round was measured: nothing to save", file=sys.stderr)
        else:
            print("interrupted: the profile holds the rounds measured until then", file=sys.stderr)
        raise typer.Exit(130)
    if result.elsewhere:
        print("This node is done; the profile is written where rank 0 runs.")


def _show(measured: Profile) -> None:
    from stash.cli.show import print_profile

    print_profile(measured)
