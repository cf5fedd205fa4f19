"""``stash spot`` and its smaller commands: fit, predict, learn, simulate."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.core.errors import UserError
from stash.spot.commands.plan_fleet import plan
from stash.spot.commands.rented_fleet import RunCommand
from stash.spot.commands.run_fleet import guard, run
from stash.spot.commands.spot_options import (
    CHECKPOINT_HELP,
    JSON_HELP,
    MODEL_HELP,
    NOTICE_HELP,
    model_of,
    seconds,
    told,
)
from stash.ui.options import App, flag, option, seconds_of

if TYPE_CHECKING:
    from stash.spot.learn.curve import ReplayMoment
    from stash.spot.records.fleets import FleetPlan
    from stash.spot.records.risks import Obtainable, SpotPrices

# Fit -------------------------------------------------------------------------------------------------------
# ``stash spot fit``: timed fleets in, a model of how their workers share the servers out.

RUNS_HELP = "A table with the columns servers, workers (v100=2+k80=1) and updates_per_second."


def fit(
    runs: Annotated[Path, typer.Argument(metavar="RUNS.csv", help=RUNS_HELP, show_default=False)],
    output: Annotated[Path | None, option("FILE", "Where the model goes.", "--output", "-o")] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Learn from timed fleets how their workers get into each other's way, and how wrong that is.

    Runs of one worker alone give each type's pace; the others, how they share the servers.

    stash spot fit runs.csv -o job.fleet.json
    """
    from stash.core.records.base import now
    from stash.core.version import __version__
    from stash.report.output import output_file, printed, write_output
    from stash.spot.model.fitting import fit as fitted
    from stash.spot.pages.fitted_model import document, render, view
    from stash.spot.spot_files import model_name, read_runs

    timed = read_runs(runs)
    target = output_file(output or Path(model_name(runs)), runs.stem, ".fleet.json")
    model = fitted(timed, str(runs), __version__, now())
    write_output(target, model.model_dump_json(indent=1) + "\n")
    printed(document(model) if json else view(model, runs.name), render)
    told(f"Saved {target}.", json)
    told(f"Ask it: stash spot predict {shlex.quote(str(target))} --workers TYPE=N", json)


# Predict ---------------------------------------------------------------------------------------------------
# ``stash spot predict``: how fast a fleet would be that nobody timed.


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
    from stash.report.output import printed
    from stash.spot.model.speed import predict as predicted
    from stash.spot.pages.predicted_fleet import document, render, view
    from stash.spot.spot_files import read_model, workers_of

    asked = workers_of(workers, "--workers", ",")
    found = predicted(read_model(model), servers, asked, None if which is None else model_of(which), bounded)
    printed(document(found) if json else view(found), render)


# Learn -----------------------------------------------------------------------------------------------------
# ``stash spot learn``: a job in, a curve of its loss out, replayed on this machine without any fleet.

JOB_HELP = "File and name of a stash.spot.Job, like job.py:job."
WORKERS_HELP = "Sizes of the fleets that are replayed."
BATCHES_HELP = "Samples of a worker's iteration; else the job's batch, twice and four times that."
UPDATES_HELP = "Of each replay; else as many as the budget allows."
BOUND_HELP = "Stale-synchronous: iterations that a worker may be ahead of the slowest; else any number."
_TIMES = (1, 2, 4)
"""The job's batch: a worker of several GPUs has several batches."""
_MAX = 256


