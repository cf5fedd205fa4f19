"""``stash spot run`` on rented machines, and for synchronous scripts: prints what it would do unless told to do
it.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stash.core.errors import StashError, UserError
from stash.core.printable import printable, printable_line
from stash.core.secrets import masked_text
from stash.spot.commands.spot_options import checkpoint_interval, told
from stash.ui.options import OneCommand, positive, seconds_of

if TYPE_CHECKING:
    from stash.lab.testbed.revoke import Revocation
    from stash.spot.emulate.build_rehearsal import EmulatedLinks
    from stash.spot.records.fleets import FleetPlan
    from stash.spot.records.runs import SpotEvent, SyncLog
    from stash.spot.rented.rent_controller import FleetOutcome, RentPolicy
    from stash.spot.rented.replace_machines import TrainingProgress
    from stash.spot.rented.tasks import RentRequest
    from stash.spot.sync.agents import SyncOrders
    from stash.spot.sync.rehearse_sync import Listeners, SyncRehearsal

# Rented ----------------------------------------------------------------------------------------------------
# ``stash spot run --on cloud``: a plan's fleet on rented machines; prints what it would do, unless told to do it.
#
# Parses, checks and shows; ``rent/spot`` rents, follows and ends.


def run_rented(
    plan: Path, job: str, infra: str | None, max_cost: float | None, bucket: str | None, yes: bool
) -> None:
    """Print every YAML and command, and with ``yes`` run them until the loss is reached or the money is spent."""
    from stash import catalog
    from stash.spot.rented import rent_request
    from stash.spot.rented.replace_machines import FleetPolicy
    from stash.spot.spot_files import read_plan

    if infra is None:
        raise UserError("name the cloud and its region with --infra, like --infra aws/us-east-1 (or kubernetes)")
    folder = rent_request.run_folder(plan, Path.cwd().resolve())
    request = rent_request.request(read_plan(plan), job, infra, folder, catalog.load(), date.today(), bucket)
    again = ["stash", "spot", "run", str(plan), job, "--infra", infra]
    if agreed(request, max_cost, again, [], yes):
        assert max_cost is not None
        policy = FleetPolicy(request)
        _finish(run_controller(policy, request, max_cost), policy.progress)


def agreed(request: RentRequest, max_cost: float | None, again: list[str], then: list[str], yes: bool) -> bool:
    """Whether it is to be rented; else all of it was printed, and the words that rent it: ``again … then``."""
    from stash.core.interrupts import require_linux
    from stash.spot.rented import rent_request

    if max_cost is not None:
        rent_request.within_cap(request, max_cost)
    if not yes:
        print(printable(masked_text(_script(request))), end="")
        cost = ["--max-cost", "DOLLARS" if max_cost is None else f"{max_cost:g}", "--yes"]
        print(printable_line(f"Nothing was rented. To rent it: {shlex.join([*again, *cost, *then])}", 2000))
        return False
    require_linux("stash spot run")
    if max_cost is None:
        raise UserError("say what it may cost at most with --max-cost DOLLARS; without --yes its price is printed")
    print(printable_line(_price(request)))
    return True


def _script(request: RentRequest) -> str:
    """All that would be written and run, in order."""
    from stash.spot.rented import tasks

    parts = [f"# {_price(request)}", request.server_task().describe()]
    for number, kind in enumerate(tasks.first_workers(request), start=1):
        parts.append(request.worker_task(number, kind, "ADDRESS", kind.fixed).describe())
    secret = f"# {request.secret} holds {' and '.join(request.secret_variables)}, made anew when machines are rented"
    head = "# ADDRESS is the server's private address: what `" + shlex.join(tasks.address(request)) + "` prints"
    return "\n\n".join([*parts, f"{secret}\n{head}"]) + "\n"


def _price(request: RentRequest) -> str:
    from stash.core.formatting import listed
    from stash.core.units import counted, format_seconds
    from stash.spot.rented.tasks import dollars_at_most, first_workers

    plan, workers = request.plan, first_workers(request)
    hour = request.server_dollars + sum(dollars_at_most(kind) for kind in workers)
    on_demand = sum(kind.fixed for kind in workers)
    who = [
        counted(request.servers, "server"),
        *([counted(len(workers) - on_demand, "spot worker")] if on_demand < len(workers) else []),
        *([f"{counted(on_demand, 'worker')} on demand"] if on_demand else []),
    ]
    assert plan.chosen is not None
    text = (
        f"{request.name}: {listed(who)}, "
        f"${hour:.2f} an hour by prices of {plan.pool.as_of} and a tenth; planned: "
        f"{format_seconds(plan.chosen.seconds)}, ${plan.chosen.dollars:.2f}. SkyPilot's jobs controller comes on top."
    )
    prices = [dollars_at_most(kind, on_demand=True) for kind in plan.pool.types if kind.on_demand_price]
    if not prices:
        return text
    return f"{text} Where no spot ones are in time, workers come on demand, ${max(prices):.2f} an hour each at most."


def run_controller(policy: RentPolicy, request: RentRequest, max_cost: float) -> FleetOutcome:
    """To its end, going on where an earlier one was killed."""
    from stash.core.interrupts import REQUESTS, interrupted_by
    from stash.spot.rented.rent_controller import RentController
    from stash.study import study_folder
    from stash.study.backend import JobBackend, open_leases, spent
    from stash.study.programs import SystemPrograms

    programs = SystemPrograms()
    if not programs.has("sky"):
        raise UserError("there is no program 'sky' on PATH; install SkyPilot with: pip install 'skypilot[aws]'")
    with request.folder.held(), interrupted_by(*REQUESTS):
        events = study_folder.read(request.folder.journal)
        backend = JobBackend(request.folder, programs, spent(events))
        return RentController(request, policy, backend, say, max_cost).run(open_leases(events))


def say(text: str) -> None:
    print(printable_line(masked_text(text), 600), flush=True)


def _finish(outcome: FleetOutcome, progress: TrainingProgress) -> None:
    loss = "not known" if progress.loss is None else f"{progress.loss:.4g}"
    say(f"{outcome.reason}: loss {loss} after {progress.updates:,} updates, ${outcome.dollars:.2f} at most.")
    if outcome.fetched is not None:
        say(f"The model and its checkpoints are in {shlex.quote(outcome.fetched)}.")
    judged(outcome, "The loss was not reached")


def judged(outcome: FleetOutcome, otherwise: str) -> None:
    """Raise StashError where something may still run, and end with 1 where the training is not complete."""
    if outcome.left:
        raise StashError("\n".join(outcome.left))
    if not outcome.reached:
        print(f"{otherwise}; the sentences above say why.", file=sys.stderr)
        raise typer.Exit(1)


# Together --------------------------------------------------------------------------------------------------
# ``stash spot run PLAN --sync SCRIPT ARGS``: rehearses a synchronous script under torchrun, and takes nodes away.
#
# Parses, checks and shows; ``spot/sync/rehearse_sync.py`` rehearses.

_SYNC = "--sync"


class RunCommand(OneCommand):
    """All that follows ``--sync`` is a script and its arguments, whatever it looks like: ``ctx.obj``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if _SYNC in args:
            first = args.index(_SYNC)
            ctx.obj = tuple(args[first + 1 :])
            args = [*args[: first + 1], "--", *ctx.obj[:1]]
        return super().parse_args(ctx, args)


