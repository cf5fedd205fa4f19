"""``stash spot`` and its smaller commands: fit, predict, learn."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stash.api import print_answer
from stash.core import parsers
from stash.core.output_files import output_file, write_output
from stash.core.printable import print_note, print_written
from stash.spot.commands.plan_fleet import plan
from stash.spot.commands.run_fleet import guard, run
from stash.spot.fleet_records import FLEET_MODEL_SUFFIX
from stash.spot.model.fitting import fit_fleets, predict_fleet
from stash.spot.pages.fleet_models import document, page_of_curve, page_of_model, page_of_speed
from stash.spot.run_records import CURVE_SUFFIX
from stash.spot.spot_files import read_model, read_runs, save_curve, workers_of
from stash.spot.train.elastic_job import load_job
from stash.ui.commands import App
from stash.ui.options import Options, argument, json_flag, option, quiet_flag


@dataclass(frozen=True, kw_only=True)
class FitOptions(Options):
    """One call of ``stash spot fit``."""

    runs: Path = argument(
        "RUNS.csv",
        "A table with columns servers, workers (v100=2+k80=1) and updates_per_second.",
        Path,
    )
    output: Path | None = option("FILE", "Write the model to this file.", Path, "--output", "-o")


def fit(options: FitOptions) -> None:
    """Fit how the workers of timed fleets slow each other down.

    Runs of one worker alone give each type's speed; the others show how they share the servers.

    Examples:
      stash spot fit runs.csv -o job.fleet.json
    """
    runs = options.runs
    timed = read_runs(runs)
    target = output_file(options.output, runs.stem, FLEET_MODEL_SUFFIX)
    model = fit_fleets(timed, str(runs))
    write_output(target, model.model_dump_json(indent=1) + "\n")
    print_answer(page_of_model(model, runs.name))
    print_written(target, False)
    print_note(
        f"Ask it: stash spot predict {shlex.quote(str(target))} --fleet-workers TYPE=N", False
    )


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Options):
    """One call of ``stash spot predict``."""

    model: Path = argument("MODEL", "A model of `stash spot fit`.", Path)
    fleet_workers: str = option("TYPE=N,…", 'Use these workers, like "v100=1,k80=2".', default=...)
    servers: int = option("N", "Use N parameter servers.", parsers.whole(1), default="1")
    json: bool = json_flag()


def predict(options: PredictOptions) -> None:
    """Predict the updates per second of a fleet that was not timed.

    Examples:
      stash spot predict job.fleet.json --servers 1 --fleet-workers v100=1,k80=2
    """
    fleet = workers_of(options.fleet_workers, "--fleet-workers", ",")
    found = predict_fleet(read_model(options.model), options.servers, fleet)
    print_answer(document(found) if options.json else page_of_speed(found))


_TIMES = (1, 2, 4)
"""The job's batch: a worker of several GPUs has several batches."""
_MAX = 256


@dataclass(frozen=True, kw_only=True)
class LearnOptions(Options):
    """One call of ``stash spot learn``."""

    job: str = argument("FILE.py:NAME", "File and name of a stash.spot.Job, like job.py:job.")
    output: Path | None = option("FILE", "Write the curve to this file.", Path, "--output", "-o")
    fleet_sizes: tuple[int, ...] = option(
        "N,…",
        "Replay fleets of these sizes.",
        parsers.whole_numbers(_MAX),
        default="1,2,4,8",
    )
    budget: float = option(
        "TIME", "Spend at most this long on all replays.", parsers.duration, default="600"
    )
    quiet: bool = quiet_flag()


def learn(options: LearnOptions) -> None:
    """Learn how a job's loss falls, from short runs on this machine.

    Fleets are replayed in virtual time: the same stale gradients in the same order, on one device. Ctrl-C keeps the
    finished replays.

    Examples:
      stash spot learn job.py:job -o job.curve.json
    """
    from stash.spot.learn_curve import learn as learned

    job = options.job
    parts = load_job(job)
    target = output_file(options.output, Path(job.rpartition(":")[0]).stem, CURVE_SUFFIX)
    batches = tuple(parts.batch * times for times in _TIMES)
    curve = learned(
        parts,
        job,
        options.fleet_sizes,
        batches,
        options.budget,
        (lambda sentence: None) if options.quiet else partial(print_note, json=True),
    )
    save_curve(curve, target)
    print_answer(page_of_curve(curve))
    print_written(target, False)
    print_note(
        f"Plan with it: stash spot plan PROFILE --curve {shlex.quote(str(target))} --deadline 6h --loss LOSS",
        False,
    )


app = App(no_args_is_help=True)


@app.callback()
def spot() -> None:
    """Plan and run training on spot machines with parameter servers."""


app.command()(fit)
app.command()(predict)
app.command()(learn)
app.command()(plan)
app.command()(run)
app.command()(guard)
