"""``stash spot run``: trains as a plan says, on rented machines, or rehearses that here with revocations."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stash.base.errors import UserError
from stash.cli.options import flag, option, positive
from stash.cli.spot.words import JSON_HELP, seconds_of, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from stash.base.spot.fleets import FleetPlan
    from stash.base.spot.log import SpotEvent
    from stash.elastic.casting import Cast
    from stash.elastic.orders import TrainingOrders
    from stash.elastic.rehearsal import Rehearsal
    from stash.lab.testbed.revoke import Revocation

_EVERY = "20s"
GROUNDS = ("cloud", "testbed", "local")
_PLAN_HELP = "What `stash spot plan -o` saved."
_REVOKE_HELP = "Take machines away: worker2@40s,notice=20s, or a type and no notice, v100@1m; repeatable."


def run(
    ctx: typer.Context,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help=_PLAN_HELP, show_default=False)],
    job: Annotated[
        str,
        typer.Argument(metavar="FILE.py:JOB", help="The stash.spot.Job; with --sync a script.", show_default=False),
    ],
    on: Annotated[
        str, option("WHERE", "cloud (rented), testbed (emulated hosts; needs root) or local (this machine).")
    ] = "cloud",
    infra: Annotated[str | None, option("CLOUD/REGION", "Where to rent, like aws/us-east-1 or kubernetes.")] = None,
    max_cost: Annotated[float | None, option("DOLLARS", "A hard stop; counts what is rented until it ends.")] = None,
    bucket: Annotated[str | None, option("URL", "Where rented servers keep checkpoints; else their disk.")] = None,
    yes: Annotated[bool, flag("--yes", "Rent; else what would be run is printed.")] = False,
    revoke: Annotated[list[str] | None, option("WHO@TIME[,notice=TIME]", _REVOKE_HELP)] = None,
    seconds: Annotated[str, option("TIME", "How long to train at most.")] = "60s",
    loss: Annotated[float | None, option("LOSS", "Stop when the running mean of the loss is there.")] = None,
    bound: Annotated[int | None, option("S", "Updates that a worker may be ahead; else no bound.", least=0)] = None,
    slower: Annotated[float | None, option("F", "How much slower to emulate; else as this machine needs it.")] = None,
    checkpoint: Annotated[Path | None, option("FOLDER", "Where servers save, and resume from; else anew.")] = None,
    every: Annotated[
        str | None,
        option(
            "TIME", "Between checkpoints; else 20s, or with --sync what the plan's risk says.", "--checkpoint-every"
        ),
    ] = None,
    least: Annotated[int, option("N", "Nodes that --sync needs to train; torchrun's MIN.", least=1)] = 1,
    sync: Annotated[bool, flag("--sync", "Rehearse a script under torchrun: what follows is the script's.")] = False,
    output: Annotated[Path | None, option("FILE", "Where the log goes.", "--output", "-o")] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Train a plan's fleet on rented machines; or rehearse it on emulated hosts, and take some away.

    stash spot run job.plan.json job.py:job --infra aws/us-east-1 --max-cost 25
    stash spot run job.plan.json job.py:job --on testbed --revoke worker2@40s,notice=20s
    stash spot run job.plan.json --on local --revoke worker2@40s --sync train.py --epochs 3
    """
    from stash.base.interrupts import REQUESTS, interrupted_by
    from stash.base.spot.log import SPOT_LOG_SUFFIX
    from stash.cli.output import output_file
    from stash.cli.spot.rented import run_rented
    from stash.cli.spot.together import refuse_given, run_sync
    from stash.elastic.actors import require_ray
    from stash.elastic.casting import cast, orders_of
    from stash.keep.fleets import read_plan
    from stash.lab.testbed.revoke import parse_revocation

    if on not in GROUNDS:
        raise UserError(f"--on {on!r} is none of {', '.join(GROUNDS)}")
    if sync:
        refuse_given({
            "--infra": infra, "--max-cost": max_cost, "--bucket": bucket, "--yes": yes, "--loss": loss,
            "--bound": bound, "--slower": slower, "--output": output,
        })  # fmt: skip
        run_sync(plan, ctx.obj, on, least, revoke or (), seconds, checkpoint, every, json)
        return
    if on == "cloud":
        if revoke:
            raise UserError("--revoke takes emulated machines away; add --on testbed")
        cap = None if max_cost is None else positive("--max-cost", max_cost, finite=True)
        run_rented(plan, job, infra, cap, bucket, yes)
        return
    limit, gap = seconds_of("--seconds", seconds), seconds_of("--checkpoint-every", every or _EVERY)
    if slower is not None:
        positive("--slower", slower, finite=True)
    revocations = [parse_revocation(text) for text in revoke or ()]
    chosen_by = read_plan(plan)
    target = output_file(output, Path(job.rpartition(":")[0]).stem or "job", SPOT_LOG_SUFFIX)
    require_ray()
    chosen = cast(chosen_by, job, on == "testbed", slower)
    _check_revocations(revocations, chosen)
    with tempfile.TemporaryDirectory(prefix="stash-spot-") as folder, interrupted_by(*REQUESTS):
        place = checkpoint or Path(folder) / "checkpoints"
        place.mkdir(parents=True, exist_ok=True)
        orders = orders_of(chosen, job, place, bound, limit, loss, gap)
        _announce(chosen_by, chosen, bound, json)
        rehearsal = _rehearsal(chosen, orders, on, revocations, Path(folder), json)
        try:
            rehearsal.run()
        finally:
            _keep(rehearsal, (plan, job, on), chosen_by, chosen, orders, target, json)
    if rehearsal.account.error is not None:
        raise rehearsal.account.error
    if checkpoint is not None:
        told(f"The model is in {shlex.quote(str(checkpoint / 'model.pt'))}; run it again to train on.", json)