def refuse_given(options: Mapping[str, object]) -> None:
    """Raise UserError for the first that was given: they are of asynchronous jobs, or of rented machines."""
    name = next((name for name, value in options.items() if value is not None and value is not False), None)
    if name is not None:
        raise UserError(f"{name} means nothing with --sync, where a script of your own trains; leave it out")


def run_sync(
    plan: Path, script: Sequence[str], on: str, least: int, revoke: Sequence[str], seconds: str,
    slower: float | None, kept: Path | None, every: str | None, json: bool,
) -> None:  # fmt: skip
    """Rehearse, tell what happens, and show what it cost; raises JobError if the script fails."""
    from stash.core.interrupts import REQUESTS, interrupted_by, require_linux
    from stash.lab.testbed.revoke import moments, parse_revocation
    from stash.spot.emulate.build_rehearsal import machines
    from stash.spot.emulate.hosts import EmulatedHosts, ThisMachine
    from stash.spot.spot_files import read_plan
    from stash.spot.sync.agents import SyncOrders, TorchrunAgents
    from stash.spot.sync.rehearse_sync import SyncRehearsal

    require_linux("stash spot run --sync")
    limit, revocations = seconds_of("--seconds", seconds), [parse_revocation(text) for text in revoke]
    if not Path(script[0]).is_file():
        raise UserError(f"there is no script {script[0]}; after --sync comes a Python file, then its arguments")
    chosen = read_plan(plan)
    types = {f"worker{number}": each.name for number, each in enumerate(machines(chosen), start=1)}
    spares = _taken(types, revocations)
    _check(types, least, revocations, 0 if on == "local" else 1 + spares)
    links = None if on == "local" else _links(chosen, len(types), slower)
    interval, why = checkpoint_interval(chosen, every)
    with tempfile.TemporaryDirectory(prefix="stash-sync-") as folder, interrupted_by(*REQUESTS):
        place = (kept or Path(folder) / "checkpoints").resolve()
        place.mkdir(parents=True, exist_ok=True)
        # Each loss may break the script of those that stay, and break it once more while it starts again.
        orders = SyncOrders(tuple(script), tuple(types), least, 2 * spares, place, interval)
        _announce(orders, why, links, chosen, json)
        hosts: ThisMachine | EmulatedHosts = ThisMachine(Path(folder))
        if links is not None:
            hosts = EmulatedHosts(orders.nodes, spares, links.node_rate, links.head_rate)
        agents = TorchrunAgents(orders, Path(folder), hosts)
        rehearsal = SyncRehearsal(orders, agents, types, moments(revocations), _listeners(json))
        try:
            rehearsal.run(limit)
        finally:
            _show(rehearsal, orders, (plan, on), why, json)
    if kept is not None:
        told(f"The checkpoints are in {shlex.quote(str(kept))}; run it again to train on.", json)


