"""How Stash reads and shows files about spot machines: as ``stash spot simulate`` and ``plan``, in fewer runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stash.core.printable import strict_json
from stash.spot.market_files import read_lives, read_obtainable, read_prices
from stash.spot.pages import fleet_plan, run_report, simulated_policies
from stash.spot.policies.simulating import simulate
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.risks import Obtainable
from stash.spot.risk.lifetimes import Gang, law_of
from stash.spot.spot_files import load_spot_log, read_plan
from stash.ui import html, markdown, terminal
from stash.ui.charts.svg import svg

PLAN = Path(__file__).parent / "corpus" / "spot-plan" / "one.json"
RUNS = 20


def _simulated(plan: FleetPlan, trace: Obtainable, prices: Path | None = None) -> list[str]:
    known = None if prices is None else read_prices(prices)
    found = simulate(plan, [trace], runs=RUNS, write_seconds=20.0, notice_seconds=5.0, prices=known)
    return [
        strict_json(simulated_policies.document(found)),
        terminal.render(simulated_policies.page(found, "zone.json")),
        *(svg(chart, 860) for chart in simulated_policies.page(found, "zone.json").charts),
    ]


def trace(path: Path) -> list[str]:
    """A trace, simulated on."""
    return _simulated(read_plan(PLAN), read_obtainable(path))


def lives(path: Path) -> list[str]:
    """Machines that were watched, and their law."""
    chosen = law_of(read_lives(path))
    return [chosen.why, f"{chosen.law.mean:g} {Gang(((chosen.law, 3),)).survival(np.array([600.0]))[0]:g}"]


def prices(path: Path) -> list[str]:
    """Prices over time, simulated on."""
    steady = Obtainable(gap_seconds=300, machines=(9, 9, 0) * 60)
    return _simulated(read_plan(PLAN), steady, path)


def plan(path: Path) -> list[str]:
    """A plan, shown, reported and simulated."""
    found = read_plan(path)
    steady = Obtainable(gap_seconds=300, machines=(9, 9, 0) * 60)
    return [
        strict_json(fleet_plan.document(found)),
        terminal.render(fleet_plan.page(found, path.name)),
        html.render(fleet_plan.page(found, path.name)),
        *_simulated(found, steady),
    ]


def log(path: Path) -> list[str]:
    """A run's log, shown and reported."""
    found = load_spot_log(path)
    page = run_report.page(found, path.name)
    return [
        strict_json(run_report.document(found)),
        terminal.render(page),
        html.render(page),
        markdown.render(page),
        *(svg(chart, 860) for chart in page.charts),
    ]
