"""``stash profile`` and ``stash probe``: parse, measure, show, save."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.core.errors import JobError, UserError
from stash.core.interrupts import REQUESTS, interrupted_by, require_linux
from stash.core.printable import last_of, printable
from stash.core.secrets import masked_text
from stash.measure.ranks import Nnodes, NodeRank, NprocPerNode, RdzvEndpoint, RdzvId, cluster
from stash.report.output import output_file, print_probe, print_profile, show_then_save
from stash.store.storing import StoreOption, store_for_copies
from stash.ui.arguments import Split
from stash.ui.options import flag, option, percent, positive

if TYPE_CHECKING:
    from stash.core.artefact import Growing
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.measure.launcher.job import Job
    from stash.measure.launcher.measurement import Result
    from stash.measure.launcher.session import ProfileSession
    from stash.store.store import Store

# Profile ---------------------------------------------------------------------------------------------------
# ``stash profile``: profiles a training job, shows the breakdown, writes the artefact.
#
# Parses, measures, shows. What the job itself prints goes to a log, shown when the job fails.

JOB, MEASURE = "What to profile", "How to measure"


def profile(
    ctx: typer.Context,
    workload: Annotated[str | None, option("NAME", "A workload of the zoo; see `stash zoo`.", panel=JOB)] = None,
    data: Annotated[str | None, option("PATH", "The workload's data; without it, data in memory.", panel=JOB)] = None,
    batch: Annotated[int | None, option("N", "The workload's batch per device.", panel=JOB, least=1)] = None,
    output: Annotated[
        Path | None, option("FILE", "Where the profile goes; else named after the job.", "-o", "--output")
    ] = None,
    precision: Annotated[
        float, option("PCT", "Stop when every stall is known to ± this % of a step.", panel=MEASURE)
    ] = 2.0,
    budget: Annotated[float, option("SECONDS", "… or after so long, from the first block on.", panel=MEASURE)] = 60.0,
    rungs: Annotated[str | None, option("A,B,C", "Only these rungs of the ladder.", panel=MEASURE)] = None,
    isolate: Annotated[bool, flag("--isolate", "A launch of its own for every rung.", panel=MEASURE)] = False,
    data_root: Annotated[
        str | None, option("PATH", "Where the job's data lie, if it reads them from C code.", panel=MEASURE)
    ] = None,
    patience: Annotated[float, option("SECONDS", "How long to wait for the first step.", panel=MEASURE)] = 300.0,
    keep_logging: Annotated[
        bool, flag("--keep-logging", "Leave W&B, MLflow, TensorBoard, Neptune and Comet on.", panel=MEASURE)
    ] = False,
    probe: Annotated[
        Path | None, option("FILE", "Keep the links that `stash probe` measured with the profile.")
    ] = None,
    store: StoreOption = None,
    dry_run: Annotated[bool, flag("--dry-run", "Print the command that would be started, and stop.")] = False,
    nproc_per_node: NprocPerNode = None,
    nnodes: Nnodes = None,
    node_rank: NodeRank = None,
    rdzv_endpoint: RdzvEndpoint = None,
    rdzv_id: RdzvId = None,
) -> None:
    """Profile a training job: every millisecond of a step attributed to compute or to a stall.

    No change to the job is needed. It trains for about a minute, in part on batches that it has seen before, and is
    ended early: its weights mean nothing and are thrown away. Files that are there now stay as they are. What the job
    writes anew or sends to other machines remains.

    [bold]Examples[/bold]

      stash profile train.py --lr 0.1
      stash profile -m my.training --config big.yaml
      stash profile --workload resnet50 --data /data/imagenet --batch 64
      stash profile -- accelerate launch train.py
      stash profile --nnodes 2 --node-rank 0 --rdzv-endpoint node0:29500 train.py
    """
    require_linux("stash profile")
    from stash.core.artefact import Growing
    from stash.core.ladder import NAMES, parse_rungs
    from stash.measure.launcher.engines import stands_alone
    from stash.measure.launcher.measurement import ProfileOptions
    from stash.measure.launcher.session import ProfileSession

    chosen = _job(ctx.obj, workload, data, batch)
    wishes = ProfileOptions(
        precision=percent("--precision", precision),
        budget=positive("--budget", budget, "a number of seconds above 0", finite=True),
        rungs=parse_rungs(rungs) if rungs else NAMES,
        isolate=isolate,
        data_root=_folder(data_root) or data,
        patience=positive("--patience", patience),
        keep_logging=keep_logging,
    )
    target, probed, copies = _output(output, chosen), _probe(probe), store_for_copies(store)
    where = cluster(nproc_per_node, nnodes, node_rank, rdzv_endpoint, rdzv_id, ranks=chosen.of_zoo)
    if where.inherited and stands_alone(os.environ):
        print(
            f"RANK={os.environ['RANK']} and WORLD_SIZE={os.environ['WORLD_SIZE']} are set, so the job waits for its "
            "other ranks; if nothing starts them, unset both",
            file=sys.stderr,
        )
    expedition = ProfileSession(chosen, where, wishes)
    request = expedition.request()  # refuses what cannot be started, before anything is
    if dry_run:
        print(printable(masked_text(request.describe(), arguments=False)))
        return
    # A batch system's time limit and a closed terminal are as orderly as Ctrl-C, until the profile is saved.
    with interrupted_by(*REQUESTS):
        file = Growing(target, new=output is None)
        _finish(_watched(expedition, probed, file), file, copies)


def _job(words: Split, workload: str | None, data: str | None, batch: int | None) -> Job:
    from stash.measure.launcher import job as jobs

    if workload is not None:
        if words.kind in ("script", "module"):
            raise UserError(
                f"--workload {workload} and {words.words[0]} are two jobs; profile one of them "
                "(the workload's own options go after `--`)"
            )
        return jobs.workload(workload, data, batch, words.words)
    for name, value in (("--data", data), ("--batch", batch)):
        if value is not None:
            raise UserError(
                f"{name} belongs to --workload; give your own job its options after its name"
                + (", and use --data-root to say where its data lie" if name == "--data" else "")
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


def _folder(path: str | None) -> str | None:
    if path is not None and not Path(path).is_dir():
        raise UserError(f"--data-root {path}: there is no such folder")
    return path


def _output(wanted: Path | None, job: Job) -> Path:
    """Where the profile will go; checked before a minute is spent measuring."""
    from stash.core.records.base import SUFFIX

    return output_file(wanted, job.title.removesuffix(".py").removesuffix(".sh").replace("/", "-"), SUFFIX)


def _probe(path: Path | None) -> Probe | None:
    """The probe to embed; refused before a minute is spent measuring if it is of other machines."""
    if path is None:
        return None
    from stash.core.artefact import check_probed, load_probe

    probe = load_probe(path)
    check_probed(probe, str(path), socket.gethostname())
    return probe


def _watched(expedition: ProfileSession, probe: Probe | None, file: Growing) -> Result:
    """Measure; every finished round is shown, and in the file at once."""
    from stash.analysis.step_times import step_matrix
    from stash.measure.launcher.measurement import Moment, Result
    from stash.measure.live import Progress

    result = Result(None, None, interrupted=True)  # while progress is begun, or ended

    def watch(moment: Moment) -> None:
        if moment.profile is not None and (file.begun or step_matrix(moment.profile).rounds):
            file.take(_with_links(moment.profile, probe))
        progress.show(moment)

    with suppress(KeyboardInterrupt), Progress(expedition) as progress:
        result = expedition.run(watch)
    file.close(discard=result.profile is None and not result.interrupted)
    if result.interrupted and result.profile is None:
        return replace(result, profile=file.last)  # while what was measured was handed over
    return result if result.profile is None else replace(result, profile=_with_links(result.profile, probe))


def _with_links(profile: Profile, probe: Probe | None) -> Profile:
    if probe is None:
        return profile
    from stash.core.artefact import with_links

    return with_links(profile, probe)


def _finish(result: Result, file: Growing, copies: Store | None) -> None:
    """Show and save what was measured, then say what went wrong, if anything did."""
    if result.profile is None:
        print(*result.swept, sep="\n", end="\n" if result.swept else "", file=sys.stderr)
    else:
        show = partial(print_profile, result.profile)
        show_then_save(result.profile, file.target, show, new=file.new, copies=copies)
    if result.failure is not None:
        if result.failure.own_words:
            print(printable(masked_text(last_of(result.failure.own_words.rstrip()))), file=sys.stderr)
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


# Probe -----------------------------------------------------------------------------------------------------
# ``stash probe``: what a machine is and what its links really carry, beside what its type should have.
#
# Parses, measures, shows. Progress goes to stderr, the report or the JSON to stdout.

MEASURE_LINKS = "What to measure"
_SAYS = {
    "copies": "copying in memory, to GPUs and between them",
    "reads": "reading files",
    "preparation": "preparing samples",
    "streams": "sending from node to node",
    "exchanges": "all-reducing small and large messages",
}


def probe(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="A folder of data: its disk is measured.", show_default=False),
    ] = None,
    data: Annotated[Path | None, option("PATH", "The same, as an option.", panel=MEASURE_LINKS)] = None,
    kind: Annotated[
        str | None, option("KIND", "Samples to prepare: images, text, audio or clicks.", panel=MEASURE_LINKS)
    ] = None,
    budget: Annotated[float, option("SECONDS", "How long to measure at most.", panel=MEASURE_LINKS)] = 45.0,
    only: Annotated[str | None, option("A,B,C", f"Only these: {', '.join(_SAYS)}.", panel=MEASURE_LINKS)] = None,
    no_measure: Annotated[bool, flag("--no-measure", "Only say what the machine is.", panel=MEASURE_LINKS)] = False,
    instance: Annotated[str | None, option("NAME", "The machine's type, if it cannot tell.")] = None,
    no_metadata: Annotated[
        bool, flag("--no-metadata", "Do not ask the metadata service of the cloud this machine is in.")
    ] = False,
    against: Annotated[str | None, option("NAME", "Compare with this type; else with its own.")] = None,
    output: Annotated[
        Path | None, option("FILE", "Where the probe goes; else named after the machine.", "-o", "--output")
    ] = None,
    store: StoreOption = None,
    json: Annotated[bool, flag("--json", "Print probe, links and findings as JSON (docs/probe.md).")] = False,
    nproc_per_node: NprocPerNode = None,
    nnodes: Nnodes = None,
    node_rank: NodeRank = None,
    rdzv_endpoint: RdzvEndpoint = None,
    rdzv_id: RdzvId = None,
) -> None:
    """Find out what this machine really has: its links measured, beside what its type should have.

    Takes less than a minute, needs no privileges and no training job. Run it before training on a machine.

    [bold]Examples[/bold]

      stash probe /data/imagenet
      stash probe --against p3.8xlarge
      stash probe --only copies,exchanges --json
      stash probe --nnodes 2 --node-rank 0 --rdzv-endpoint node0:29500
    """
    from stash import catalog as facts

    require_linux("stash probe")
    known, folder, what = facts.load(), _probed_folder(path, data), _parts(only, no_measure)
    for name in (instance, against):
        if name is not None:
            known.instance(name)  # an unknown name is refused before anything is measured
    positive("--budget", budget, "a number of seconds above 0", finite=True)
    copies = store_for_copies(store)
    target = output_file(output, _machine_name(), _suffix()) if output is not None or not no_measure else None
    with _said_if_interrupted(), interrupted_by(*REQUESTS):  # as orderly as Ctrl-C, until the probe is saved
        if no_measure:
            found: Probe | None = _described(folder, instance, not no_metadata)
        else:
            from stash.measure.launcher import probe_launch as probing

            ranks = (nproc_per_node, nnodes, node_rank, rdzv_endpoint, rdzv_id)
            with _progress() as say:
                found = probing.probe(
                    cluster(*ranks), budget=budget, data=folder, kind=kind, instance=instance, what=what, say=say,
                    ask_metadata=not no_metadata,
                )  # fmt: skip
        if found is None:
            print("This node is done; the probe is written on node 0.", file=sys.stderr)
            return
        show = partial(print_probe, found, known, against, target, json)
        show_then_save(found, target, show, json, new=output is None, copies=copies)


@contextmanager
def _said_if_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted: no probe was saved", file=sys.stderr)
        raise typer.Exit(130) from None


def _probed_folder(path: Path | None, data: Path | None) -> Path | None:
    if path is not None and data is not None and path != data:
        raise UserError(f"{path} and --data {data} are two folders; name one of them")
    folder = path if path is not None else data
    if folder is None or folder.is_dir():
        return folder
    if folder.name.endswith(_suffix()):
        raise UserError(f"{folder} is no folder of data; a saved probe is shown with `stash show {folder}`")
    raise UserError(f"there is no data folder {folder}; name one, or leave it out to measure the current one")


def _suffix() -> str:
    from stash.core.artefact import PROBE_SUFFIX

    return PROBE_SUFFIX


def _parts(only: str | None, no_measure: bool) -> frozenset[str] | None:
    if only is None:
        return None
    if no_measure:
        raise UserError("--only and --no-measure exclude each other; use one of them")
    return frozenset(name.strip() for name in only.split(",") if name.strip())


def _machine_name() -> str:
    from socket import gethostname

    return gethostname().split(".", maxsplit=1)[0]


def _described(folder: Path | None, instance: str | None, ask_metadata: bool) -> Probe:
    from stash.core.records.base import now
    from stash.core.records.host import Probe
    from stash.core.version import __version__
    from stash.measure.host.describe import describe

    began = time.monotonic()
    host = describe(folder, instance=instance, ask_metadata=ask_metadata)
    return Probe(
        stash_version=__version__,
        created=now(),
        hosts=(host,),
        budget_seconds=0.0,
        elapsed_seconds=time.monotonic() - began,
    )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being measured: one changing line on a terminal, a line each in a log; on stderr."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        print("probing …", file=sys.stderr)
        yield lambda part: print(f"  {_SAYS.get(part, part)}", file=sys.stderr, flush=True)
        return
    with console.status("probing") as status:
        yield lambda part: status.update(_SAYS.get(part, part))
