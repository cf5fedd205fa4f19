"""``stash profile`` and ``stash probe``: parse, measure, show, save."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from stash.core import parsers
from stash.core.errors import JobError, UserError
from stash.core.interrupts import REQUESTS, interrupted_by, require_linux
from stash.core.output_files import output_file
from stash.core.printable import last_of, printable
from stash.core.secrets import mask_text
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.ranks import COMMON_OF_RANKS, RankOptions, resolve_cluster
from stash.store.storing import past_probes, store_for_copies, store_option
from stash.ui.arguments import ProfileCommand, Split
from stash.ui.options import Options, argument, flag, json_flag, option, quiet_flag

if TYPE_CHECKING:
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.measure.growing_file import GrowingFile
    from stash.measure.launcher.engines import Cluster
    from stash.measure.launcher.job import Job
    from stash.measure.launcher.measurement import Result
    from stash.measure.launcher.session import ProfileSession
    from stash.measure.live import Progress
    from stash.predict.passes import Base
    from stash.store.store import Store

_JOB, _LINKS = "What to profile", "What to measure"


def _output_option(what: str) -> Any:
    return option("FILE", what, Path, "-o", "--output")


@dataclass(frozen=True, kw_only=True)
class _JobOptions(Options):
    """What is profiled, and where the profile goes."""

    workload: str | None = option(
        "NAME", "Train a workload of the zoo; see `stash lab zoo`.", panel=_JOB
    )
    data: str | None = option(
        "PATH", "Read the workload's data here (default: data in memory).", panel=_JOB
    )
    batch: int | None = option(
        "N", "Set the workload's batch per device.", parsers.whole(1), panel=_JOB
    )
    output: Path | None = _output_option(
        "Write the profile to this file (default: named after the job)."
    )
    probe: Path | None = option("FILE", "Include the links that `stash probe` measured.", Path)
    store: str | None = store_option()
    dry_run: bool = flag("Print the command without starting it.")
    quiet: bool = quiet_flag()


@dataclass(frozen=True, kw_only=True)
class ProfileCommandOptions(RankOptions, ProfileOptions, _JobOptions):
    """One call of ``stash profile``."""

    parsed_by: ClassVar[type] = ProfileCommand
    common: ClassVar[tuple[str, ...]] = (
        "workload",
        "data",
        "batch",
        "output",
        "dry_run",
        "quiet",
        "noise",
        "budget",
        "rungs",
        *COMMON_OF_RANKS,
    )

    def check(self) -> None:
        if self.data_root not in (None, self.data) and not Path(self.data_root or "").is_dir():
            raise UserError(f"--data-root {self.data_root}: there is no such folder")


def profile(options: ProfileCommandOptions, context: typer.Context) -> None:
    """Profile a training job: split every step into compute and stalls.

    The job needs no change. It trains for about a minute, partly on batches that it has seen before, and is then
    stopped; its weights are discarded. Existing files stay as they are. Whatever else the job writes, or sends to
    other machines, remains.

    Examples:
      stash profile train.py --lr 0.1
      stash profile -m my.training --config big.yaml
      stash profile --workload resnet50 --data /data/imagenet --batch 64
      stash profile -- accelerate launch train.py
      stash profile --nnodes 2 --node-rank 0 --rdzv-endpoint node0:29500 train.py
    """
    require_linux("stash profile")
    from stash.core.artefact import check_probed, load_probe
    from stash.core.records.base import SUFFIX
    from stash.measure.growing_file import GrowingFile
    from stash.measure.launcher.engines import stands_alone
    from stash.measure.launcher.folder_lock import output_lock
    from stash.measure.launcher.session import ProfileSession

    chosen = job_of(context.obj, options.workload, options.data, options.batch)
    wishes = replace(options, data_root=options.data_root or options.data)
    name = chosen.title.removesuffix(".py").removesuffix(".sh").replace("/", "-")
    target = output_file(options.output, name, SUFFIX)  # before a minute is spent measuring
    probed, copies = None, store_for_copies(options.store)
    if options.probe is not None:  # one of other machines is refused before a minute is spent
        probed = load_probe(options.probe)
        here = socket.gethostname()
        what = (
            f"not of this machine ({here}); probe this one with `stash probe -o {here}.host.json`"
        )
        check_probed(probed, str(options.probe), (here,), what)
    where = resolve_cluster(options, ranks=chosen.is_zoo_workload)
    if where.is_inherited and stands_alone(os.environ):
        print(
            f"RANK={os.environ['RANK']} and WORLD_SIZE={os.environ['WORLD_SIZE']} are set, so the job waits for its "
            "other ranks; if nothing starts them, unset both",
            file=sys.stderr,
        )
    session = ProfileSession(chosen, where, wishes)
    request = session.first_request()  # refuses what cannot be started, before anything is
    if options.dry_run:
        print(printable(mask_text(request.describe(), arguments=False)))
        return
    # A batch system's time limit and a closed terminal are as orderly as Ctrl-C, until the profile is saved. One node of
    # several writes it.
    is_alone = where.nnodes == 1 and not where.is_inherited
    output = output_lock(target) if is_alone else nullcontext()
    with interrupted_by(*REQUESTS), session.folder_lock, output:
        file = GrowingFile(target, new=options.output is None)
        _show_and_save(_measure_live(session, probed, file, options.quiet), file, copies)


def job_of(words: Split, workload: str | None, data: str | None, batch: int | None) -> Job:
    """The job of a command line of `stash profile`; raises UserError where there is none, or two."""
    from stash.measure.launcher import job as jobs

    if workload is not None:
        if words.kind in ("script", "module"):
            raise UserError(
                f"--workload {workload} and {words.words[0]} are two jobs; profile one of them "
                "(the workload's own options go after `--`)"
            )
        job = jobs.make_workload_job(workload, data, batch, words.words)
        jobs.require_torch_of(job)
        return job
    for name, value in (("--data", data), ("--batch", batch)):
        if value is not None:
            raise UserError(
                f"{name} is an option of --workload; put your own script's options after its name"
                + (", and name its data folder with --data-root" if name == "--data" else "")
            )
    if words.kind == "none" or not words.words:
        raise UserError(
            "nothing to profile; type `stash profile train.py`, or `stash profile --workload resnet18` "
            "(`stash lab zoo` lists workloads, `stash profile --help` shows all ways)"
        )
    return own_job(words, "profile")


def own_job(words: Split, verb: str) -> Job:
    """The user's own job of a command line of `stash VERB`; raises UserError without one."""
    from stash.measure.launcher import job as jobs

    if not words.words:
        raise UserError(
            f"nothing to {verb}; type `stash {verb} train.py` (`stash {verb} --help` shows all ways)"
        )
    first, rest = words.words[0], words.words[1:]
    if words.kind == "script":
        job = jobs.make_script_job(first, rest)
    else:
        job = (
            jobs.Job("module", first, rest)
            if words.kind == "module"
            else jobs.make_command_job(words.words)
        )
    jobs.require_torch_of(job)
    return job


