"""``stash spot``: fleets that train through parameter servers: fitted to runs, predicted, and chosen from a pool.

Parses, loads, shows; what it says comes from ``stash.derive.spot`` and ``stash.show.spot``.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.base.printable import printable_line
from stash.cli.options import App, flag, option, positive

if TYPE_CHECKING:
    from stash.base.spot import FleetPool, SpeedModel

app = App(no_args_is_help=True)
MODELS = ("queue", "paper")
MODEL_HELP = "queue (workers wait at the servers) or paper (equations 8 and 9 of spotDNN)"
JSON_HELP = "Print JSON; its keys are a contract (docs/format.md)."
RUNS_HELP = "A table with the columns servers, workers (v100=2+k80=1) and updates_per_second."
DEFAULT_POLICIES = "greedy,uniform,on-demand,spot"
_MOST_RUNS = 1_000_000
POOL_HELP = "What may be rented, what it does alone and costs, and the loss curve (docs/how-to/spot.md)."


@app.callback()
def spot() -> None:
    """Training on rented machines through parameter servers: how fast, how long, and which are cheapest."""


@app.command()
def fit(
    runs: Annotated[Path, typer.Argument(metavar="RUNS.csv", help=RUNS_HELP, show_default=False)],
    output: Annotated[Path | None, option("FILE", "Where the model goes.", "--output", "-o")] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Learn from timed fleets how their workers get into each other's way, and how wrong that is.

    Runs of one worker alone give each type's pace; the others, how they share the servers.

    stash spot fit runs.csv -o job.fleet.json
    """
    from stash.base.records.base import now
    from stash.base.version import __version__
    from stash.cli.output import output_file, printed, write_output
    from stash.derive.spot.fitting import fit as fitted
    from stash.keep.fleets import model_name, read_runs
    from stash.show.spot.fitted import document, render, view

    timed = read_runs(runs)
    target = output_file(output or Path(model_name(runs)), runs.stem, ".fleet.json")
    model = fitted(timed, str(runs), __version__, now())
    write_output(target, model.model_dump_json(indent=1) + "\n")
    printed(document(model) if json else view(model, runs.name), render)
    _told(f"Saved {target}.", json)
    _told(f"Ask it: stash spot predict {shlex.quote(str(target))} --workers TYPE=N", json)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="What `stash spot fit` saved.", show_default=False)],
    workers: Annotated[str, option("TYPE=N,…", 'The fleet, like "v100=1,k80=2".')],
    servers: Annotated[int, option("N", "Parameter servers.", least=1)] = 1,
    which: Annotated[str | None, option("NAME", f"{MODEL_HELP}; else the one that erred less.", "--model")] = None,
    bounded: Annotated[bool, flag("--bounded", "Stale-synchronous: all as fast as the slowest.")] = False,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Say how many updates per second a fleet would make that nobody timed.

    stash spot predict job.fleet.json --servers 1 --workers v100=1,k80=2
    """
    from stash.cli.output import printed
    from stash.derive.spot.predicting import predict as predicted
    from stash.keep.fleets import read_model, workers_of
    from stash.show.spot.predicted import document, render, view

    asked = workers_of(workers, "--workers", ",")
    found = predicted(read_model(model), servers, asked, None if which is None else _model(which), bounded)
    printed(document(found) if json else view(found), render)


@app.command()
def plan(
    pool: Annotated[Path, option("FILE", POOL_HELP)],
    deadline: Annotated[str, option("TIME", 'When the loss has to be reached, like "6h" or "2400s".')],
    loss: Annotated[float, option("LOSS", "What training has to reach.")],
    which: Annotated[str, option("NAME", MODEL_HELP, "--model")] = "queue",
    quota: Annotated[list[str] | None, option("TYPE=N", "Machines of a type at most; repeatable.")] = None,
    vcpus: Annotated[float | None, option("N", "vCPUs of all machines at most.")] = None,
    confidence: Annotated[float | None, option("P", "How probable it has to be that it is in time.")] = None,
    budget: Annotated[float | None, option("DOLLARS", "What all of it may cost.")] = None,
    output: Annotated[Path | None, option("FILE", "Where the plan goes.", "--output", "-o")] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Find the cheapest fleet that reaches a loss by a deadline, and say why others lost.

    stash spot plan --pool pool.yaml --deadline 2400s --loss 0.8 --model paper
    """
    from stash.base.records.base import now
    from stash.base.version import __version__
    from stash.base.words.units import parse_seconds
    from stash.cli.output import output_file, printed, write_output
    from stash.derive.spot.provision import provision
    from stash.derive.spot.weighing import LONGEST, FleetWish
    from stash.keep.fleets import read_pool
    from stash.show.spot.planned import document, render, view

    if confidence is not None and not 0.5 <= confidence < 1:
        raise UserError(f"--confidence {confidence:g}: it must be from 0.5 to below 1, like 0.9")
    offers = _limited(read_pool(pool), quota or [], vcpus)
    seconds = positive("--deadline", parse_seconds(deadline), "more than 0", finite=True)
    if seconds > LONGEST:
        raise UserError(f"--deadline {deadline}: it must be below 30 years")
    wish = FleetWish(
        offers, _model(which), positive("--loss", loss, finite=True), seconds, confidence, _budget(budget)
    )
    target = None if output is None else output_file(output, "job", ".plan.json")
    found = provision(wish, __version__, now())
    if target is not None:
        write_output(target, found.model_dump_json(indent=1) + "\n")
    printed(document(found) if json else view(found, pool.name), render)
    if target is not None:
        _told(f"Saved {target}.", json)