def learn(
    job: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help=JOB_HELP, show_default=False)],
    output: Annotated[Path | None, option("FILE", "Where the curve goes.", "--output", "-o")] = None,
    workers: Annotated[str, option("N,…", WORKERS_HELP)] = "1,2,4,8",
    batches: Annotated[str | None, option("B,…", BATCHES_HELP)] = None,
    budget: Annotated[str, option("TIME", "What all replays may take.")] = "10min",
    updates: Annotated[int | None, option("N", UPDATES_HELP)] = None,
    bound: Annotated[int | None, option("S", BOUND_HELP, least=0)] = None,
    profile: Annotated[
        Path | None, option("FILE", "A profile of the job: it is checked that both train one model.")
    ] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Learn how a job's loss falls with workers and batches, from short runs on this machine.

    Fleets are replayed in virtual time: the same stale gradients in the same order, on one device.

    Ctrl-C keeps what was replayed.

    stash spot learn job.py:job -o job.curve.json
    """
    from stash.core.artefact import load
    from stash.core.records.base import now
    from stash.core.version import __version__
    from stash.report.output import output_file, printed
    from stash.spot.learn.curve import MIN_UPDATES, LearnWish, parameters_of
    from stash.spot.learn.curve import learn as learned
    from stash.spot.model.pool import same_model
    from stash.spot.pages.learned_curve import document, render, view
    from stash.spot.records.runs import CURVE_SUFFIX
    from stash.spot.spot_files import save_curve
    from stash.spot.train.elastic_job import load_job

    seconds = seconds_of("--budget", budget)
    sizes = _numbers("--workers", workers, _MAX)
    if updates is not None and updates < MIN_UPDATES:
        raise UserError(f"--updates {updates}: {MIN_UPDATES} are the least that show a course")
    parts = load_job(job)
    target = output_file(output, Path(job.rpartition(":")[0]).stem, CURVE_SUFFIX)
    many = tuple(parts.batch * times for times in _TIMES) if batches is None else _numbers("--batches", batches)
    if profile is not None:
        same_model(load(profile), str(profile), parameters_of(parts, job), job)
    wish = LearnWish(sizes, many, seconds, updates, bound)
    progress = ReplayProgress()
    try:
        curve = learned(parts, job, wish, __version__, now(), progress.show)
    finally:
        progress.end()
    save_curve(curve, target)
    printed(document(curve) if json else view(curve), render)
    told(f"Saved {target}.", json)
    told(f"Plan with it: stash spot plan PROFILE --curve {shlex.quote(str(target))} --deadline 6h --loss LOSS", json)


def _numbers(option: str, text: str, most: int = 2**31) -> tuple[int, ...]:
    """Of ``1,2,4``, each once, smallest first; raises UserError."""
    found = set()
    for word in text.split(","):
        digits = word.strip()
        if not (digits.isascii() and digits.isdigit() and len(digits) < 11 and 0 < int(digits) <= most):
            raise UserError(
                f"{option} {text!r} cannot be read at {digits!r}; write numbers from 1 to {most:,}, like 1,2,4"
            )
        found.add(int(digits))
    return tuple(sorted(found))


class ReplayProgress:
    """One line on a terminal that is written anew; in a log a line for each replay. On standard error."""

    _PAUSE = 0.5

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._next, self._number, self._width = 0.0, 0, 0

    def show(self, moment: ReplayMoment) -> None:
        now = time.monotonic()
        if self._live and now >= self._next:
            self._next = now + self._PAUSE
            line = _line(moment)[: shutil.get_terminal_size().columns - 1]
            sys.stderr.write("\r" + line.ljust(self._width))
            self._width = len(line)
            sys.stderr.flush()
        elif not self._live and moment.number != self._number:
            self._number = moment.number
            print(_line(moment), file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()


def _line(moment: ReplayMoment) -> str:
    from stash.core.formatting import span
    from stash.core.units import counted

    fleet = f"{counted(len(moment.fleet), 'worker')} x {moment.fleet[0].samples}"
    return (
        f"replay {moment.number} of {moment.replays}, {span(max(moment.seconds_left, 0.0))} left: {fleet}, "
        f"update {moment.update:,} of {moment.updates:,}, loss {moment.loss:.4g}"
    )


# Simulate --------------------------------------------------------------------------------------------------
# ``stash spot simulate``: a plan's fleet against machines that come and go.

DEFAULT_POLICIES = "greedy,uniform,on-demand,spot"
TRACE_HELP = "Machines obtainable, tick by tick (JSON); repeatable: more zones, or one each as TYPE=FILE."
PRICES_HELP = "Spot prices over time (CSV: type,time,dollars_per_hour); else the plan's."
OUTPUT_HELP = "Write it too: a page (.html), or cost by policy as a picture (.svg, .png, .pdf)."
_ENDINGS = (".html", ".svg", ".png", ".pdf")
_MAX_RUNS = 1_000_000


def simulate(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="What `stash spot plan -o` saved.", show_default=False)
    ],
    trace: Annotated[list[str], option("FILE", TRACE_HELP)],
    policy: Annotated[str, option("NAME,…", "greedy, uniform, on-demand, spot, omniscient.")] = DEFAULT_POLICIES,
    runs: Annotated[int, option("N", "Runs, each from a tick of its own.", least=2)] = 10_000,
    seed: Annotated[int, option("N", "Of the ticks; the same for all policies.", least=0)] = 17,
    prices: Annotated[Path | None, option("FILE", PRICES_HELP)] = None,
    checkpoint: Annotated[str | None, option("TIME", CHECKPOINT_HELP)] = None,
    notice: Annotated[str | None, option("TIME", NOTICE_HELP)] = None,
    output: Annotated[Path | None, option("FILE", OUTPUT_HELP, "--output", "-o")] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Say what a plan's fleet costs on spot as it comes and goes, how often it is late, and whether to refuse spot.

    stash spot simulate job.plan.json --trace zone-a.json --policy greedy,uniform,on-demand
    """
    from stash.report.output import output_file, printed, write_output
    from stash.spot.pages.simulated_policies import document, render, view
    from stash.spot.policies.policies import POLICIES
    from stash.spot.policies.simulating import simulate as simulated
    from stash.spot.spot_files import read_plan

    asked = [name.strip() for name in policy.split(",")]
    wrong = next((name for name in asked if name not in POLICIES), None)
    if wrong is not None:
        raise UserError(f"--policy {wrong!r} is none of {', '.join(POLICIES)}")
    if runs > _MAX_RUNS:
        raise UserError(f"--runs {runs} is more than {_MAX_RUNS:,}; take fewer")
    target = None if output is None else output_file(_pictured(output), "", output.suffix)
    planned = read_plan(plan)
    traces = _traces(planned, trace)
    found = simulated(
        planned,
        traces,
        [name for name in POLICIES if name in asked],
        runs,
        seed,
        seconds("--checkpoint", checkpoint),
        seconds("--notice", notice),
        None if prices is None else _prices(prices, traces),
    )
    source = ", ".join(Path(word.rpartition("=")[2]).name for word in trace)
    if target is not None:
        from stash.spot.pages.fleet_pages import picture

        write_output(target, picture(found, source, target.suffix))
    printed(document(found) if json else view(found, source), render)
    if target is not None:
        told(f"Saved {target}.", json)