def _measure_live(
    session: ProfileSession, probe: Probe | None, file: GrowingFile, quiet: bool
) -> Result:
    """Measure; every finished round is shown, and saved.

    What shows and judges takes longer to load than the script to start: it is loaded while that imports its own.
    """
    from stash.measure.launcher.measurement import Moment, Result

    result = Result(None, None, interrupted=True)  # while progress is begun, or ended

    with suppress(KeyboardInterrupt), ExitStack() as under_way:

        @cache
        def begin_progress() -> Progress:
            from stash.measure.live import Progress
            from stash.ui.terminal import progress_console

            return under_way.enter_context(Progress(session, progress_console(quiet)))

        def watch(moment: Moment) -> None:
            from stash.analysis.step_times import step_matrix

            if moment.profile is not None and (file.has_file or step_matrix(moment.profile).rounds):
                file.save_rounds(_embed_links(moment.profile, probe))
            begin_progress().show(moment)

        result = session.measure_job(watch)
    if result.profile is None and not result.interrupted:
        file.discard()
    if result.interrupted and result.profile is None:
        return replace(result, profile=file.last)  # while what was measured was handed over
    return (
        result
        if result.profile is None
        else replace(result, profile=_embed_links(result.profile, probe))
    )


def _embed_links(profile: Profile, probe: Probe | None) -> Profile:
    if probe is None:
        return profile
    from stash.core.artefact import add_links

    return add_links(profile, probe)


