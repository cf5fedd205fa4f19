"""``stash spot simulate``: a plan's fleet against machines that come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import flag, option
from stash.cli.spot.words import JSON_HELP

DEFAULT_POLICIES = "greedy,uniform,on-demand,spot"
_MOST_RUNS = 1_000_000


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
    from stash.keep.fleets import read_plan
    from stash.keep.watched import read_obtainable
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