def _check(types: Mapping[str, str], least: int, revocations: Sequence[Revocation], others: int) -> None:
    """``others``: hosts beside those of the nodes."""
    from stash.lab.testbed.topology import MAX_NODES

    most = MAX_NODES - others
    if len(types) > most:
        raise UserError(f"the plan has {len(types)} workers; this machine plays {most} at most")
    if least > len(types):
        raise UserError(f"--least {least}: the plan has {len(types)} workers; ask for no more than that")
    known = [*types, *sorted(set(types.values()))]
    for each in revocations:
        if each.who not in known:
            raise UserError(f"--revoke {each.who}: the plan's fleet has no such one; it has {', '.join(known)}")


def _taken(types: Mapping[str, str], revocations: Sequence[Revocation]) -> int:
    """Nodes that are taken away, as many as there are successors."""
    return sum(each.who in (name, kind) for each in revocations for name, kind in types.items())


def _links(plan: FleetPlan, nodes: int, slower: float | None) -> EmulatedLinks:
    from stash.spot.emulate.build_rehearsal import emulated_links

    return emulated_links(plan.pool, nodes, None if slower is None else positive("--slower", slower, finite=True))


def _announce(orders: SyncOrders, why: str, links: EmulatedLinks | None, plan: FleetPlan, json: bool) -> None:
    from stash.core.units import format_bytes, format_seconds
    from stash.spot.sync.agents import SETTINGS, torchrun

    variables = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
    words = shlex.join(torchrun(orders, "HEAD:PORT", "ID"))
    told(f"Each node: {variables} stash spot guard CHECKPOINTS -- torchrun {words}", json)
    told(f"A checkpoint every {format_seconds(orders.every)}, {why}; one more at a notice, if there is time.", json)
    if links is None:
        told("Every node is one process here; links are not shaped, so no speed is predicted.", json)
        return
    rate, planned = format_bytes(links.node_rate), format_bytes(plan.pool.worker_bytes_per_second)
    slow = f", {links.slower:g} times slower than the plan's {planned}/s" if links.slower != 1 else ", as planned"
    told(f"Every node is an emulated host, its link {rate}/s each way{slow}.", json)
    told("The script computes as fast as this machine does, so no speed is predicted.", json)