def _show_and_save(result: Result, file: GrowingFile, copies: Store | None) -> None:
    """Show and save what was measured, then say what went wrong, if anything did."""
    if result.profile is None:
        from stash.report.profile_page import describe_left_files

        for sentence in (*result.swept, *describe_left_files(result.left_files)):
            print(sentence, file=sys.stderr)
    else:
        from stash.report.output import print_profile, show_then_save

        show = partial(print_profile, result.profile)
        show_then_save(result.profile, file.target, show, new=file.needs_free_name, copies=copies)
    if result.failure is not None:
        if result.failure.own_words:
            print(printable(mask_text(last_of(result.failure.own_words.rstrip()))), file=sys.stderr)
        if result.log is not None:
            print(f"(all the job printed: {result.log})", file=sys.stderr)
        kept = ". The rounds measured before are kept." if result.profile is not None else ""
        kind = UserError if result.failure.users_mistake else JobError
        raise kind(f"{result.failure.sentence}{kept}")
    if result.interrupted:
        if result.profile is None:
            print(
                "interrupted before the first round was measured: nothing to save", file=sys.stderr
            )
        else:
            print("interrupted: the profile holds the rounds measured until then", file=sys.stderr)
        raise typer.Exit(130)
    if result.elsewhere:
        print("This node is done; the profile is written where rank 0 runs.")


_SAYS = {
    "compute": "computing on all cores and GPUs",
    "copies": "copying in memory, to GPUs and between them",
    "reads": "reading files",
    "streams": "sending from node to node",
    "exchanges": "all-reducing small and large messages",
}


@dataclass(frozen=True, kw_only=True)
class _LinksOptions(Options):
    """What is measured of a machine, and where the probe goes."""

    path: Path | None = argument(
        "PATH", "Measure the disk of this data folder.", Path, default=None
    )
    job: str | None = option(
        "RUN", "Say what it costs this profile's job, in milliseconds and dollars.", str, "--for"
    )
    budget: float | None = option(
        "TIME",
        "Measure for at most this long (default: 45s; 14s without GPUs).",
        parsers.duration,
        panel=_LINKS,
    )
    quick: bool = flag("Measure computing, memory and links only, in 15 s.", panel=_LINKS)
    force: bool = flag("Measure GPUs that others are using, too.", panel=_LINKS)
    only: frozenset[str] | None = option(
        "A,B,C",
        f"Measure only these: {', '.join(_SAYS)}.",
        lambda text: frozenset(parsers.names(text)),
        panel=_LINKS,
    )
    no_measure: bool = flag("Describe the machine without measuring.", panel=_LINKS)
    instance: str | None = option("NAME", "Name the machine's type, if it cannot tell.")
    no_metadata: bool = flag("Do not ask the cloud's metadata service.")
    expect: str | None = option("NAME", "Compare with this type (default: its own).")
    output: Path | None = _output_option(
        "Write the probe to this file (default: named after the machine)."
    )
    store: str | None = store_option()
    json: bool = json_flag("Print JSON; docs/probe.md documents its keys.")
    quiet: bool = quiet_flag()

    def check(self) -> None:
        if self.only is not None and self.no_measure:
            raise UserError("--only and --no-measure exclude each other; use one of them")
        for name, given in (
            ("--budget", self.budget),
            ("--only", self.only),
            ("--no-measure", self.no_measure),
        ):
            if self.quick and given:
                raise UserError(
                    f"--quick says already what is measured, and for how long; leave {name} out"
                )


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(RankOptions, _LinksOptions):
    """One call of ``stash probe``."""

    common: ClassVar[tuple[str, ...]] = (
        "job",
        "budget",
        "quick",
        "only",
        "expect",
        "output",
        "store",
        "json",
        "quiet",
        *COMMON_OF_RANKS,
    )