@app.command()
def simulate(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="What `stash spot plan -o` saved.", show_default=False)
    ],
    trace: Annotated[Path, option("FILE", "Machines obtainable, tick by tick (JSON).")],
    policy: Annotated[str, option("NAME,…", "greedy, uniform, on-demand, spot, omniscient.")] = DEFAULT_POLICIES,
    runs: Annotated[int, option("N", "Runs, each from a tick of its own.", least=2)] = 10_000,
    seed: Annotated[int, option("N", "Of the ticks; the same for all policies.", least=0)] = 17,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Say what a plan's fleet costs on spot as it comes and goes, how often it is late, and whether to refuse spot.

    stash spot simulate job.plan.json --trace zone-a.json --policy greedy,uniform,on-demand
    """
    from stash.cli.output import printed
    from stash.derive.spot.policies import POLICIES
    from stash.derive.spot.simulating import simulate as simulated
    from stash.keep.fleets import read_obtainable, read_plan
    from stash.show.spot.simulated import document, render, view

    asked = [name.strip() for name in policy.split(",")]
    wrong = next((name for name in asked if name not in POLICIES), None)
    if wrong is not None:
        raise UserError(f"--policy {wrong!r} is none of {', '.join(POLICIES)}")
    if runs > _MOST_RUNS:
        raise UserError(f"--runs {runs} is more than {_MOST_RUNS:,}; take fewer")
    names = [name for name in POLICIES if name in asked]
    found = simulated(read_plan(plan), read_obtainable(trace), names, runs, seed)
    printed(document(found) if json else view(found, trace.name), render)


def _told(note: str, json: bool) -> None:
    """Beside what was printed; where that is JSON, standard output holds nothing else."""
    print(printable_line(note), file=sys.stderr if json else sys.stdout)


def _model(name: str) -> SpeedModel:
    if name == "queue":
        return "queue"
    if name == "paper":
        return "paper"
    raise UserError(f"--model {name!r} is none of {' and '.join(MODELS)}")


def _budget(dollars: float | None) -> float | None:
    return None if dollars is None else positive("--budget", dollars, finite=True)


def _limited(pool: FleetPool, quotas: list[str], vcpus: float | None) -> FleetPool:
    """The pool with these quotas; raises UserError for a type that it does not have."""
    from stash.base.words.quantities import listed
    from stash.base.words.spelling import nearest

    asked: dict[str, int] = {}
    for text in quotas:
        name, _, count = text.partition("=")
        if not (count.isascii() and count.isdigit() and len(count) < 6):
            raise UserError(f"--quota {text!r} cannot be read; write it like g4dn.4xlarge=5")
        asked[name.strip()] = int(count)
    known = [kind.name for kind in pool.types]
    for name in asked:
        if name not in known:
            alike = nearest(name, known, 1)
            hint = f"did you mean {alike[0]}?" if alike else f"it has {listed(known)}"
            raise UserError(f"--quota {name}: the pool has no such type; {hint}")
    types = tuple(kind.model_copy(update={"quota": asked.get(kind.name, kind.quota)}) for kind in pool.types)
    most = pool.most_vcpus if vcpus is None else positive("--vcpus", vcpus, finite=True)
    return pool.model_copy(update={"types": types, "most_vcpus": most})
