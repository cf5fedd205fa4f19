"""``stash spot run`` and ``stash spot guard``: rehearses a plan here with revocations, or rents it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from stash.api import NoticeWatch, load_catalog, notice_services, print_answer
from stash.core import parsers
from stash.core.errors import JobError, UserError
from stash.core.imports import missing_package
from stash.core.interrupts import REQUESTS, interrupted_by, postpone_requests, require_linux
from stash.core.output_files import output_file
from stash.core.printable import print_note, print_written, printable, printable_line
from stash.core.secrets import mask_text
from stash.spot.fleet_records import FleetPlan
from stash.spot.pages.run_report import line, page
from stash.spot.run_records import SPOT_LOG_SUFFIX, SpotEvent
from stash.spot.spot_files import read_plan, save_spot_log
from stash.spot.sync.notice_guard import NodeGuard
from stash.spot.train.run_orders import TrainingOrders
from stash.ui.options import Options, argument, flag, option

if TYPE_CHECKING:
    from stash.spot.emulate.run_rehearsal import Rehearsal

_SECONDS = 60.0
_EVERY_SECONDS = 20.0
"""How long a rehearsal trains, and between checkpoints, unless that is given."""
RunPlace = Literal["cloud", "local"]
RUN_PLACES: Mapping[str, RunPlace] = {"cloud": "cloud", "local": "local"}
_RENTED = "Machines to rent (--on cloud)"
_HERE = "Training here (--on local)"


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """One call of ``stash spot run``."""

    plan: Path = argument("PLAN", "A plan of `stash spot plan -o`.", Path)
    job: str = argument("FILE.py:JOB", "File and name of a stash.spot.Job, like job.py:job.")
    on: RunPlace = option(
        "PLACE",
        "Train on this machine (local), or on rented ones (cloud).",
        parsers.one_of(RUN_PLACES),
        default="cloud",
    )
    infra: str | None = option(
        "CLOUD/REGION", "Rent here, like aws/us-east-1 or kubernetes.", panel=_RENTED
    )
    checkpoint_url: str | None = option(
        "URL", "Keep checkpoints in this bucket (default: the server's disk).", panel=_RENTED
    )
    max_dollars: float | None = option(
        "DOLLARS",
        "End every machine before they cost more than this.",
        parsers.dollars,
        panel=_RENTED,
    )
    rent: bool = flag("Run the script, after asking.", panel=_RENTED)
    revoke: tuple[str, ...] = option(
        "WHO@TIME",
        "Revoke a worker (worker2@40s,notice=20s) or a type (v100@1min); repeatable.",
        panel=_HERE,
        many=True,
    )
    seconds: float | None = option(
        "TIME", "Train for at most this long (default 60s).", parsers.duration, panel=_HERE
    )
    loss: float | None = option(
        "LOSS", "Stop when the running mean of the loss reaches this.", parsers.number, panel=_HERE
    )
    checkpoint_dir: Path | None = option(
        "FOLDER", "Save to and resume from this folder (default: no resuming).", Path, panel=_HERE
    )
    checkpoint_every: float | None = option(
        "TIME", "Save a checkpoint this often (default 20s).", parsers.duration, panel=_HERE
    )
    output: Path | None = option(
        "FILE", "Write the log to this file.", Path, "--output", "-o", panel=_HERE
    )

    def check(self) -> None:
        if self.on != "cloud":
            self._refuse(
                f"is of machines to rent, and --on {self.on} rents none; leave it out",
                "infra",
                "checkpoint_url",
                "max_dollars",
                "rent",
            )
            return
        if self.rent and self.max_dollars is None:
            raise UserError(
                "--rent starts machines that cost money; limit it, like --max-dollars 40"
            )
        self._refuse(
            "is of training here; add --on local",
            *("revoke", "seconds", "loss", "checkpoint_dir", "checkpoint_every", "output"),
        )

    def _refuse(self, why: str, *names: str) -> None:
        given = self.list_given(*names)
        if given:
            raise UserError(f"{given[0]} {why}")


def run(options: RunOptions) -> None:
    """Train a plan's fleet here, or rent it with SkyPilot.

    Examples:
      stash spot run job.plan.json job.py:job --on local --revoke worker2@40s,notice=20s
      stash spot run job.plan.json job.py:job --infra aws/us-east-1 > rent.sh
      stash spot run job.plan.json job.py:job --infra aws/us-east-1 --max-dollars 40 --rent
    """
    if options.on == "cloud":
        _rent(options)
    else:
        _rehearse(options)


def _rent(options: RunOptions) -> None:
    """Print the script that rents the plan's machines; with ``--rent``, run it once the user agrees."""
    from stash.spot.sky_tasks import check_prices, job_in, rent_script, rented_place

    if options.infra is None:
        raise UserError(
            "name the cloud and its region with --infra, like --infra aws/us-east-1 (or kubernetes); to train here, "
            "add --on local"
        )
    plan = read_plan(options.plan)
    work = Path.cwd().resolve()
    check_prices(plan, date.today())
    place = rented_place(plan, options.infra, options.checkpoint_url, load_catalog())
    script = rent_script(plan, place, job_in(work, options.job), work, options.max_dollars)
    if options.rent:
        # Raise UserError where the user cannot agree to anything, or SkyPilot is missing.
        if shutil.which("sky") is None:
            raise missing_package("skypilot", "renting")
        if not sys.stdin.isatty():
            raise UserError(
                "--rent asks before it starts machines: run it in a terminal, or save the script and run it"
            )
    print(printable(mask_text(script.text)), end="", flush=True)
    if not options.rent:
        print_note("Nothing was rented. Save this script, read it, and run it with bash.", True)
        return
    answer = input(f"Rent these machines, for ${options.max_dollars:g} at most? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        print_note("Nothing was rented.", True)
        return
    print_note(f"To end all of it, at any time: {'; '.join(script.end)}", True)
    status = subprocess.run(["bash", "-c", script.text], check=False).returncode
    if status:
        raise JobError(
            f"renting failed with status {status}; what was started still runs: end it as said above"
        )
    print_note(f"To follow it: {script.follow}", True)
    print_note(f"To fetch what it leaves: {script.fetch}", True)


def _rehearse(options: RunOptions) -> None:
    from stash.spot.emulate.build_rehearsal import (
        check_revocation,
        parse_revocation,
        rehearsal_orders,
    )
    from stash.spot.emulate.run_rehearsal import Rehearsal, TrainingBackend
    from stash.spot.train.actors import require_ray

    job = options.job
    kept = options.checkpoint_dir
    limit = options.seconds or _SECONDS
    revocations = [parse_revocation(text) for text in options.revoke]
    chosen_by = read_plan(options.plan)
    target = output_file(
        options.output, Path(job.rpartition(":")[0]).stem or "job", SPOT_LOG_SUFFIX
    )
    require_ray()
    with tempfile.TemporaryDirectory(prefix="stash-spot-") as folder, interrupted_by(*REQUESTS):
        place = kept or Path(folder) / "checkpoints"
        place.mkdir(parents=True, exist_ok=True)
        every = options.checkpoint_every or _EVERY_SECONDS
        orders = rehearsal_orders(chosen_by, job, place, limit, options.loss, every)
        for each in revocations:
            check_revocation(each, orders)
        backend = TrainingBackend(orders, Path(folder))
        rehearsal = Rehearsal(orders, backend, Path(folder), revocations, _print_events())
        try:
            rehearsal.run()
        finally:
            _keep(rehearsal, options, chosen_by, orders, target)
    if rehearsal.account.died:
        raise JobError(f"{rehearsal.account.reason}; {_resume(kept)}")
    if rehearsal.account.error is not None:
        raise rehearsal.account.error
    if kept is not None:
        print_note(
            f"The model is in {shlex.quote(str(kept / 'model.pt'))}; run it again to train on.",
            False,
        )


def _print_events() -> Callable[[SpotEvent], None]:
    """Print each event with the time since training began."""
    began: list[float] = []

    def print_event(event: SpotEvent) -> None:
        if event.what == "began" and event.at is not None:
            began.append(event.at)
        text = line(event, began[0] if began else None)
        if text is not None:
            print_note(text, False)

    return print_event


def _resume(kept: Path | None) -> str:
    """How to go on where a run ended that could not save."""
    if kept is None:
        return "without --checkpoint-dir nothing is kept: start it again with one"
    if not any(kept.glob("*.ckpt")):
        return "no checkpoint was written yet: start it again"
    return "the same command without --revoke resumes from its last checkpoint"


def _keep(
    rehearsal: Rehearsal,
    options: RunOptions,
    plan: FleetPlan,
    orders: TrainingOrders,
    target: Path,
) -> None:
    """Save the log, and show what there is; also of a run that was interrupted."""
    from stash.spot.emulate.run_rehearsal import spot_log

    named = (options.plan, options.job, options.on)
    log = spot_log(rehearsal, named, plan, orders)
    with postpone_requests():
        save_spot_log(log, target)
    print()
    if log.updates.seconds:
        print_answer(page(log))
    print_written(target, False, f"; draw it with `stash report {shlex.quote(str(target))}`")


@dataclass(frozen=True, kw_only=True)
class GuardOptions(Options):
    """One call of ``stash spot guard``."""

    folder: Path = argument(
        "FOLDER", "The folder of the script's checkpoints, shared by all nodes.", Path
    )
    command: tuple[str, ...] = argument("-- COMMAND", "torchrun with its own arguments.", many=True)


def guard(options: GuardOptions) -> None:
    """Run torchrun, and save a checkpoint when the node gets notice.

    It watches the metadata services of AWS, GCP and Azure, and SIGTERM. The exit code is the command's.

    Examples:
      stash spot guard /shared/kept -- torchrun --nnodes=2:4 --rdzv-backend=c10d train.py
    """
    require_linux("stash spot guard")
    place = options.folder.resolve()
    command = list(options.command)
    place.mkdir(parents=True, exist_ok=True)
    watch = NoticeWatch(notice_services(Path("/")))
    raise typer.Exit(NodeGuard(command, place, _say).run(watch))


def _say(text: str) -> None:
    print(printable_line(f"stash: {text}"), file=sys.stderr, flush=True)
