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
from stash.core.printable import print_note, printable_line
from stash.spot.commands.rented_fleet import RunOptions, run_rented
from stash.spot.commands.spot_options import EVERY_SECONDS, checkpoint_interval
from stash.ui.options import Options, argument, option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stash.lab.testbed.revoke import Revocation
    from stash.measure.host.notices import NoticeWatch
    from stash.spot.emulate.build_rehearsal import EmulatedLinks, RehearsedFleet
    from stash.spot.emulate.run_rehearsal import Rehearsal
    from stash.spot.records.fleets import FleetPlan
    from stash.spot.records.runs import SpotEvent
    from stash.spot.sync.agents import SyncOrders
    from stash.spot.sync.rehearse_sync import SyncRehearsal
    from stash.spot.train.run_orders import TrainingOrders

_SECONDS = 60.0
"""How long a rehearsal trains, unless that is given."""


def run(options: RunOptions, context: typer.Context) -> None:
    """Train a plan's fleet on rented machines; or rehearse it on emulated hosts, and take some away.

    stash spot run job.plan.json job.py:job --infra aws/us-east-1 --max-dollars 25

    stash spot run job.plan.json job.py:job --on testbed --revoke worker2@40s,notice=20s

    stash spot run job.plan.json --on local --revoke worker2@40s --sync train.py --epochs 3

    stash spot run job.plan.json --infra aws/us-east-1 --checkpoint-url s3://mine/run1 --sync train.py --epochs 3
    """
    if options.on == "cloud":
        run_rented(options, context.obj if options.sync else ())
    elif options.sync:
        _rehearse_script(options, context.obj)
    else:
        _rehearse(options)


def _rehearse(options: RunOptions) -> None:
    from stash.core.interrupts import REQUESTS, interrupted_by
    from stash.core.output_files import output_file
    from stash.lab.testbed.revoke import moments, parse_revocation
    from stash.spot.emulate.backends import TrainingBackend
    from stash.spot.emulate.build_rehearsal import orders_of, rehearsed_fleet
    from stash.spot.emulate.run_rehearsal import Rehearsal
    from stash.spot.records.runs import SPOT_LOG_SUFFIX
    from stash.spot.spot_files import read_plan
    from stash.spot.train.actors import require_ray

    job, kept, json = options.job, options.checkpoint_dir, options.json
    limit, gap = options.seconds or _SECONDS, options.checkpoint_every or EVERY_SECONDS
    revocations = [parse_revocation(text) for text in options.revoke]
    chosen_by = read_plan(options.plan)
    target = output_file(options.output, Path(job.rpartition(":")[0]).stem or "job", SPOT_LOG_SUFFIX)
    require_ray()
    chosen = rehearsed_fleet(chosen_by, job, options.on == "testbed", options.time_scale)
    names = {each.name: each.type for each in chosen.workers}
    _check_names(revocations, [*names, *chosen.servers, *sorted(set(names.values()))])
    for each in revocations:
        if each.notice is not None and each.who in chosen.servers:
            raise UserError(f"--revoke {each.who}: servers are on-demand and get no notice; leave notice= out")
        if each.at >= limit:
            raise UserError(f"--revoke {each.who}@{each.at:g}s: training ends after {limit:g} s; raise --seconds")
    with tempfile.TemporaryDirectory(prefix="stash-spot-") as folder, interrupted_by(*REQUESTS):
        place = kept or Path(folder) / "checkpoints"
        place.mkdir(parents=True, exist_ok=True)
        orders = orders_of(chosen, job, place, options.staleness, limit, options.loss, gap)
        _print_plan(chosen_by, chosen, options.staleness, json)
        taken = [_taken(names, [each]) or 1 for each in revocations]
        backend = TrainingBackend(orders, Path(folder), chosen.emulated, sum(taken))
        rehearsal = Rehearsal(orders, backend, Path(folder), moments(revocations), _event_printer(json))
        try:
            rehearsal.run()
        finally:
            _keep(rehearsal, options, chosen_by, chosen, orders, target)
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


def _check_names(revocations: Sequence[Revocation], known: Sequence[str]) -> None:
    for each in revocations:
        if each.who not in known:
            raise UserError(f"--revoke {each.who}: the plan's fleet has no such one; it has {', '.join(known)}")


def _print_plan(plan: FleetPlan, chosen: RehearsedFleet, bound: int | None, json: bool) -> None:
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


def _event_printer(json: bool, began: float | None = None) -> Callable[[SpotEvent], None]:
    """Prints events as they happen, timed from the one that says that training ``began`` unless that is known."""
    from stash.spot.pages.run_report import line

    zero = [] if began is None else [began]

    def print_event(event: SpotEvent) -> None:
        if event.what == "began" and event.at is not None:
            zero.append(event.at)
        text = line(event, zero[0] if zero else None)
        if text is not None:
            print_note(text, json)

    return print_event


def _keep(
    rehearsal: Rehearsal,
    options: RunOptions,
    plan: FleetPlan,
    chosen: RehearsedFleet,
    orders: TrainingOrders,
    target: Path,
) -> None:
    """Save the log, and show what there is; also of a run that was interrupted."""
    from stash.core.interrupts import postponed
    from stash.report.output import printed
    from stash.spot.emulate.run_rehearsal import spot_log
    from stash.spot.pages.run_report import document, page
    from stash.spot.spot_files import save_spot_log

    json, named = options.json, (options.plan, options.job, options.on)
    log = spot_log(rehearsal, named, plan, chosen, orders)
    with postponed():
        save_spot_log(log, target)
    if not json:
        print()
    if log.updates.seconds:
        printed(document(log) if json else page(log))
    print_note(f"Saved {target}; draw it with `stash report {shlex.quote(str(target))}`.", json)


