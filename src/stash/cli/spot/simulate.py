"""``stash spot simulate``: a plan's fleet against machines that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import flag, option
from stash.cli.spot.dangers import CHECKPOINT_HELP, NOTICE_HELP, seconds
from stash.cli.spot.words import JSON_HELP, told

if TYPE_CHECKING:
    from stash.base.spot.fleets import FleetPlan
    from stash.base.spot.market import Obtainable, SpotPrices

DEFAULT_POLICIES = "greedy,uniform,on-demand,spot"
TRACE_HELP = "Machines obtainable, tick by tick (JSON); repeatable: more zones, or one each as TYPE=FILE."
PRICES_HELP = "Spot prices over time (CSV: type,time,dollars_per_hour); else the plan's."
OUTPUT_HELP = "Write it too: a page (.html), or cost by policy as a picture (.svg, .png, .pdf)."
_ENDINGS = (".html", ".svg", ".png", ".pdf")
_MOST_RUNS = 1_000_000


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
    from stash.cli.output import output_file, printed, write_output
    from stash.derive.spot.holding.policies import POLICIES
    from stash.derive.spot.holding.simulating import simulate as simulated
    from stash.keep.fleets import read_plan
    from stash.show.spot.simulated import document, render, view

    asked = [name.strip() for name in policy.split(",")]
    wrong = next((name for name in asked if name not in POLICIES), None)
    if wrong is not None:
        raise UserError(f"--policy {wrong!r} is none of {', '.join(POLICIES)}")
    if runs > _MOST_RUNS:
        raise UserError(f"--runs {runs} is more than {_MOST_RUNS:,}; take fewer")
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
        from stash.show.spot.page import picture

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
    from stash.derive.spot.holding.markets import revocable, together
    from stash.keep.watched import read_obtainable

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

    from stash.keep.catalog.ages import OLD_DAYS
    from stash.keep.watched import read_prices

    found = read_prices(path)
    days = (time.time() - max(series.moments[-1] for series in found.values())) / 86400
    if days > OLD_DAYS and any(each.start_seconds is None for each in traces):
        raise UserError(
            f"the prices of {path} end {days:,.0f} days ago; take newer ones, or say in the trace's metadata when it "
            'began, like "start": "2023-02-15T00:00:00Z"'
        )
    return found
