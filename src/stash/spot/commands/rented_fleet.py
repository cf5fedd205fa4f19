"""``stash spot run`` on rented machines, for a job or a script: prints what it would do unless told to do it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import typer

from stash.core import parsers
from stash.core.errors import StashError, UserError
from stash.core.printable import printable, printable_line
from stash.core.secrets import masked_text
from stash.spot.commands.spot_options import checkpoint_interval
from stash.ui.arguments import Split, note_strays, value_takers
from stash.ui.commands import OneCommand
from stash.ui.options import Options, argument, declarations, flag, json_flag, option

if TYPE_CHECKING:
    from stash.spot.rented.rent_controller import FleetOutcome, RentPolicy
    from stash.spot.rented.tasks import RentRequest

_SYNC = "--sync"


class RunCommand(OneCommand):
    """All that follows ``--sync`` is a script and its arguments, whatever it looks like: ``ctx.obj``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if _SYNC in args:
            first = args.index(_SYNC)
            ctx.obj = tuple(args[first + 1 :])
            args = [*args[: first + 1], "--", *ctx.obj[:1]]
            if ctx.obj and not ctx.resilient_parsing:
                note_strays(Split((), "script", ctx.obj), value_takers(self.params))
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """After ``--sync`` come a script's own words: the shell offers files."""
        return [] if ctx.obj is not None else super().shell_complete(ctx, incomplete)


RunPlace = Literal["cloud", "testbed", "local"]
RUN_PLACES: Mapping[str, RunPlace] = {"cloud": "cloud", "testbed": "testbed", "local": "local"}
_RENTED, _REHEARSED = "On rented machines (--on cloud)", "In a rehearsal (--on testbed, --on local)"
_TOGETHER = "Of a synchronous script"


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """One call of ``stash spot run``."""

    parsed_by: ClassVar[type] = RunCommand

    plan: Path = argument("PLAN", "What `stash spot plan -o` saved.", Path)
    job: str = argument("FILE.py:JOB", "The stash.spot.Job; with --sync a script.")
    on: RunPlace = option(
        "PLACE", "cloud (rented), testbed (emulated hosts; needs root) or local (this machine).",
        parsers.one_of(RUN_PLACES), default="cloud",
    )  # fmt: skip
    infra: str | None = option("CLOUD/REGION", "Where to rent, like aws/us-east-1 or kubernetes.", panel=_RENTED)
    max_dollars: float | None = option(
        "DOLLARS",
        "A hard stop; counts what is rented until it ends.",
        parsers.dollars,
        panel=_RENTED,
    )
    checkpoint_url: str | None = option(
        "URL", "Where checkpoints go; else on the servers' disk. --sync needs it.", panel=_RENTED
    )
    yes: bool = flag("Rent; else what would be run is printed.", panel=_RENTED)
    revoke: tuple[str, ...] = option(
        "WHO@TIME",
        "Take machines away: worker2@40s,notice=20s, or all of a type without notice, v100@1min; repeatable.",
        panel=_REHEARSED, many=True,
    )  # fmt: skip
    seconds: float | None = option("TIME", "How long to train at most; else 60s.", parsers.duration, panel=_REHEARSED)
    loss: float | None = option(
        "LOSS", "Stop when the running mean of the loss is there.", parsers.number, panel=_REHEARSED
    )
    staleness: int | None = option(
        "S", "Updates that a worker may be ahead; else any number.", parsers.whole(0), panel=_REHEARSED,
    )  # fmt: skip
    time_scale: float | None = option(
        "F", "How much slower to emulate; else as this machine needs it.", parsers.number, panel=_REHEARSED,
    )  # fmt: skip
    checkpoint_dir: Path | None = option(
        "FOLDER", "Where servers save, and resume from; else from the start.", Path, panel=_REHEARSED,
    )  # fmt: skip
    checkpoint_every: float | None = option(
        "TIME", "Between checkpoints; else 20s, or with --sync what the plan's risk says.", parsers.duration,
        panel=_TOGETHER,
    )  # fmt: skip
    min_nodes: int = option(
        "N", "Nodes that it needs to train; torchrun's MIN.", parsers.whole(1), default="1", panel=_TOGETHER,
    )  # fmt: skip
    sync: bool = flag("Run a script under torchrun: what follows is the script's.", panel=_TOGETHER)
    output: Path | None = option("FILE", "Where the log goes.", Path, "--output", "-o", panel=_REHEARSED)
    json: bool = json_flag(panel=_REHEARSED)

    def check(self) -> None:
        if self.time_scale is not None and self.on == "local":
            raise UserError("--time-scale is of emulated hosts; add --on testbed")
        if self.sync:
            self._refuse(
                "means nothing with --sync, where a script of your own trains; leave it out",
                "loss", "staleness", "output",
            )  # fmt: skip
        if self.on != "cloud":
            self._refuse(
                f"is of rented machines, and --on {self.on} rents none; leave it out",
                "infra", "max_dollars", "checkpoint_url", "yes",
            )  # fmt: skip
            return
        rehearsed = ("revoke", "seconds", "time_scale", "checkpoint_dir", "json")
        if self.sync:
            self._refuse(
                "is of a rehearsal, and rented machines train until the script ends; add --on testbed", *rehearsed
            )
        else:
            self._refuse(
                "is of a rehearsal, and rented machines train to the plan's loss; add --on testbed",
                *rehearsed, "loss", "staleness", "checkpoint_every", "output",
            )  # fmt: skip

    def _refuse(self, why: str, *names: str) -> None:
        given = self.given(*names)
        if given:
            raise UserError(f"{given[0]} {why}")

    def retyped(self, *names: str) -> list[str]:
        """Words that give these options again, as they were typed."""
        known = {name: declared.name(name) for name, declared in declarations(RunOptions).items()}
        return [part for name in names if name in self.typed for part in (known[name], str(self.typed[name]))]