def probe(options: ProbeOptions) -> None:
    """Measure this machine and its links, and say whether to keep it.

    This takes less than a minute and needs no privileges and no training job. Run it before you train on a machine.
    With --store, your earlier probes of such machines say what is usual.

    Examples:
      stash probe --for train.stash.json --store ~/probes
      stash probe /data/imagenet
      stash probe --expect p3.8xlarge
      stash probe --only copies,exchanges --json
      stash probe --nnodes 2 --node-rank 0 --rdzv-endpoint node0:29500
    """
    from stash import catalog as facts
    from stash.core.artefact import PROBE_SUFFIX

    require_linux("stash probe")
    known, folder = facts.load(), options.path
    if folder is not None and not folder.is_dir():
        if folder.name.endswith(PROBE_SUFFIX):
            raise UserError(
                f"{folder} is no folder of data; a saved probe is shown with `stash show {folder}`"
            )
        raise UserError(
            f"there is no data folder {folder}; name one, or leave it out to measure the current one"
        )
    for name in (options.instance, options.expect):
        if name is not None:
            known.instance(name)  # an unknown name is refused before anything is measured
    copies, output, base = (
        store_for_copies(options.store),
        options.output,
        base_of_job(options.job, options.store),
    )
    target = None
    if output is not None or not options.no_measure:
        target = output_file(output, socket.gethostname().partition(".")[0], PROBE_SUFFIX)
    try:
        with interrupted_by(*REQUESTS):  # as orderly as Ctrl-C, until the probe is saved
            found = (
                _describe_machine(folder, options)
                if options.no_measure
                else measured_probe(folder, options, base)
            )
            if found is None:
                print("This node is done; the probe is written on node 0.", file=sys.stderr)
                return
            past = past_probes(copies)
            from stash.report.output import print_probe, show_then_save

            show = partial(
                print_probe, found, known, options.expect, target, options.json, past, base
            )
            show_then_save(found, target, show, options.json, new=output is None, copies=copies)
    except KeyboardInterrupt:
        print("interrupted: no probe was saved", file=sys.stderr)
        raise typer.Exit(130) from None


def base_of_job(run: str | None, store: str | None) -> Base | None:
    """What forecasts of the job start with whose profile ``run`` names; raises UserError if it is no profile."""
    if run is None:
        return None
    from stash.measure.host.gpus import count_gpus
    from stash.predict.forecasting import base_of
    from stash.store.storing import profile_of

    base = base_of(profile_of(run, store)[0])
    if base.target.device is not None and not count_gpus():
        raise UserError(
            f"--for {run}: that job trains on {base.target.device}, and this machine has no GPU that NVML knows; "
            "probe without --for, or profile the job here"
        )
    return base


_QUICK_SECONDS, _CPU_SECONDS, _SECONDS = 6.0, 14.0, 45.0
_QUICK_PARTS = frozenset({"compute", "copies", "streams", "exchanges"})


def measured_probe(
    folder: Path | None, options: ProbeOptions, base: Base | None, where: Cluster | None = None
) -> Probe | None:
    """Measure; with a profile, products are those of its job. ``None`` on nodes other than 0."""
    from stash.measure.host.gpus import count_gpus
    from stash.measure.launcher import probe_launch as probing
    from stash.measure.launcher.job import require_torch
    from stash.measure.probe.probe_orders import products_of

    require_torch("stash probe")
    budget = options.budget or (
        _QUICK_SECONDS if options.quick else _SECONDS if count_gpus() else _CPU_SECONDS
    )
    with _show_progress(options.quiet) as say:
        return probing.run_probe(
            where or resolve_cluster(options),
            budget=budget,
            data=folder,
            instance=options.instance,
            what=_QUICK_PARTS if options.quick else options.only,
            say=say,
            ask_metadata=not options.no_metadata,
            products=() if base is None else products_of(base.profile.workload),
            force=options.force,
        )


def _describe_machine(folder: Path | None, options: ProbeOptions) -> Probe:
    from stash.core.records.base import utc_now
    from stash.core.records.host import Probe
    from stash.core.version import __version__
    from stash.measure.host.describe import describe

    began = time.monotonic()
    host = describe(folder, instance=options.instance, ask_metadata=not options.no_metadata)
    return Probe(
        stash_version=__version__,
        created=utc_now(),
        hosts=(host,),
        budget_seconds=0.0,
        elapsed_seconds=time.monotonic() - began,
    )


@contextmanager
def _show_progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is being measured: one changing line on a terminal, a line each in a log; on stderr."""
    from stash.ui.terminal import progress_console

    console = progress_console(quiet)
    if not console.is_terminal or console.is_dumb_terminal:
        print("probing …", file=console.file)
        yield lambda part: print(f"  {_SAYS.get(part, part)}", file=console.file, flush=True)
        return
    with console.status("probing") as status:
        yield lambda part: status.update(_SAYS.get(part, part))
