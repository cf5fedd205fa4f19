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
    from stash.rent.spot.controlling import FleetOutcome, SpotController
    from stash.rent.spot.tasks import RentRequest


def run_rented(
    plan: Path, job: str, infra: str | None, max_cost: float | None, bucket: str | None, yes: bool
) -> None:
    """Print every YAML and command, and with ``yes`` run them until the loss is reached or the money is spent."""
    from stash.keep import catalog
    from stash.keep.fleets import read_plan
    from stash.rent.spot import asked
    from stash.rent.spot.takeover import FleetController

    if infra is None:
        raise UserError("name the cloud and its region with --infra, like --infra aws/us-east-1 (or kubernetes)")
    folder = asked.run_folder(plan, Path.cwd().resolve())
    request = asked.request(read_plan(plan), job, infra, folder, catalog.load(), date.today(), bucket)
    again = ["stash", "spot", "run", str(plan), job, "--infra", infra]
    if agreed(request, max_cost, again, [], yes):
        assert max_cost is not None
        _finish(run_controller(FleetController, request, max_cost))


def agreed(request: RentRequest, max_cost: float | None, again: list[str], then: list[str], yes: bool) -> bool:
    """Whether it is to be rented; else all of it was printed, and the words that rent it: ``again … then``."""
    from stash.base.platforms import require_linux
    from stash.rent.spot import asked

    if max_cost is not None:
        asked.within_cap(request, max_cost)
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
    from stash.rent.spot import tasks

    parts = [f"# {_price(request)}", request.server_task().describe()]
    for number, kind in enumerate(tasks.first_workers(request), start=1):
        parts.append(request.worker_task(number, kind, "ADDRESS", kind.fixed).describe())
    secret = f"# {request.secret} holds {' and '.join(request.secret_variables)}, made anew when machines are rented"
    head = "# ADDRESS is the server's private address: what `" + shlex.join(tasks.address(request)) + "` prints"
    return "\n\n".join([*parts, f"{secret}\n{head}"]) + "\n"


def _price(request: RentRequest) -> str:
    from stash.base.words.counting import counted
    from stash.base.words.quantities import listed
    from stash.base.words.units import format_seconds
    from stash.rent.spot.tasks import dollars_at_most, first_workers

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


def run_controller(kind: type[SpotController], request: RentRequest, max_cost: float) -> FleetOutcome:
    """To its end, going on where an earlier one was killed."""
    from stash.base.interrupts import REQUESTS, interrupted_by
    from stash.derive.study.standing import open_leases, spent
    from stash.keep.study import journal
    from stash.rent.study.programs import SystemPrograms

    programs = SystemPrograms()
    if not programs.has("sky"):
        raise UserError("there is no program 'sky' on PATH; install SkyPilot with: pip install 'skypilot[aws]'")
    with request.folder.held(), interrupted_by(*REQUESTS):
        events = journal.read(request.folder.journal)
        controller = kind(
            request=request,
            programs=programs,
            write=lambda event: journal.append(request.folder.journal, event),
            say=say,
            cap=max_cost,
        )
        return controller.run(open_leases(events), spent(events))


def say(text: str) -> None:
    print(printable_line(masked_text(text), 600), flush=True)


def _finish(outcome: FleetOutcome) -> None:
    loss = "not known" if outcome.sight.loss is None else f"{outcome.sight.loss:.4g}"
    say(f"{outcome.reason}: loss {loss} after {outcome.sight.updates:,} updates, ${outcome.dollars:.2f} at most.")
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