def _pictured(output: Path) -> Path:
    if output.suffix not in _ENDINGS:
        raise UserError(f"--output {output}: a name ends in {', '.join(_ENDINGS)}")
    return output


def _traces(plan: FleetPlan, words: Sequence[str]) -> list[Obtainable]:
    """As they were given; those of the types, as one. Raises UserError where both are."""
    from stash.spot.market_files import read_obtainable
    from stash.spot.policies.markets import revocable, together

    parts = [word.partition("=") for word in words]
    known = [kind.name for kind in plan.pool.types]
    own = {kind: read_obtainable(Path(text)) for kind, _, text in parts if kind in known}
    if not own:
        return [read_obtainable(Path(word)) for word in words]
    if len(own) < len(words):
        raise UserError("--trace is given with and without a type; give one of each type, or traces of all together")
    return [together(revocable(plan), own)]


def _prices(path: Path, traces: Sequence[Obtainable]) -> dict[str, SpotPrices]:
    """Read; raises UserError for old ones that no trace of their time goes with."""
    import time

    from stash.catalog.facts import OLD_DAYS
    from stash.spot.market_files import read_prices

    found = read_prices(path)
    days = (time.time() - max(series.moments[-1] for series in found.values())) / 86400
    if days > OLD_DAYS and any(each.start_seconds is None for each in traces):
        raise UserError(
            f"the prices of {path} end {days:,.0f} days ago; take newer ones, or say in the trace's metadata when it "
            'began, like "start": "2023-02-15T00:00:00Z"'
        )
    return found


# App -------------------------------------------------------------------------------------------------------
# ``stash spot``: gathers its commands, each of which parses, loads and shows.

app = App(no_args_is_help=True)


@app.callback()
def spot() -> None:
    """Training on rented machines through parameter servers: how fast, how long, and which are cheapest."""


app.command()(fit)
app.command()(predict)
app.command()(learn)
app.command()(plan)
app.command()(simulate)
app.command(cls=RunCommand)(run)
app.command()(guard)
