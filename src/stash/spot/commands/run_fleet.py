"""``stash spot run`` and ``stash spot guard``: trains as a plan says, or rehearses that here with revocations."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.core.errors import JobError, UserError
from stash.core.printable import printable_line
from stash.spot.commands.rented_fleet import refuse_given, run_rented, run_rented_sync, run_sync
from stash.spot.commands.spot_options import JSON_HELP, told
from stash.ui.options import flag, option, positive, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from stash.lab.testbed.revoke import Revocation
    from stash.measure.host.notices import NoticeWatch
    from stash.spot.emulate.build_rehearsal import Cast
    from stash.spot.emulate.run_rehearsal import Rehearsal
    from stash.spot.records.fleets import FleetPlan
    from stash.spot.records.runs import SpotEvent
    from stash.spot.train.run_orders import TrainingOrders

# Run -------------------------------------------------------------------------------------------------------
# ``stash spot run``: trains as a plan says, on rented machines, or rehearses that here with revocations.

_EVERY, _SECONDS = "20s", "60s"
GROUNDS = ("cloud", "testbed", "local")
_PLAN_HELP = "What `stash spot plan -o` saved."
_INFRA_HELP = "Where to rent, like aws/us-east-1 or kubernetes."
_COST_HELP = "A hard stop; counts what is rented until it ends."
_BUCKET_HELP = "Where checkpoints go; else on the servers' disk. --sync needs it."
_REVOKE_HELP = "Take machines away: worker2@40s,notice=20s, or all of a type without notice, v100@1min; repeatable."
_LOSS_HELP = "Stop when the running mean of the loss is there."
_BOUND_HELP = "Updates that a worker may be ahead; else no bound."
_SLOWER_HELP = "How much slower to emulate; else as this machine needs it."
_CHECKPOINT_HELP = "Where servers save, and resume from; else anew."
_EVERY_HELP = f"Between checkpoints; else {_EVERY}, or with --sync what the plan's risk says."
_MIN_HELP = "Nodes that it needs to train; torchrun's MIN."
_SYNC_HELP = "Run a script under torchrun: what follows is the script's."
_RENTED, _REHEARSED = "On rented machines (--on cloud)", "In a rehearsal (--on testbed, --on local)"
_TOGETHER = "Of a synchronous script"


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
    infra: Annotated[str | None, option("CLOUD/REGION", _INFRA_HELP, panel=_RENTED)] = None,
    max_cost: Annotated[float | None, option("DOLLARS", _COST_HELP, panel=_RENTED)] = None,
    bucket: Annotated[str | None, option("URL", _BUCKET_HELP, panel=_RENTED)] = None,
    yes: Annotated[bool, flag("--yes", "Rent; else what would be run is printed.", panel=_RENTED)] = False,
    revoke: Annotated[list[str] | None, option("WHO@TIME", _REVOKE_HELP, panel=_REHEARSED)] = None,
    seconds: Annotated[str | None, option("TIME", "How long to train at most; else 60s.", panel=_REHEARSED)] = None,
    loss: Annotated[float | None, option("LOSS", _LOSS_HELP, panel=_REHEARSED)] = None,
    bound: Annotated[int | None, option("S", _BOUND_HELP, least=0, panel=_REHEARSED)] = None,
    slower: Annotated[float | None, option("F", _SLOWER_HELP, panel=_REHEARSED)] = None,
    checkpoint: Annotated[Path | None, option("FOLDER", _CHECKPOINT_HELP, panel=_REHEARSED)] = None,
    every: Annotated[str | None, option("TIME", _EVERY_HELP, "--checkpoint-every", panel=_TOGETHER)] = None,
    least: Annotated[int, option("N", _MIN_HELP, least=1, panel=_TOGETHER)] = 1,
    sync: Annotated[bool, flag("--sync", _SYNC_HELP, panel=_TOGETHER)] = False,
    output: Annotated[Path | None, option("FILE", "Where the log goes.", "--output", "-o", panel=_REHEARSED)] = None,
    json: Annotated[bool, flag("--json", JSON_HELP, panel=_REHEARSED)] = False,
) -> None:
    """Train a plan's fleet on rented machines; or rehearse it on emulated hosts, and take some away.

    stash spot run job.plan.json job.py:job --infra aws/us-east-1 --max-cost 25

    stash spot run job.plan.json job.py:job --on testbed --revoke worker2@40s,notice=20s

    stash spot run job.plan.json --on local --revoke worker2@40s --sync train.py --epochs 3

    stash spot run job.plan.json --infra aws/us-east-1 --bucket s3://mine/run1 --sync train.py --epochs 3
    """
    if on not in GROUNDS:
        raise UserError(f"--on {on!r} is none of {', '.join(GROUNDS)}")
    if slower is not None and on == "local":
        raise UserError("--slower is of emulated hosts; add --on testbed")
    if sync:
        refuse_given({"--loss": loss, "--bound": bound, "--output": output})
    if sync and on == "cloud":
        _leave_out(
            {"--revoke": revoke, "--seconds": seconds, "--slower": slower, "--checkpoint": checkpoint,
             "--json": json or None},
            "is of a rehearsal, and rented machines train until the script ends; add --on testbed",
        )  # fmt: skip
        cap = None if max_cost is None else positive("--max-cost", max_cost, finite=True)
        run_rented_sync(plan, ctx.obj, infra, cap, bucket, yes, least, every)
        return
    rented: dict[str, object] = {"--infra": infra, "--max-cost": max_cost, "--bucket": bucket, "--yes": yes or None}
    if on != "cloud":
        _leave_out(rented, f"is of rented machines, and --on {on} rents none; leave it out")
    if sync:
        run_sync(plan, ctx.obj, on, least, revoke or (), seconds or _SECONDS, slower, checkpoint, every, json)
        return
    rehearsed: dict[str, object] = {
        "--revoke": revoke or None,
        "--seconds": seconds,
        "--loss": loss,
        "--bound": bound,
    }
    rehearsed |= {"--slower": slower, "--checkpoint": checkpoint, "--checkpoint-every": every}
    rehearsed |= {"--output": output, "--json": json or None}
    if on == "cloud":
        _leave_out(rehearsed, "is of a rehearsal, and rented machines train to the plan's loss; add --on testbed")
        cap = None if max_cost is None else positive("--max-cost", max_cost, finite=True)
        run_rented(plan, job, infra, cap, bucket, yes)
        return
    words = RehearsalWords(on, revoke or (), seconds or _SECONDS, loss, bound, slower, checkpoint, every or _EVERY)
    _rehearse(plan, job, words, output, json)


@dataclass(frozen=True)
class RehearsalWords:
    """The options of a rehearsal as they were typed."""

    on: str
    revoke: Sequence[str]
    seconds: str
    loss: float | None
    bound: int | None
    slower: float | None
    checkpoint: Path | None
    every: str


def _leave_out(options: Mapping[str, object], why: str) -> None:
    given = next((name for name, value in options.items() if value is not None), None)
    if given is not None:
        raise UserError(f"{given} {why}")


def _rehearse(plan: Path, job: str, words: RehearsalWords, output: Path | None, json: bool) -> None:
    from stash.core.interrupts import REQUESTS, interrupted_by
    from stash.lab.testbed.revoke import parse_revocation
    from stash.report.output import output_file
    from stash.spot.emulate.build_rehearsal import cast, orders_of
    from stash.spot.records.runs import SPOT_LOG_SUFFIX
    from stash.spot.spot_files import read_plan
    from stash.spot.train.actors import require_ray

    limit, gap = seconds_of("--seconds", words.seconds), seconds_of("--checkpoint-every", words.every)
    if words.slower is not None:
        positive("--slower", words.slower, finite=True)
    revocations = [parse_revocation(text) for text in words.revoke]
    chosen_by = read_plan(plan)
    target = output_file(output, Path(job.rpartition(":")[0]).stem or "job", SPOT_LOG_SUFFIX)
    require_ray()
    chosen = cast(chosen_by, job, words.on == "testbed", words.slower)
    _check_revocations(revocations, chosen, limit)
    with tempfile.TemporaryDirectory(prefix="stash-spot-") as folder, interrupted_by(*REQUESTS):
        place = words.checkpoint or Path(folder) / "checkpoints"
        place.mkdir(parents=True, exist_ok=True)
        orders = orders_of(chosen, job, place, words.bound, limit, words.loss, gap)
        _announce(chosen_by, chosen, words.bound, json)
        rehearsal = _rehearsal(chosen, orders, revocations, Path(folder), json)
        try:
            rehearsal.run()
        finally:
            _keep(rehearsal, (plan, job, words.on), chosen_by, chosen, orders, target, json)
    if rehearsal.account.died:
        raise JobError(f"{rehearsal.account.reason}; {_resume(plan, job, words, output)}")
    if rehearsal.account.error is not None:
        raise rehearsal.account.error
    if words.checkpoint is not None:
        model = shlex.quote(str(words.checkpoint / "model.pt"))
        told(f"The model is in {model}; run it again to train on.", json)


def _resume(plan: Path, job: str, words: RehearsalWords, output: Path | None) -> str:
    """How to go on where a run ended that could not save: what to type. Machines are not taken away twice."""
    again = ["stash", "spot", "run", str(plan), job, "--on", words.on]
    given = {
        "--seconds": None if words.seconds == _SECONDS else words.seconds,
        "--loss": words.loss,
        "--bound": words.bound,
        "--slower": words.slower,
        "--checkpoint": words.checkpoint or "FOLDER",
        "--checkpoint-every": None if words.every == _EVERY else words.every,
        "--output": output,
    }
    again += [part for name, value in given.items() if value is not None for part in (name, str(value))]
    if words.checkpoint is None:
        return f"without --checkpoint nothing is kept; start it again with `{shlex.join(again)}`"
    if not any(words.checkpoint.glob("*.ckpt")):
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


def _announce(plan: FleetPlan, chosen: Cast, bound: int | None, json: bool) -> None:
    from stash.core.units import counted, format_bytes
    from stash.spot.pages.fleet_plan import fleet

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
    chosen: Cast, orders: TrainingOrders, revocations: list[Revocation], folder: Path, json: bool
) -> Rehearsal:
    from stash.lab.testbed.revoke import moments
    from stash.spot.emulate.backends import TrainingBackend
    from stash.spot.emulate.run_rehearsal import Rehearsal

    taken = [sum(name.who in (each.name, each.type) for each in chosen.workers) or 1 for name in revocations]
    backend = TrainingBackend(orders, folder, chosen.emulated, sum(taken))
    return Rehearsal(orders, backend, folder, moments(revocations), _teller(json))


def _teller(json: bool) -> Callable[[SpotEvent], None]:
    from stash.spot.pages.run_report import line

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
    from stash.core.interrupts import postponed
    from stash.report.output import printed
    from stash.spot.emulate.run_rehearsal import retold
    from stash.spot.pages.run_report import document, page
    from stash.spot.spot_files import save_spot_log

    log = retold(rehearsal, named, plan, chosen, orders)
    with postponed():
        save_spot_log(log, target)
    if not json:
        print()
    if log.updates.seconds:
        printed(document(log) if json else page(log))
    told(f"Saved {target}; draw it with `stash report {shlex.quote(str(target))}`.", json)


# Guard -----------------------------------------------------------------------------------------------------
# ``stash spot guard FOLDER -- torchrun …``: on a rented node, makes of a notice a checkpoint and an orderly end.
#
# Parses; ``spot/rented/notice_guard.py`` listens and asks.

_GRACE = "30s"
_GRACE_HELP = f"What a SIGTERM leaves until the kill; else {_GRACE}."
_HEAD_HELP = "Where a rented gang meets; needs --name and $STASH_RUN_TOKEN."
_FOLDER_HELP = "Of the script's checkpoints; all nodes must see it."


def guard(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help=_FOLDER_HELP, show_default=False)],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="torchrun with all it takes.", show_default=False)
    ],
    grace: Annotated[str | None, option("TIME", _GRACE_HELP)] = None,
    head: Annotated[str | None, option("HOST:PORT", _HEAD_HELP)] = None,
    name: Annotated[str | None, option("NAME", "What this node is called there.")] = None,
) -> None:
    """Run a node's torchrun, and save a checkpoint when the node is told that it will be taken away.

    Hears the metadata service of AWS, GCP and Azure, and SIGTERM. Ends with the command's exit code.

    stash spot guard /shared/kept -- torchrun --nnodes=2:4 --rdzv-backend=c10d train.py
    """
    from stash.core.interrupts import require_linux
    from stash.measure.host.notices import NoticeWatch, services
    from stash.spot.rented.notice_guard import NodeGuard

    require_linux("stash spot guard")
    seconds, place = seconds_of("--grace", grace or _GRACE), folder.resolve()
    place.mkdir(parents=True, exist_ok=True)
    watch = NoticeWatch(services(Path("/")))
    if head is not None or name is not None:
        raise typer.Exit(_of_gang(command, place, seconds, head, name, watch))
    raise typer.Exit(NodeGuard(command, place, seconds, _say).run(watch))


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
