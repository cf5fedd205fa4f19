"""How Stash reads and shows files about spot machines: as ``stash spot simulate`` and ``plan``, in fewer runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stash.base.printable import strict_json
from stash.base.spot.fleets import FleetPlan
from stash.base.spot.market import Obtainable
from stash.derive.spot.holding.simulating import simulate
from stash.derive.spot.risk.lifetimes import Gang, ObservedLives, law_of
from stash.keep.fleets import read_plan
from stash.keep.spotlogs import load_spot_log
from stash.keep.watched import read_lives, read_obtainable, read_prices
from stash.show.charts.svg import svg
from stash.show.report import html, markdown
from stash.show.spot import planned, ran, simulated
from stash.show.spot.page import page_of_log, page_of_plan, page_of_simulation

PLAN = Path(__file__).parent / "corpus" / "spot-plan" / "one.json"
RUNS = 20


def _simulated(plan: FleetPlan, trace: Obtainable, prices: Path | None = None) -> list[str]:
    known = None if prices is None else read_prices(prices)
    found = simulate(plan, [trace], runs=RUNS, write_seconds=20.0, notice_seconds=5.0, prices=known)
    return [
        strict_json(simulated.document(found)),
        simulated.render(simulated.view(found, "zone.json")),
        *(svg(chart, 860) for chart in page_of_simulation(found, "zone.json").charts),
    ]


def trace(path: Path) -> list[str]:
    """A trace, simulated on."""
    return _simulated(read_plan(PLAN), read_obtainable(path))


def lives(path: Path) -> list[str]:
    """Machines that were watched, and their law."""
    found = read_lives(path)
    chosen = law_of(ObservedLives(np.array(found.seconds), np.array(found.revoked)))
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
        strict_json(planned.document(found)),
        planned.render(planned.view(found, path.name)),
        html.render(page_of_plan(found, path.name)),
        *_simulated(found, steady),
    ]


def log(path: Path) -> list[str]:
    """A run's log, shown and reported."""
    found = load_spot_log(path)
    page = page_of_log(found, path.name)
    return [
        strict_json(ran.document(found)),
        ran.render(ran.view(found), 80),
        html.render(page),
        markdown.render(page),
        *(svg(chart, 860) for chart in page.charts),
    ]
