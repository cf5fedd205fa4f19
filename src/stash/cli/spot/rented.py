"""``stash spot run --on cloud``: a plan's fleet on rented machines; prints what it would do, unless told to do it.

Parses, checks and shows; ``rent/spot`` rents, follows and ends.
"""

from __future__ import annotations

import shlex
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stash.base.errors import StashError, UserError
from stash.base.printable import printable, printable_line
from stash.base.secrets import masked_text

if TYPE_CHECKING:
    from stash.rent.spot.takeover import FleetOutcome
    from stash.rent.spot.tasks import FleetRequest


def run_rented(
    plan: Path, job: str, infra: str | None, max_cost: float | None, bucket: str | None, yes: bool
) -> None:
    """Print every YAML and command, and with ``yes`` run them until the loss is reached or the money is spent."""
    from stash.base.interrupts import REQUESTS, interrupted_by
    from stash.base.platforms import require_linux
    from stash.keep import catalog
    from stash.keep.fleets import read_plan
    from stash.rent.spot import asked

    if infra is None:
        raise UserError("name the cloud and its region with --infra, like --infra aws/us-east-1 (or kubernetes)")
    folder = asked.run_folder(plan, Path.cwd().resolve())
    request = asked.request(read_plan(plan), job, infra, folder, catalog.load(), date.today(), bucket)
    if max_cost is not None:
        asked.within_cap(request, max_cost)
    if not yes:
        print(printable(masked_text(_script(request))), end="")
        print(printable_line(_next(plan, job, infra, max_cost)))
        return
    require_linux("stash spot run")
    if max_cost is None:
        raise UserError("say what it may cost at most with --max-cost DOLLARS; without --yes its price is printed")
    print(printable_line(_price(request)))
    with folder.held(), interrupted_by(*REQUESTS):
        outcome = _run(request, max_cost)
    _finish(outcome, request)


def _script(request: FleetRequest) -> str:
    """All that would be written and run, in order."""
    from stash.rent.spot import admission, tasks

    parts = [f"# {_price(request)}", tasks.server(request).describe()]
    for number, kind in enumerate(tasks.first_workers(request), start=1):
        parts.append(tasks.worker(request, number, kind, "ADDRESS", kind.fixed).describe())
    secret = f"# {request.secret} holds {admission.VARIABLE}, which is made anew when machines are rented"
    head = "# ADDRESS is the server's private address: what `" + shlex.join(tasks.address(request)) + "` prints"
    return "\n\n".join([*parts, f"{secret}\n{head}"]) + "\n"


def _price(request: FleetRequest) -> str:
    from stash.base.words.counting import counted
    from stash.base.words.quantities import listed
    from stash.base.words.units import format_seconds
    from stash.rent.spot.tasks import dollars_at_most, first_workers

    plan, workers = request.plan, first_workers(request)
    hour = request.server_dollars + sum(dollars_at_most(kind) for kind in workers)
    on_demand = sum(kind.fixed for kind in workers)
    who = [
        counted(plan.pool.server.count, "server"),
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


def _next(plan: Path, job: str, infra: str, max_cost: float | None) -> str:
    words = ["stash", "spot", "run", str(plan), job, "--infra", infra]
    words += ["--max-cost", "DOLLARS" if max_cost is None else f"{max_cost:g}", "--yes"]
    return f"Nothing was rented. To rent it: {shlex.join(words)}"


def _run(request: FleetRequest, max_cost: float) -> FleetOutcome:
    from stash.derive.study.standing import open_leases, spent
    from stash.keep.study import journal
    from stash.rent.spot.takeover import FleetController
    from stash.rent.study.programs import SystemPrograms

    programs = SystemPrograms()
    if not programs.has("sky"):
        raise UserError("there is no program 'sky' on PATH; install SkyPilot with: pip install 'skypilot[aws]'")
    events = journal.read(request.folder.journal)
    controller = FleetController(
        request=request,
        programs=programs,
        write=lambda event: journal.append(request.folder.journal, event),
        say=_say,
        cap=max_cost,
    )
    return controller.run(open_leases(events), spent(events))


def _say(text: str) -> None:
    print(printable_line(masked_text(text), 600), flush=True)


def _finish(outcome: FleetOutcome, request: FleetRequest) -> None:
    """Say how it ended; raises StashError where something may still run."""
    loss = "not known" if outcome.sight.loss is None else f"{outcome.sight.loss:.4g}"
    _say(f"{outcome.reason}: loss {loss} after {outcome.sight.updates:,} updates, ${outcome.dollars:.2f} at most.")
    if outcome.fetched is not None:
        _say(f"The model and its checkpoints are in {shlex.quote(outcome.fetched)}.")
    if outcome.left:
        raise StashError("\n".join(outcome.left))
    if not outcome.reached:
        print("The loss was not reached; the sentences above say why.", file=sys.stderr)
        raise typer.Exit(1)
