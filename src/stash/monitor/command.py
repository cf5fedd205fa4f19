"""``stash watch``: a job started as it was typed and listened to; or a record of one, followed while it lasts."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import typer

from stash.core import parsers
from stash.core.errors import UserError
from stash.core.interrupts import require_linux
from stash.core.printable import print_written, printable_line
from stash.measure.ranks import RankOptions, cluster
from stash.monitor.run_requests import RunRequest, is_waiting, leave_request, parsed_capture, withdraw_request
from stash.ui.arguments import ProfileCommand
from stash.ui.options import Options, flag, option, quiet_flag

if TYPE_CHECKING:
    from stash.measure.launcher.engines import Cluster
    from stash.measure.launcher.job import Job
    from stash.monitor.watcher import LineListener, NodeWatcher

_JOB, _TELL, _MONEY = "What to watch", "Whom to tell", "Money"
_JOIN_SECONDS = 2.0
_LOOKS, _LOOK_SECONDS = 75, 0.2
"""Whether a watcher has taken a request: it polls twice a second, over a shared file system it sees it later."""


@dataclass(frozen=True, kw_only=True)
class _WatchedOptions(Options):
    """What is watched, and against what."""

    workload: str | None = option("NAME", "Train a workload of the zoo; see `stash lab zoo`.", panel=_JOB)
    data: str | None = option("PATH", "Read the workload's data here (default: data in memory).", panel=_JOB)
    batch: int | None = option("N", "Set the workload's batch per device.", parsers.whole(1), panel=_JOB)
    baseline: Path | None = option("FILE", "Compare the stalls with this profile of the job.", Path, panel=_JOB)
    force: bool = flag("Compare with the baseline even if the jobs differ.", panel=_JOB)
    output: Path | None = option(
        "FILE", "Write the record to this file (default: named after the job).", Path, "-o", "--output"
    )
    join: Path | None = option("FILE", "Follow the record of a watched run.", Path)
    epilog: Path | None = option("FILE", "Print one line about this record, for a scheduler's epilog.", Path)
    pause: bool = flag("With --join: pause watching.")
    resume: bool = flag("With --join: resume watching.")
    capture: tuple[int, tuple[int, ...]] | None = option(
        "N[:RANKS]", "Trace N steps when an alert begins; with --join, trace now.", parsed_capture
    )
    quiet: bool = quiet_flag()
    attach: int | None = option("PID", "Watch a job that is already running.", parsers.whole(1))
    stuck_after: float = option(
        "TIME", "After this long without a step, report each rank's stack.", parsers.duration, default="2min"
    )


@dataclass(frozen=True, kw_only=True)
class _ToldOptions(Options):
    """Who hears of it, and what it costs."""

    metrics: int | None = option(
        "PORT", "Serve OpenMetrics on 127.0.0.1 at this port.", parsers.whole(1), panel=_TELL
    )
    log: tuple[str, ...] = option(
        "TOOL:WHERE", "Log windows to tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT.", many=True, panel=_TELL
    )
    on_alert: str | None = option("COMMAND", "Run this for each alert, given as JSON on standard input.", panel=_TELL)
    instance: str | None = option("NAME", "Compute the bill with this machine type's price.", panel=_MONEY)
    total_steps: int | None = option("N", "Forecast the bill of a run of N steps.", parsers.whole(1), panel=_MONEY)
    max_dollars: float | None = option(
        "DOLLARS", "Warn at 80 % and 100 % of this bill.", parsers.dollars, panel=_MONEY
    )
    on_budget: str | None = option("COMMAND", "Run this when --max-dollars is spent.", panel=_MONEY)


@dataclass(frozen=True, kw_only=True)
class WatchCommandOptions(RankOptions, _ToldOptions, _WatchedOptions):
    """One call of ``stash watch``."""

    parsed_by: ClassVar[type] = ProfileCommand

    def check(self) -> None:
        from stash.monitor.watcher import words_of

        for command in (self.on_alert, self.on_budget):
            if command is not None:
                words_of(command)
        if self.on_budget is not None and self.max_dollars is None:
            raise UserError("--on-budget says what to do when money is spent; say how much with --max-dollars")
        if (self.pause or self.resume) and self.join is None:
            raise UserError("--pause and --resume ask a run that is watched already; name its record with --join")
        if self.pause and self.resume:
            raise UserError("--pause and --resume exclude each other; ask for one of them")
        if self.force and self.baseline is None:
            raise UserError("--force belongs to --baseline; name a profile")


def watch(options: WatchCommandOptions, context: typer.Context) -> None:
    """Watch a training run to its end: stalls, stragglers and alerts.

    The run keeps its output, exit code, weights and files. A record with one window every ten seconds is written
    beside it; follow it with `--join` and read it with `stash show`.

    Examples:
      stash watch train.py --lr 0.1
      stash watch --baseline train.stash.json --metrics 19177 -- torchrun --nproc-per-node 8 train.py
      stash watch --join train.watch.jsonl
      stash watch --join train.watch.jsonl --capture 5:0,3
      stash watch --epilog train.watch.jsonl
      stash watch --instance p4d.24xlarge --max-dollars 400 --on-budget ./stop.sh train.py
    """
    if options.epilog is not None:
        from stash.monitor.page import epilog
        from stash.monitor.records import load

        print(printable_line(epilog(load(options.epilog)), 400))
        return
    if options.join is not None:
        if context.obj.kind != "none":
            raise UserError(
                f"--join follows a run that is watched already, and starts nothing; leave {context.obj.words[0]} out"
            )
        if options.pause or options.resume or options.capture is not None:
            ask(options.join, options)
        else:
            follow(options.join)
        return
    require_linux("stash watch")
    if options.attach is not None:
        from stash.monitor.attach import attach

        if context.obj.kind != "none":
            raise UserError(f"--attach watches a job that runs already; leave {context.obj.words[0]} out")
        attach(options.attach, options)
        return
    from stash.measure.command import job_of

    chosen = job_of(context.obj, options.workload, options.data, options.batch, "watch")
    raise typer.Exit(run(chosen, cluster(options, ranks=chosen.of_zoo), options))


def run(job: Job, where: Cluster, options: WatchCommandOptions) -> int:
    """Start the job and watch it; the value is its exit code."""
    from stash.core.interrupts import REQUESTS, interrupted_by
    from stash.core.secrets import hide
    from stash.measure.launcher.folder_lock import FolderLock
    from stash.measure.protocol.watch_folder import watch_folder
    from stash.monitor.records import SUFFIX
    from stash.monitor.watched_job import WatchedJob
    from stash.monitor.watcher import POLL_SECONDS

    if where.node_rank and options.output is not None:  # node 0's has that name, perhaps on a disk that they share
        own = f"{options.output.name.removesuffix(SUFFIX)}.node{where.node_rank}{SUFFIX}"
        options = replace(options, output=options.output.with_name(own))

    hide(job.command, job.kept)
    with FolderLock(Path.cwd(), is_shared=True), watch_folder() as folder:
        with interrupted_by(*REQUESTS):
            watcher, target = begin_watch(folder, job.title, job.kept, where.nnodes, options)
        code = WatchedJob(lambda: _start(job, where, folder), folder).run(POLL_SECONDS, _AsLongAsItCan(watcher.poll))
        _quietly(lambda: watcher.finish(code))
    say_summary(target, options)
    return code


def say_summary(target: Path, options: WatchCommandOptions) -> None:
    """Say on standard error, which is not the job's answer, what the run was; another node's watcher has none."""
    if options.quiet:
        return
    from stash.core.errors import ArtefactError
    from stash.core.printable import has_colours
    from stash.monitor.page import summary
    from stash.monitor.records import load
    from stash.ui.terminal import render

    with suppress(OSError, ArtefactError):
        text = render(
            summary(load(target), target.name),
            shutil.get_terminal_size().columns,
            has_colours(sys.stderr.isatty(), os.environ),
        )
        print(f"\n{text}", file=sys.stderr, flush=True)
        print_written(target, True, f"; `stash report {target}` draws the run over time")


def begin_watch(
    folder: Path, title: str, command: tuple[str, ...], nodes: int, options: WatchCommandOptions
) -> tuple[NodeWatcher, Path]:
    """A watcher of the rings in ``folder``, and where its record is; raises UserError for what cannot be done."""
    from stash.core.output_files import output_file
    from stash.core.version import __version__
    from stash.measure.protocol.folder import start_of_machine
    from stash.monitor.baseline import read
    from stash.monitor.money import price_of
    from stash.monitor.records import SUFFIX, Header, RecordWriter, is_record
    from stash.monitor.trackers import tracker
    from stash.monitor.watch_metrics import MetricsServer
    from stash.monitor.watch_state import WatchOptions
    from stash.monitor.watcher import NodeWatcher

    baseline = None if options.baseline is None else read(options.baseline, title, options.force)
    price = price_of(options.instance, nodes, options.max_dollars is not None)
    stem = title.removesuffix(".py").removesuffix(".sh").replace("/", "-")
    header = Header(
        id=secrets.token_hex(8), stash_version=__version__, began=time.time(), job=title, command=command,
        nodes=nodes, booted=None if price is None else start_of_machine() or None,
        baseline=None if baseline is None else baseline.source,
        baseline_stalls={} if baseline is None else baseline.split, price=price, planned_steps=options.total_steps,
    )  # fmt: skip
    chosen = WatchOptions(
        options.stuck_after, options.on_alert, options.max_dollars, options.on_budget, options.force,
        None if options.capture is None else options.capture[0],
    )  # fmt: skip
    listeners: list[LineListener] = [tracker(where, header) for where in options.log]
    if options.metrics is not None:
        listeners.append(MetricsServer(options.metrics, header))
    listeners.append(_OnStandardError())
    while True:
        target = output_file(options.output, stem, SUFFIX)
        goes_on = options.output is not None and is_record(str(target)) and target.exists()
        try:
            record = RecordWriter(target, header, goes_on=goes_on)
            watcher = NodeWatcher(folder, record, header, chosen, baseline, listeners)
        except UserError:  # another node's watcher took that name meanwhile, on a disk that they share
            if options.output is not None or not target.exists():
                raise
            continue
        if not options.quiet:
            print(f"stash: watching {title}; follow it with `stash watch --join {target}`", file=sys.stderr)
        return watcher, target


def _start(job: Job, where: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    """The job as it was typed, with this process's input and output, in its process group."""
    from stash.measure.launcher.engines import ENGINES
    from stash.measure.launcher.process import SITE
    from stash.measure.protocol.orders import VARIABLE, Orders

    orders = Orders(str(folder), (), 0.0, began=time.time(), watched=True).write()
    path = os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH"))))
    words = (job.target, *job.arguments) if job.kind == "command" else ENGINES[where.engine].command(job, where)
    words = tuple(word for word in words if job.kind == "command" or word != "-u")
    return subprocess.Popen(words, env={**os.environ, VARIABLE: str(orders), "PYTHONPATH": path})