def _listeners(json: bool) -> Listeners:
    from stash.spot.pages.run_report import line
    from stash.spot.sync.rehearse_sync import Listeners

    def event(found: SpotEvent) -> None:
        text = line(found, 0.0)
        if text is not None:
            told(text, json)

    def output(name: str, text: str) -> None:
        print(printable_line(f"{name} | {text}"), file=sys.stderr if json else sys.stdout, flush=True)

    return Listeners(event, output)


def _show(rehearsal: SyncRehearsal, orders: SyncOrders, of: tuple[Path, str], why: str, json: bool) -> None:
    """Also of a rehearsal that was interrupted."""
    from stash.report.output import printed
    from stash.spot.pages.run_report import document_of_setbacks, page_of_setbacks

    log = _log(rehearsal, orders, of, why)
    if not json:
        print()
    printed(document_of_setbacks(log) if json else page_of_setbacks(log))


def _log(rehearsal: SyncRehearsal, orders: SyncOrders, of: tuple[Path, str], why: str) -> SyncLog:
    """``of``: the plan, and where it was rehearsed."""
    from stash.core.version import __version__
    from stash.spot.records.runs import SyncLog

    began, ended = rehearsal.began, rehearsal.ended
    return SyncLog(
        stash_version=__version__,
        plan=str(of[0]),
        script=orders.script,
        on=of[1],
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


# Rented together -------------------------------------------------------------------------------------------
# ``stash spot run PLAN --infra … --bucket … --sync SCRIPT``: a synchronous script on rented machines.
#
# Parses, checks and shows; ``rent/spot`` rents, follows and ends.


def run_rented_sync(
    plan: Path, script: Sequence[str], infra: str | None, max_cost: float | None, bucket: str | None, yes: bool,
    least: int, every: str | None,
) -> None:  # fmt: skip
    """Print every YAML and command, and with ``yes`` run them until the script ends or the money is spent."""
    from stash import catalog
    from stash.core.units import format_seconds
    from stash.spot.rented import rent_request
    from stash.spot.rented.replace_machines import GangPolicy
    from stash.spot.spot_files import read_plan

    if infra is None:
        raise UserError(
            "name the cloud and its region with --infra, like --infra aws/us-east-1 (or kubernetes); to rehearse it "
            "here, add --on testbed or --on local"
        )
    folder = rent_request.run_folder(plan, Path.cwd().resolve())
    chosen = read_plan(plan)
    interval, why = checkpoint_interval(chosen, every)
    request = rent_request.gang(chosen, script, infra, folder, catalog.load(), date.today(), bucket, least, interval)
    again = ["stash", "spot", "run", str(plan), "--infra", infra, "--bucket", str(bucket)]
    again += [] if every is None else ["--checkpoint-every", every]
    again += [] if least == 1 else ["--least", str(least)]
    say(f"# A checkpoint every {format_seconds(interval)}, {why}; one more at a notice, if there is time.")
    if not agreed(request, max_cost, again, ["--sync", *script], yes):
        return
    assert max_cost is not None
    outcome = run_controller(GangPolicy(request), request, max_cost)
    say(f"{outcome.reason}, ${outcome.dollars:.2f} at most. The checkpoints are in {bucket}.")
    if outcome.fetched is not None:
        say(f"What happened is in {shlex.quote(outcome.fetched)}.")
    judged(outcome, "The script has not ended by itself")