def run_rented(options: RunOptions, script: Sequence[str] = ()) -> None:
    """Print every YAML and command, and with ``yes`` run them until the job is done, or the script that is given, or
    the money is spent.
    """
    from stash import catalog
    from stash.core.units import format_seconds
    from stash.spot.rented import rent_request
    from stash.spot.rented.replace_machines import FleetPolicy, GangPolicy
    from stash.spot.spot_files import read_plan

    plan, job, infra, bucket = options.plan, options.job, options.infra, options.checkpoint_url
    if infra is None:
        raise UserError(
            "name the cloud and its region with --infra, like --infra aws/us-east-1 (or kubernetes); to rehearse it "
            "here, add --on testbed or --on local"
        )
    folder, chosen = rent_request.run_folder(plan, Path.cwd().resolve()), read_plan(plan)
    known, today = catalog.load(), date.today()
    again = ["stash", "spot", "run", str(plan), *(() if script else (job,)), "--infra", infra]
    again += options.retyped("checkpoint_url", "checkpoint_every", "min_nodes")
    policy: FleetPolicy | GangPolicy
    if script:
        interval, why = checkpoint_interval(chosen, options.checkpoint_every)
        policy = GangPolicy(
            rent_request.gang(chosen, script, infra, folder, known, today, bucket, options.min_nodes, interval)
        )
        say(f"# A checkpoint every {format_seconds(interval)}, {why}; one more at a notice, if there is time.")
    else:
        policy = FleetPolicy(rent_request.request(chosen, job, infra, folder, known, today, bucket))
        earlier = folder.path / "trained" / "checkpoints"
        if bucket is None and any(earlier.glob("*.ckpt")):
            say(
                f"# A new server starts from nothing, without {earlier} of an earlier run; to go on there, copy that "
                "folder into a bucket and add --checkpoint-url, like --checkpoint-url s3://my-bucket"
            )
    if not agreed(policy.request, options.max_dollars, again, ["--sync", *script] if script else [], options.yes):
        return
    assert options.max_dollars is not None
    outcome = run_controller(policy, policy.request, options.max_dollars)
    if isinstance(policy, GangPolicy):
        say(f"{outcome.reason}, ${outcome.dollars:.2f} at most. The checkpoints are in {bucket}.")
        _judge(outcome, "What happened is", "The script has not ended by itself")
    else:
        loss = "not known" if policy.progress.loss is None else f"{policy.progress.loss:.4g}"
        updates = f"{policy.progress.updates:,} updates"
        say(f"{outcome.reason}: loss {loss} after {updates}, ${outcome.dollars:.2f} at most.")
        _judge(outcome, "The model and its checkpoints are", "The loss was not reached")


def agreed(request: RentRequest, max_dollars: float | None, again: list[str], then: list[str], yes: bool) -> bool:
    """Whether it is to be rented; else all of it was printed, and the words that rent it: ``again … then``."""
    from stash.core.interrupts import require_linux
    from stash.spot.rented import rent_request

    if max_dollars is not None:
        rent_request.within_cap(request, max_dollars)
    if not yes:
        print(printable(masked_text(_script(request))), end="")
        cost = ["--max-dollars", "DOLLARS" if max_dollars is None else f"{max_dollars:g}", "--yes"]
        print(printable_line(f"Nothing was rented. To rent it: {shlex.join([*again, *cost, *then])}", 2000))
        return False
    require_linux("stash spot run")
    if max_dollars is None:
        raise UserError("say what it may cost at most with --max-dollars DOLLARS; without --yes its price is printed")
    print(printable_line(_price(request)))
    return True


def _script(request: RentRequest) -> str:
    """All that would be written and run, in order."""
    from stash.spot.rented import tasks

    parts = [f"# {_price(request)}", request.server_task().describe()]
    for number, kind in enumerate(tasks.first_workers(request), start=1):
        parts.append(request.worker_task(number, kind, "ADDRESS", kind.fixed).describe())
    secret = f"# {request.secret} holds {' and '.join(request.secret_variables)}, renewed when machines are rented"
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


def run_controller(policy: RentPolicy, request: RentRequest, max_dollars: float) -> FleetOutcome:
    """Run a controller to its end, going on where an earlier one was killed."""
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
        return RentController(request, policy, backend, say, max_dollars).run(open_leases(events))


def say(text: str) -> None:
    print(printable_line(masked_text(text), 600), flush=True)


def _judge(outcome: FleetOutcome, what: str, otherwise: str) -> None:
    """Say where what was fetched is. Raises StashError where something may still run, and ends with 1 where the
    training is not complete.
    """
    if outcome.fetched is not None:
        say(f"{what} in {shlex.quote(outcome.fetched)}.")
    if outcome.left:
        raise StashError("\n".join(outcome.left))
    if not outcome.reached:
        print(f"{otherwise}; the sentences above say why.", file=sys.stderr)
        raise typer.Exit(1)