class _AsLongAsItCan:
    """Polls, until that fails once: the job goes on without."""

    def __init__(self, poll: Callable[[], object]) -> None:
        self._poll, self._works = poll, True

    def __call__(self) -> None:
        self._works = self._works and _quietly(self._poll)


def _quietly(act: Callable[[], object]) -> bool:
    """Do it; an error is told, and ends nothing of the job. The value is whether there was none."""
    try:
        act()
    except Exception as error:
        with suppress(OSError):
            print(f"stash: the run is not watched any more ({error})", file=sys.stderr, flush=True)
        return False
    return True


class _OnStandardError:
    """Alerts, on standard error."""

    def take(self, line: object) -> None:
        from stash.monitor.records import Alert, RunEvent

        if isinstance(line, Alert) or (isinstance(line, RunEvent) and line.what != "end"):
            with suppress(OSError):  # a disk that is full, a pipe that nobody reads
                print(f"stash: {printable_line(line.text)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is kept."""


def ask(path: Path, options: WatchCommandOptions) -> None:
    """Have the run of a record paused, watched again or traced; raises UserError for one that has ended."""
    from stash.monitor.records import load

    if any(event.what == "end" for event in load(path, whole=False).events):
        raise UserError(f"--join {path}: that run has ended; there is nothing to ask of it")
    steps, ranks = options.capture or (0, ())
    paused = options.pause if options.pause or options.resume else None
    leave_request(path, RunRequest(paused=paused, steps=steps, ranks=ranks))
    try:
        for _ in range(_LOOKS):
            if not is_waiting(path):
                break
            time.sleep(_LOOK_SECONDS)
    finally:
        ignored = withdraw_request(path)
    if ignored:
        raise UserError(f"--join {path}: nobody watches that run any more; start it again with `stash watch`")
    print(f"stash: asked; `stash watch --join {printable_line(str(path))}` shows when it was done", file=sys.stderr)


def follow(path: Path) -> None:
    """Show a record's last window whenever there is another one, until the run has ended."""
    from stash.monitor.page import page
    from stash.monitor.records import load
    from stash.ui.terminal import print_page

    shown: tuple[int, int] | None = None
    with suppress(KeyboardInterrupt):
        while True:
            status = path.stat() if path.exists() else None
            state = (0, 0) if status is None else (status.st_ino, status.st_size)
            if state != shown:  # a record of a day takes a second to read
                shown, record = state, load(path, whole=False)
                if sys.stdout.isatty():
                    print("\x1b[2J\x1b[H", end="")
                print_page(page(record, path.name, live=True))
                sys.stdout.flush()
                if any(event.what == "end" for event in record.events):
                    return
            time.sleep(_JOIN_SECONDS)
