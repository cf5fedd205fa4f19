"""``stash watch``: a job started as it was typed and listened to; or a record of one, followed while it lasts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stash.core.errors import UserError
from stash.core.interrupts import require_linux
from stash.core.printable import printable_line
from stash.measure.ranks import resolve_cluster
from stash.monitor.run_requests import RunRequest, is_waiting, leave_request, withdraw_request
from stash.monitor.watch_options import WatchCommandOptions

if TYPE_CHECKING:
    from stash.measure.launcher.engines import Cluster
    from stash.measure.launcher.job import Job

_JOIN_SECONDS = 2.0
_LOOKS, _LOOK_SECONDS = 75, 0.2
"""Whether a watcher has taken a request: it polls twice a second, over a shared file system it sees it later."""


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
      stash watch --accept --baseline train.stash.json train.py
      stash watch --instance p4d.24xlarge --max-dollars 400 --on-alert ./tell.sh train.py
    """
    if options.epilog is not None:
        from stash.monitor.page import epilog
        from stash.monitor.records import load_record

        print(printable_line(epilog(load_record(options.epilog)), 400))
        return
    running = {
        "--join follows a run that is watched already, and starts nothing": options.join,
        "--attach watches a job that runs already": options.attach,
    }
    for why, given in running.items():
        if given is not None and context.obj.kind != "none":
            raise UserError(f"{why}; leave {context.obj.words[0]} out")
    if options.join is not None:
        is_asked = options.pause or options.resume or options.capture is not None
        return ask_run(options.join, options) if is_asked else follow_record(options.join)
    require_linux("stash watch")
    if options.attach is not None:
        from stash.monitor.attach import attach

        return attach(options.attach, options)
    if options.accept:
        from stash.monitor.accept import accept_machine

        code = accept_machine(options)
        if code or context.obj.kind == "none":
            raise typer.Exit(code)
    from stash.measure.command import own_job

    chosen = own_job(context.obj, "watch")
    raise typer.Exit(
        run_watch(chosen, resolve_cluster(options, ranks=chosen.is_zoo_workload), options)
    )


def run_watch(job: Job, where: Cluster, options: WatchCommandOptions) -> int:
    """Start the job and watch it; the value is its exit code."""
    from stash.core.interrupts import REQUESTS, interrupted_by
    from stash.core.secrets import hide_masked
    from stash.measure.launcher.folder_lock import FolderLock
    from stash.measure.protocol.watch_folder import watch_folder
    from stash.monitor.records import SUFFIX
    from stash.monitor.watch_start import begin_watch, say_summary
    from stash.monitor.watched_job import WatchedJob
    from stash.monitor.watcher import POLL_SECONDS

    if (
        where.node_rank and options.output is not None
    ):  # node 0's has that name, perhaps on a disk that they share
        own = f"{options.output.name.removesuffix(SUFFIX)}.node{where.node_rank}{SUFFIX}"
        options = replace(options, output=options.output.with_name(own))

    hide_masked(job.command, job.kept_command)
    with FolderLock(Path.cwd(), is_shared=True), watch_folder() as folder:
        with interrupted_by(*REQUESTS):
            watcher, target = begin_watch(
                folder, job.title, job.kept_command, where.nnodes, options
            )
        code = WatchedJob(lambda: _start(job, where, folder), folder).run_job(
            POLL_SECONDS, _FailOncePoll(watcher.poll)
        )
        _call_quietly(lambda: watcher.finish(code))
    say_summary(target, options)
    return code


def _start(job: Job, where: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    """The job as it was typed, with this process's input and output, in its process group."""
    from stash.measure.launcher.engines import launch_command
    from stash.measure.launcher.process import SITE
    from stash.measure.protocol.orders import VARIABLE, Orders

    orders = Orders(str(folder), (), 0.0, began=time.time(), watched=True).write()
    path = os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH"))))
    words = (job.target, *job.arguments) if job.kind == "command" else launch_command(job, where)
    words = tuple(word for word in words if job.kind == "command" or word != "-u")
    return subprocess.Popen(words, env={**os.environ, VARIABLE: str(orders), "PYTHONPATH": path})


class _FailOncePoll:
    """Polls, until that fails once: the job goes on without."""

    def __init__(self, poll: Callable[[], object]) -> None:
        self._poll = poll
        self._works = True

    def __call__(self) -> None:
        self._works = self._works and _call_quietly(self._poll)


def _call_quietly(act: Callable[[], object]) -> bool:
    """Do it; an error is told, and ends nothing of the job. The value is whether there was none."""
    try:
        act()
    except Exception as error:
        with suppress(OSError):
            print(f"stash: the run is not watched any more ({error})", file=sys.stderr, flush=True)
        return False
    return True


def ask_run(path: Path, options: WatchCommandOptions) -> None:
    """Have the run of a record paused, watched again or traced; raises UserError for one that has ended."""
    from stash.monitor.records import load_record

    if any(event.what == "end" for event in load_record(path).events):
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
        raise UserError(
            f"--join {path}: nobody watches that run any more; start it again with `stash watch`"
        )
    print(
        f"stash: asked; `stash watch --join {printable_line(str(path))}` shows when it was done",
        file=sys.stderr,
    )


def follow_record(path: Path) -> None:
    """Show a record's last window whenever there is another one, until the run has ended."""
    from stash.core.jsonl import Tail
    from stash.monitor.page import page
    from stash.monitor.records import load_record, read_lines
    from stash.ui.terminal import print_page

    load_record(path)  # or say why it is none
    tail = Tail(path)
    record = read_lines(tail.read_new_lines(), str(path))
    with suppress(KeyboardInterrupt):
        while True:
            if sys.stdout.isatty():
                print("\x1b[2J\x1b[H", end="")
            print_page(page(record, path.name, live=True))
            sys.stdout.flush()
            if any(event.what == "end" for event in record.events):
                return
            while not (lines := tail.read_new_lines()):
                time.sleep(_JOIN_SECONDS)
            record = read_lines(lines, str(path), record)
