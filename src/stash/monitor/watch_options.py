"""The options of ``stash watch``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stash.core import parsers
from stash.core.errors import UserError
from stash.measure.ranks import COMMON_OF_RANKS, RankOptions
from stash.monitor.run_requests import parse_capture
from stash.store.storing import store_option
from stash.ui.arguments import ProfileCommand
from stash.ui.options import Options, flag, json_flag, option, quiet_flag

_JOB, _TELL, _MONEY = "What to watch", "Alerts and logs", "Cost"


@dataclass(frozen=True, kw_only=True)
class _WatchedOptions(Options):
    """What is watched, and against what."""

    baseline: Path | None = option(
        "FILE", "Compare the stalls with this profile of the job.", Path, panel=_JOB
    )
    force: bool = flag("Compare with the baseline even if the jobs differ.", panel=_JOB)
    output: Path | None = option(
        "FILE",
        "Write the record to this file (default: named after the job).",
        Path,
        "-o",
        "--output",
    )
    join: Path | None = option("FILE", "Follow the record of a watched run.", Path)
    epilog: Path | None = option(
        "FILE", "Print one line about this record, for a scheduler's epilog.", Path
    )
    pause: bool = flag("With --join: pause watching.")
    resume: bool = flag("With --join: resume watching.")
    capture: tuple[int, tuple[int, ...]] | None = option(
        "N[:RANKS]", "Trace N steps when an alert begins; with --join, trace now.", parse_capture
    )
    accept: bool = flag("Probe this machine first; exit with 3 if it is bad.")
    json: bool = json_flag("With --accept: print its verdict as JSON of at most 2 KB.")
    store: str | None = store_option()
    quiet: bool = quiet_flag()
    attach: int | None = option("PID", "Watch a job that is already running.", parsers.whole(1))
    stuck_after: float = option(
        "TIME",
        "After this long without a step, report each rank's stack.",
        parsers.duration,
        default="2min",
        project=parsers.duration,
    )


@dataclass(frozen=True, kw_only=True)
class _ToldOptions(Options):
    """Who hears of it, and what it costs."""

    metrics: int | None = option(
        "PORT", "Serve OpenMetrics on 127.0.0.1 at this port.", parsers.whole(1), panel=_TELL
    )
    log: tuple[str, ...] = option(
        "TOOL:WHERE",
        "Log windows to tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT.",
        many=True,
        panel=_TELL,
    )
    on_alert: str | None = option(
        "COMMAND", "Run this for each alert, given as JSON on standard input.", panel=_TELL
    )
    instance: str | None = option(
        "NAME", "Compute the bill with this machine type's price.", panel=_MONEY
    )
    total_steps: int | None = option(
        "N", "Forecast the bill of a run of N steps.", parsers.whole(1), panel=_MONEY
    )
    max_dollars: float | None = option(
        "DOLLARS",
        "Warn at 80 % and 100 % of this bill.",
        parsers.dollars,
        panel=_MONEY,
        project=parsers.dollars,
    )


@dataclass(frozen=True, kw_only=True)
class WatchCommandOptions(RankOptions, _ToldOptions, _WatchedOptions):
    """One call of ``stash watch``."""

    parsed_by: ClassVar[type] = ProfileCommand
    common: ClassVar[tuple[str, ...]] = (
        "output",
        "baseline",
        "join",
        "attach",
        "accept",
        "quiet",
        "metrics",
        "log",
        "on_alert",
        "max_dollars",
        *COMMON_OF_RANKS,
    )

    def check(self) -> None:
        from stash.monitor.watcher import words_of

        if self.on_alert is not None:
            words_of(self.on_alert)
        if (self.pause or self.resume) and self.join is None:
            raise UserError(
                "--pause and --resume ask a run that is watched already; name its record with --join"
            )
        if self.pause and self.resume:
            raise UserError("--pause and --resume exclude each other; ask for one of them")
        if self.json and not self.accept:
            raise UserError(
                "--json is of the verdict that --accept makes; of a record, use `stash show --json`"
            )
        if self.force and self.baseline is None:
            raise UserError("--force belongs to --baseline; name a profile")
