"""``stash spot run PLAN --sync SCRIPT ARGS``: rehearses a synchronous script under torchrun, and takes nodes away.

Parses, checks and shows; ``elastic/synchronous/rehearsing.py`` rehearses.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stash.base.errors import UserError
from stash.base.printable import printable_line
from stash.cli.options import OneCommand, positive, seconds_of
from stash.cli.spot.words import checkpoint_interval, told

if TYPE_CHECKING:
    from stash.base.spot.fleets import FleetPlan
    from stash.base.spot.log import SpotEvent
    from stash.base.spot.setbacks import SyncLog
    from stash.elastic.local.scaling import EmulatedLinks
    from stash.elastic.synchronous.rehearsing import Listeners, SyncRehearsal
    from stash.elastic.synchronous.torchrun import SyncOrders
    from stash.lab.testbed.revoke import Revocation

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
    from stash.base.interrupts import REQUESTS, interrupted_by
    from stash.base.platforms import require_linux
    from stash.elastic.rehearsal.casting import machines
    from stash.elastic.synchronous.agents import TorchrunAgents
    from stash.elastic.synchronous.places import EmulatedHosts, ThisMachine
    from stash.elastic.synchronous.rehearsing import SyncRehearsal
    from stash.elastic.synchronous.torchrun import SyncOrders
    from stash.keep.fleets import read_plan
    from stash.lab.testbed.revoke import moments, parse_revocation

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
        where = ThisMachine() if links is None else EmulatedHosts(orders.nodes, spares, links)
        agents = TorchrunAgents(orders, Path(folder), where)
        rehearsal = SyncRehearsal(orders, agents, types, moments(revocations), _listeners(json))
        try:
            rehearsal.run(limit)
        finally:
            _show(rehearsal, orders, (plan, on), why, json)
    if kept is not None:
        told(f"The checkpoints are in {shlex.quote(str(kept))}; run it again to train on.", json)


def _check(types: Mapping[str, str], least: int, revocations: Sequence[Revocation], others: int) -> None:
    """``others``: hosts beside those of the nodes."""
    from stash.lab.testbed.topology import MOST_NODES

    most = MOST_NODES - others
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
    from stash.elastic.local.scaling import emulated_links

    return emulated_links(plan.pool, nodes, None if slower is None else positive("--slower", slower, finite=True))


def _announce(orders: SyncOrders, why: str, links: EmulatedLinks | None, plan: FleetPlan, json: bool) -> None:
    from stash.base.words.units import format_bytes, format_seconds
    from stash.elastic.synchronous.torchrun import SETTINGS, torchrun

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
    from stash.elastic.synchronous.rehearsing import Listeners
    from stash.show.spot.ran import line

    def event(found: SpotEvent) -> None:
        text = line(found, 0.0)
        if text is not None:
            told(text, json)

    def output(name: str, text: str) -> None:
        print(printable_line(f"{name} | {text}"), file=sys.stderr if json else sys.stdout, flush=True)

    return Listeners(event, output)


def _show(rehearsal: SyncRehearsal, orders: SyncOrders, of: tuple[Path, str], why: str, json: bool) -> None:
    """Also of a rehearsal that was interrupted."""
    from stash.cli.output import printed
    from stash.show.spot.setbacks import document, render, view

    log = _log(rehearsal, orders, of, why)
    if not json:
        print()
    printed(document(log) if json else view(log), render)


def _log(rehearsal: SyncRehearsal, orders: SyncOrders, of: tuple[Path, str], why: str) -> SyncLog:
    """``of``: the plan, and where it was rehearsed."""
    from stash.base.spot.setbacks import SyncLog
    from stash.base.version import __version__

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