def _check_revocations(revocations: list[Revocation], chosen: Cast) -> None:
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


def _announce(plan: FleetPlan, chosen: Cast, bound: int | None, json: bool) -> None:
    from stash.base.words.counting import counted
    from stash.base.words.units import format_bytes
    from stash.show.spot.rows import fleet

    assert plan.chosen is not None
    speed = chosen.speed(plan, plan.chosen.workers, bound)
    who = f"{fleet(plan.chosen.workers)}, {counted(len(chosen.servers), 'server')}"
    told(f"{who}; {format_bytes(chosen.exchange_bytes)} each way an update", json)
    if chosen.emulated is None:
        told("On this machine alone: links are not shaped, so no speed is predicted.", json)
    elif speed is not None:
        slow = chosen.emulated.slower
        played = f", played {slow:g} times slower" if slow != 1 else ""
        told(f"Predicted: {speed * slow:.3g} updates/s{played}.", json)


def _rehearsal(
    chosen: Cast, orders: TrainingOrders, on: str, revocations: list[Revocation], folder: Path, json: bool
) -> Rehearsal:
    from stash.elastic.grounds import LocalGround, TestbedGround
    from stash.elastic.rehearsal import Rehearsal
    from stash.lab.testbed.revoke import moments

    if chosen.emulated is None:
        ground: Any = LocalGround(orders, folder)
    else:
        taken = [sum(name.who in (each.name, each.type) for each in chosen.workers) or 1 for name in revocations]
        ground = TestbedGround(orders, folder, chosen.emulated, sum(taken))
    return Rehearsal(orders, ground, folder, moments(revocations), _teller(json))


def _teller(json: bool) -> Callable[[SpotEvent], None]:
    from stash.show.spot.ran import line

    began: list[float] = []

    def tell(event: SpotEvent) -> None:
        if event.what == "began" and event.at is not None:
            began.append(event.at)
        text = line(event, began[0] if began else None)
        if text is not None:
            told(text, json)

    return tell


def _keep(
    rehearsal: Rehearsal, named: tuple[Path, str, str], plan: FleetPlan, chosen: Cast, orders: TrainingOrders,
    target: Path, json: bool,
) -> None:  # fmt: skip
    """Save the log, and show what there is; also of a run that was interrupted."""
    from stash.base.interrupts import postponed
    from stash.cli.output import printed
    from stash.elastic.retelling import retold
    from stash.keep.spotlogs import save_spot_log
    from stash.show.spot.ran import document, render, view

    log = retold(rehearsal, named, plan, chosen, orders)
    with postponed():
        save_spot_log(log, target)
    if not json:
        print()
    if log.updates.seconds:
        printed(document(log) if json else view(log), render)
    told(f"Saved {target}; draw it with `stash report {shlex.quote(str(target))}`.", json)
