"""``stash spot run``: trains as a plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import flag, option, positive

GROUNDS = ("cloud",)
_PLAN_HELP = "What `stash spot plan -o` saved."


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help=_PLAN_HELP, show_default=False)],
    job: Annotated[str, typer.Argument(metavar="FILE.py:JOB", help="The stash.spot.Job.", show_default=False)],
    on: Annotated[str, option("WHERE", "cloud (rented machines, through SkyPilot).")] = "cloud",
    infra: Annotated[str | None, option("CLOUD/REGION", "Where to rent, like aws/us-east-1 or kubernetes.")] = None,
    max_cost: Annotated[float | None, option("DOLLARS", "A hard stop; counts what is rented until it ends.")] = None,
    bucket: Annotated[str | None, option("URL", "Where servers keep checkpoints; else on their disk.")] = None,
    yes: Annotated[bool, flag("--yes", "Rent; else what would be run is printed.")] = False,
) -> None:
    """Train a plan's fleet on rented machines, replace those that are taken away, and leave nothing running.

    stash spot run job.plan.json job.py:job --infra aws/us-east-1 --max-cost 25
    """
    from stash.cli.spot.rented import run_rented

    if on not in GROUNDS:
        raise UserError(f"--on {on!r} is none of {' and '.join(GROUNDS)}")
    cap = None if max_cost is None else positive("--max-cost", max_cost, finite=True)
    run_rented(plan, job, infra, cap, bucket, yes)