def _rehearse_script(options: RunOptions, script: Sequence[str]) -> None:
    """Rehearse, print what happens, and show what it cost; raises JobError if the script fails."""
    from stash.core.interrupts import REQUESTS, interrupted_by, require_linux
    from stash.lab.testbed.revoke import moments, parse_revocation
    from stash.spot.emulate.build_rehearsal import emulated_links, machines
    from stash.spot.emulate.hosts import EmulatedHosts, ThisMachine
    from stash.spot.spot_files import read_plan
    from stash.spot.sync.agents import SyncOrders, TorchrunAgents
    from stash.spot.sync.rehearse_sync import Listeners, SyncRehearsal

    require_linux("stash spot run --sync")
    on, least, kept, json = options.on, options.min_nodes, options.checkpoint_dir, options.json
    revocations = [parse_revocation(text) for text in options.revoke]
    if not Path(script[0]).is_file():
        raise UserError(f"there is no script {script[0]}; after --sync comes a Python file, then its arguments")
    chosen = read_plan(options.plan)
    types = {f"worker{number}": each.name for number, each in enumerate(machines(chosen), start=1)}
    spares = _taken(types, revocations)
    _check_nodes(len(types), least, 0 if on == "local" else 1 + spares)
    _check_names(revocations, [*types, *sorted(set(types.values()))])
    links = None if on == "local" else emulated_links(chosen.pool, len(types), options.time_scale)
    interval, why = checkpoint_interval(chosen, options.checkpoint_every)

    def print_line(name: str, text: str) -> None:
        print(printable_line(f"{name} | {text}"), file=sys.stderr if json else sys.stdout, flush=True)

    with tempfile.TemporaryDirectory(prefix="stash-sync-") as folder, interrupted_by(*REQUESTS):
        place = (kept or Path(folder) / "checkpoints").resolve()
        place.mkdir(parents=True, exist_ok=True)
        # Each loss may break the script of those that stay, and break it once more while it starts again.
        orders = SyncOrders(tuple(script), tuple(types), least, 2 * spares, place, interval)
        _print_script(orders, why, links, chosen, json)
        hosts: ThisMachine | EmulatedHosts = ThisMachine(Path(folder))
        if links is not None:
            hosts = EmulatedHosts(orders.nodes, spares, links.node_rate, links.head_rate)
        agents = TorchrunAgents(orders, Path(folder), hosts)
        listeners = Listeners(_event_printer(json, 0.0), print_line)
        rehearsal = SyncRehearsal(orders, agents, types, moments(revocations), listeners)
        try:
            rehearsal.run(options.seconds or _SECONDS)
        finally:
            _show(rehearsal, orders, options, why)
    if kept is not None:
        print_note(f"The checkpoints are in {shlex.quote(str(kept))}; run it again to train on.", json)


def _check_nodes(nodes: int, least: int, others: int) -> None:
    """``others``: hosts besides those of the nodes."""
    from stash.lab.testbed.topology import MAX_NODES

    most = MAX_NODES - others
    if nodes > most:
        raise UserError(f"the plan has {nodes} workers; this machine plays {most} at most")
    if least > nodes:
        raise UserError(f"--min-nodes {least}: the plan has {nodes} workers; ask for no more than that")


def _taken(types: Mapping[str, str], revocations: Sequence[Revocation]) -> int:
    """Nodes that are taken away, as many as there are successors; ``types`` by their names."""
    return sum(each.who in (name, kind) for each in revocations for name, kind in types.items())


def _print_script(orders: SyncOrders, why: str, links: EmulatedLinks | None, plan: FleetPlan, json: bool) -> None:
    from stash.core.units import format_bytes, format_seconds
    from stash.spot.sync.agents import SETTINGS, torchrun

    variables = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
    words = shlex.join(torchrun(orders, "HEAD:PORT", "ID"))
    print_note(f"Each node: {variables} stash spot guard CHECKPOINTS -- torchrun {words}", json)
    print_note(
        f"A checkpoint every {format_seconds(orders.every)}, {why}; one more at a notice, if there is time.", json
    )
    if links is None:
        print_note("Every node is one process here; links are not shaped, so no speed is predicted.", json)
        return
    rate, planned = format_bytes(links.node_rate), format_bytes(plan.pool.worker_bytes_per_second)
    slow = f", {links.slower:g} times slower than the plan's {planned}/s" if links.slower != 1 else ", as planned"
    print_note(f"Every node is an emulated host, its link {rate}/s each way{slow}.", json)
    print_note("The script computes as fast as this machine does, so no speed is predicted.", json)


def _show(rehearsal: SyncRehearsal, orders: SyncOrders, options: RunOptions, why: str) -> None:
    """Also of a rehearsal that was interrupted."""
    from stash.core.version import __version__
    from stash.report.output import printed
    from stash.spot.pages.run_report import document_of_setbacks, page_of_setbacks
    from stash.spot.records.runs import SyncLog

    began, ended = rehearsal.began, rehearsal.ended
    log = SyncLog(
        stash_version=__version__,
        plan=str(options.plan),
        script=orders.script,
        on=options.on,
        nodes=len(orders.nodes),
        least=orders.least,
        checkpoint_seconds=orders.every,
        checkpoint_why=why,
        reason=rehearsal.reason,
        seconds=None if began is None or ended is None else ended - began,
        restarts=rehearsal.restarts,
        setbacks=rehearsal.setbacks,
        events=tuple(rehearsal.events),
    )
    if not options.json:
        print()
    printed(document_of_setbacks(log) if options.json else page_of_setbacks(log))


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
