"""``stash spot predict``: how fast a fleet would be that nobody timed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stash.cli.options import flag, option
from stash.cli.spot.words import JSON_HELP, MODEL_HELP, model_of


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
    from stash.derive.spot.speed.predicting import predict as predicted
    from stash.keep.fleets import read_model, workers_of
    from stash.show.spot.predicted import document, render, view

    asked = workers_of(workers, "--workers", ",")
    found = predicted(read_model(model), servers, asked, None if which is None else model_of(which), bounded)
    printed(document(found) if json else view(found), render)
