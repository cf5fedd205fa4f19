"""``stash spot run`` and ``stash spot guard``: trains as a plan says, or rehearses that here with revocations."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stash.core import parsers
from stash.core.errors import JobError, UserError
from stash.core.printable import printable_line
from stash.spot.commands.rented_fleet import (
    SECONDS,
    RunOptions,
    run_rented,
    run_rented_sync,
    run_sync,
)
from stash.spot.commands.spot_options import print_note
from stash.ui.options import Options, argument, option

if TYPE_CHECKING:
    from collections.abc import Callable

    from stash.lab.testbed.revoke import Revocation
    from stash.measure.host.notices import NoticeWatch
    from stash.spot.emulate.build_rehearsal import Cast
    from stash.spot.emulate.run_rehearsal import Rehearsal
    from stash.spot.records.fleets import FleetPlan
    from stash.spot.records.runs import SpotEvent
    from stash.spot.train.run_orders import TrainingOrders

_EVERY = 20.0
"""Seconds between checkpoints of a rehearsal, unless they are given."""


def run(options: RunOptions, context: typer.Context) -> None:
    """Train a plan's fleet on rented machines; or rehearse it on emulated hosts, and take some away.

    stash spot run job.plan.json job.py:job --infra aws/us-east-1 --max-dollars 25

    stash spot run job.plan.json job.py:job --on testbed --revoke worker2@40s,notice=20s

    stash spot run job.plan.json --on local --revoke worker2@40s --sync train.py --epochs 3

    stash spot run job.plan.json --infra aws/us-east-1 --checkpoint-url s3://mine/run1 --sync train.py --epochs 3
    """
    rented = options.on == "cloud"
    if options.sync:
        script = context.obj
        run_rented_sync(options, script) if rented else run_sync(options, script)
    elif rented:
        run_rented(options)
    else:
        _rehearse(options)


def _rehearse(options: RunOptions) -> None:
    from stash.core.interrupts import REQUESTS, interrupted_by
    from stash.lab.testbed.revoke import parse_revocation
    from stash.report.output import output_file
    from stash.spot.emulate.build_rehearsal import cast, orders_of
    from stash.spot.records.runs import SPOT_LOG_SUFFIX
    from stash.spot.spot_files import read_plan
    from stash.spot.train.actors import require_ray

    plan, job, kept, json = options.plan, options.job, options.checkpoint_dir, options.json
    limit, gap = options.seconds or SECONDS, options.checkpoint_every or _EVERY
    revocations = [parse_revocation(text) for text in options.revoke]
    chosen_by = read_plan(plan)
    target = output_file(options.output, Path(job.rpartition(":")[0]).stem or "job", SPOT_LOG_SUFFIX)
    require_ray()
    chosen = cast(chosen_by, job, options.on == "testbed", options.time_scale)
    _check_revocations(revocations, chosen, limit)
    with tempfile.TemporaryDirectory(prefix="stash-spot-") as folder, interrupted_by(*REQUESTS):
        place = kept or Path(folder) / "checkpoints"
        place.mkdir(parents=True, exist_ok=True)
        orders = orders_of(chosen, job, place, options.staleness, limit, options.loss, gap)
        _print_plan(chosen_by, chosen, options.staleness, json)
        rehearsal = _rehearsal(chosen, orders, revocations, Path(folder), json)
        try:
            rehearsal.run()
        finally:
            _keep(rehearsal, (plan, job, options.on), chosen_by, chosen, orders, target, json)
    if rehearsal.account.died:
        raise JobError(f"{rehearsal.account.reason}; {_resume(options)}")
    if rehearsal.account.error is not None:
        raise rehearsal.account.error
    if kept is not None:
        print_note(f"The model is in {shlex.quote(str(kept / 'model.pt'))}; run it again to train on.", json)


def _resume(options: RunOptions) -> str:
    """How to go on where a run ended that could not save: what to type. Machines are not taken away twice."""
    again = ["stash", "spot", "run", str(options.plan), options.job, "--on", options.on]
    again += options.retyped("seconds", "loss", "staleness", "time_scale")
    kept = options.checkpoint_dir
    again += ["--checkpoint-dir", "FOLDER" if kept is None else str(kept)]
    again += options.retyped("checkpoint_every", "output")
    if kept is None:
        return f"without --checkpoint-dir nothing is kept; start it again with `{shlex.join(again)}`"
    if not any(kept.glob("*.ckpt")):
        return f"no checkpoint was written yet; start it again with `{shlex.join(again)}`"
    return f"resume from its last checkpoint with `{shlex.join(again)}`"


def _check_revocations(revocations: list[Revocation], chosen: Cast, limit: float) -> None:
    known = [
        *(each.name for each in chosen.workers),
        *chosen.servers,
        *sorted({each.type for each in chosen.workers}),
    ]
    for each in revocations:
        if each.who not in known:
            raise UserError(f"--revoke {each.who}: the plan's fleet has no such one; it has {', '.join(known)}")
        if each.notice is not None and each.who in chosen.servers:
            raise UserError(f"--revoke {each.who}: servers are on-demand and get no notice; leave notice= out")
        if each.at >= limit:
            raise UserError(f"--revoke {each.who}@{each.at:g}s: training ends after {limit:g} s; raise --seconds")


def _print_plan(plan: FleetPlan, chosen: Cast, bound: int | None, json: bool) -> None:
    from stash.core.units import counted, format_bytes
    from stash.spot.pages.fleet_plan import fleet

    assert plan.chosen is not None
    speed = chosen.speed(plan, plan.chosen.workers, bound)
    who = f"{fleet(plan.chosen.workers)}, {counted(len(chosen.servers), 'server')}"
    print_note(f"{who}; {format_bytes(chosen.exchange_bytes)} each way an update", json)
    if chosen.emulated is None:
        print_note("On this machine alone: links are not shaped, so no speed is predicted.", json)
    elif speed is not None:
        slow = chosen.emulated.slower
        played = f", played {slow:g} times slower" if slow != 1 else ""
        print_note(f"Predicted: {speed * slow:.3g} updates/s{played}.", json)


def _rehearsal(
    chosen: Cast, orders: TrainingOrders, revocations: list[Revocation], folder: Path, json: bool
) -> Rehearsal:
    from stash.lab.testbed.revoke import moments
    from stash.spot.emulate.backends import TrainingBackend
    from stash.spot.emulate.run_rehearsal import Rehearsal

    taken = [sum(name.who in (each.name, each.type) for each in chosen.workers) or 1 for name in revocations]
    backend = TrainingBackend(orders, folder, chosen.emulated, sum(taken))
    return Rehearsal(orders, backend, folder, moments(revocations), _event_printer(json))


def _event_printer(json: bool) -> Callable[[SpotEvent], None]:
    from stash.spot.pages.run_report import line

    began: list[float] = []

    def print_event(event: SpotEvent) -> None:
        if event.what == "began" and event.at is not None:
            began.append(event.at)
        text = line(event, began[0] if began else None)
        if text is not None:
            print_note(text, json)

    return print_event


def _keep(
    rehearsal: Rehearsal, named: tuple[Path, str, str], plan: FleetPlan, chosen: Cast, orders: TrainingOrders,
    target: Path, json: bool,
) -> None:  # fmt: skip
    """Save the log, and show what there is; also of a run that was interrupted."""
    from stash.core.interrupts import postponed
    from stash.report.output import printed
    from stash.spot.emulate.run_rehearsal import spot_log
    from stash.spot.pages.run_report import document, page
    from stash.spot.spot_files import save_spot_log

    log = spot_log(rehearsal, named, plan, chosen, orders)
    with postponed():
        save_spot_log(log, target)
    if not json:
        print()
    if log.updates.seconds:
        printed(document(log) if json else page(log))
    print_note(f"Saved {target}; draw it with `stash report {shlex.quote(str(target))}`.", json)


@dataclass(frozen=True, kw_only=True)
class GuardOptions(Options):
    """One call of ``stash spot guard``."""

    folder: Path = argument("FOLDER", "Of the script's checkpoints; all nodes must see it.", Path)
    command: tuple[str, ...] = argument("-- COMMAND", "torchrun with all it takes.", many=True)
    grace: float = option("TIME", "What a SIGTERM leaves until the kill.", parsers.duration, default="30s")
    head: str | None = option("HOST:PORT", "Where a rented gang meets; needs --name and $STASH_RUN_TOKEN.")
    name: str | None = option("NAME", "What this node is called there.")


def guard(options: GuardOptions) -> None:
    """Run a node's torchrun, and save a checkpoint when the node gets notice that it will be taken away.

    Watches the metadata services of AWS, GCP and Azure, and SIGTERM. Ends with the command's exit code.

    stash spot guard /shared/kept -- torchrun --nnodes=2:4 --rdzv-backend=c10d train.py
    """
    from stash.core.interrupts import require_linux
    from stash.measure.host.notices import NoticeWatch, services
    from stash.spot.rented.notice_guard import NodeGuard

    require_linux("stash spot guard")
    place, command = options.folder.resolve(), list(options.command)
    place.mkdir(parents=True, exist_ok=True)
    watch = NoticeWatch(services(Path("/")))
    if options.head is not None or options.name is not None:
        raise typer.Exit(_of_gang(command, place, options.grace, options.head, options.name, watch))
    raise typer.Exit(NodeGuard(command, place, options.grace, _say).run(watch))


def _of_gang(
    command: list[str], place: Path, grace: float, head: str | None, name: str | None, watch: NoticeWatch
) -> int:
    from stash.core.membership import TOKEN
    from stash.spot.rented.node_agent import RentedNode
    from stash.spot.sync.rendezvous import board_at

    token = os.environ.get(TOKEN)
    if head is None or name is None or not token:
        raise UserError(f"--head, --name and ${TOKEN} belong together; give all of them, or none")
    address, _, port = head.rpartition(":")
    if not address or not port.isdecimal():
        raise UserError(f"--head {head!r}: write it like 10.0.0.5:29400")
    with tempfile.TemporaryDirectory(prefix="stash-node-") as notes:
        node = RentedNode(command, name, place, Path(notes), grace, token, _say)
        return node.run(watch, lambda: board_at(address, int(port), token))


def _say(text: str) -> None:
    print(printable_line(f"stash: {text}"), file=sys.stderr, flush=True)
