"""A watch as it begins and ends: its watcher with the record and who is told of it, and its summary."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from stash.core.documents import is_watch_record
from stash.core.errors import ArtefactError, UserError
from stash.core.output_files import output_file
from stash.core.printable import has_colours, print_written, printable_line
from stash.core.version import __version__
from stash.measure.protocol.folder import start_of_machine
from stash.monitor.baseline import RunBaseline, load_baseline
from stash.monitor.money import price_of
from stash.monitor.page import summary
from stash.monitor.records import SUFFIX, Alert, Header, RecordWriter, RunEvent, load_record
from stash.monitor.trackers import open_tracker
from stash.monitor.watch_metrics import MetricsServer
from stash.monitor.watch_options import WatchCommandOptions
from stash.monitor.watch_state import WatchOptions
from stash.monitor.watcher import LineListener, NodeWatcher
from stash.ui.project import read_power_price
from stash.ui.terminal import render


def say_summary(target: Path, options: WatchCommandOptions) -> None:
    """Say on standard error, which is not the job's answer, what the run was; another node's watcher has none."""
    if options.quiet:
        return

    with suppress(OSError, ArtefactError):
        text = render(
            summary(load_record(target), target.name),
            shutil.get_terminal_size().columns,
            has_colours(sys.stderr.isatty(), os.environ),
        )
        print(f"\n{text}", file=sys.stderr, flush=True)
        print_written(target, True, f"; `stash report {target}` draws the run over time")


def begin_watch(
    folder: Path,
    title: str,
    command: tuple[str, ...],
    nodes: int,
    options: WatchCommandOptions,
    began: float | None = None,
) -> tuple[NodeWatcher, Path]:
    """A watcher of the rings in ``folder``, and where its record is; raises UserError for what cannot be done.

    ``began`` is when the run was first listened to, if that was before now, in seconds since 1970.
    """
    baseline = (
        None if options.baseline is None else load_baseline(options.baseline, title, options.force)
    )
    header = _make_header(title, command, nodes, options, baseline, began or time.time())
    listeners: list[LineListener] = [open_tracker(where, header) for where in options.log]
    if options.metrics is not None:
        listeners.append(MetricsServer(options.metrics, header))
    listeners.append(_AlertPrinter())
    chosen = WatchOptions(
        options.stuck_after,
        options.on_alert,
        options.max_dollars,
        options.force,
        None if options.capture is None else options.capture[0],
    )
    stem = title.removesuffix(".py").removesuffix(".sh").replace("/", "-")
    while True:
        target = output_file(options.output, stem, SUFFIX)
        goes_on = options.output is not None and is_watch_record(str(target)) and target.exists()
        try:
            record = RecordWriter(target, header, goes_on=goes_on)
            watcher = NodeWatcher(folder, record, header, chosen, baseline, listeners)
        except UserError:
            # another node's watcher took that name meanwhile, on a disk that they share
            if options.output is not None or not target.exists():
                raise
            continue
        if not options.quiet:
            print(
                f"stash: watching {title}; follow it with `stash watch --join {target}`",
                file=sys.stderr,
            )
        return watcher, target


def _make_header(
    title: str,
    command: tuple[str, ...],
    nodes: int,
    options: WatchCommandOptions,
    baseline: RunBaseline | None,
    began: float,
) -> Header:
    price = price_of(options.instance, nodes, options.max_dollars is not None)
    return Header(
        id=secrets.token_hex(8),
        stash_version=__version__,
        began=began,
        job=title,
        command=command,
        nodes=nodes,
        booted=None if price is None else start_of_machine() or None,
        baseline=None if baseline is None else baseline.source,
        baseline_stalls={} if baseline is None else baseline.split,
        price=price,
        dollars_per_kwh=read_power_price(Path.cwd()),
        planned_steps=options.total_steps,
    )


class _AlertPrinter:
    """Alerts, on standard error."""

    def receive_line(self, line: object) -> None:
        if isinstance(line, Alert) or (isinstance(line, RunEvent) and line.what != "end"):
            with suppress(OSError):  # a disk that is full, a pipe that nobody reads
                print(f"stash: {printable_line(line.text)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is kept."""
