"""``stash spot fit``: timed fleets in, a model of how their workers share the servers out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from stash.cli.options import flag, option
from stash.cli.spot.words import JSON_HELP, told

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
    from stash.base.records.base import now
    from stash.base.version import __version__
    from stash.cli.output import output_file, printed, write_output
    from stash.derive.spot.speed.fitting import fit as fitted
    from stash.keep.fleets import model_name, read_runs
    from stash.show.spot.fitted import document, render, view

    timed = read_runs(runs)
    target = output_file(output or Path(model_name(runs)), runs.stem, ".fleet.json")
    model = fitted(timed, str(runs), __version__, now())
    write_output(target, model.model_dump_json(indent=1) + "\n")
    printed(document(model) if json else view(model, runs.name), render)
    told(f"Saved {target}.", json)
    told(f"Ask it: stash spot predict {shlex.quote(str(target))} --workers TYPE=N", json)
