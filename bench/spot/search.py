"""How the exact search of fleets does: against brute force, against a black box, and on large pools.

Prints tables of processor seconds (other work may be going on) and of fleets weighed. Random pools have fixed seeds.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.machine import arguments, machine, timed
from bench.spot.rivals import anneal, baselines, cost_of
from bench.table import show
from stash.spot.choose.branching import cheapest
from stash.spot.choose.fleet_costs import FleetWish, all_fleets
from stash.spot.choose.provision import provision
from stash.spot.records.fleets import Contention, FleetPool, LossCurve, ParameterServers, WorkerType
from stash.spot.spot_files import read_pool

POOL = Path(__file__).parent / "data" / "spotdnn.pool.yaml"
ROWS = ((0.9, 1900.0), (0.8, 2400.0), (0.7, 3700.0))
CLOSE = 1.001
MAX_EVALUATIONS = 5_000
EXCHANGED, ASKED, PCIE = 11.5e6, 142e6, 10e9
SLOWER = 1.1
"""Times its exchange alone that an iteration takes at least."""


def drawn(seed: int, types: int, quota: int) -> FleetPool:
    """A pool in the likeness of the published one; every second with R. None is faster alone than its exchange."""
    draw = np.random.default_rng(seed)
    kinds = [
        {
            "gpus": int(draw.choice([1, 2, 4, 8])),
            "batch": float(draw.choice([128, 256, 512, 1024])),
            "samples_per_second": float(draw.uniform(300, 2500)),
            "dollars_per_hour": float(draw.uniform(0.2, 3)),
        }
        for _ in range(types)
    ]
    return FleetPool(
        as_of="2026-11-22",
        source="drawn",
        exchange_bytes=EXCHANGED,
        worker_bytes_per_second=ASKED,
        pcie_bytes_per_second=PCIE,
        server=ParameterServers(bytes_per_second=1200e6, dollars_per_hour=0.2),
        contention=Contention(alpha=0.8, beta=-1.92),
        loss=LossCurve(gamma1=876.5, gamma2=-0.2, gamma3=2507.6, gamma4=0.3 if seed % 2 else None, gamma5=0.5),
        start_seconds=float(draw.choice([0, 120])),
        types=tuple(WorkerType(name=f"t{number}", quota=quota, **_able(kind)) for number, kind in enumerate(kinds)),
    )


def _able(kind: dict[str, Any]) -> dict[str, Any]:
    least = 2 * EXCHANGED / ASKED + 2 * kind["gpus"] * EXCHANGED / PCIE
    fastest = kind["gpus"] * kind["batch"] / (SLOWER * least)
    return {**kind, "samples_per_second": min(kind["samples_per_second"], fastest)}


def wished(seed: int, types: int, quota: int) -> FleetWish:
    """A goal half way between what one machine needs and what is soonest of ever more of the fastest."""
    wish = FleetWish(drawn(seed, types, quota), "paper", 0.8, 1e9)
    alone = cheapest(wish)
    return replace(wish, deadline_seconds=0.6 * _seconds(wish, alone.dollars, alone.counts))


def _seconds(wish: FleetWish, dollars: float, counts: np.ndarray | None) -> float:
    assert counts is not None
    return dollars * 3600 / float(counts @ wish.prices + wish.server_price)


def black_box(wish: FleetWish, best: float) -> tuple[int | None, float]:
    """(fleets weighed until one is within 0.1 % of the best, ``None`` if never; processor seconds for all)."""
    (_, course), seconds = timed(anneal, wish.quotas, cost_of(wish, None), MAX_EVALUATIONS)
    reached = [number for number, cost in enumerate(course, start=1) if cost <= best * CLOSE]
    return (reached[0] if reached else None), seconds * (reached[0] / len(course) if reached else 1)


def published() -> Iterator[list[object]]:
    """Both searches and the black box on the published pool, which must agree."""
    for loss, seconds in ROWS:
        wish = FleetWish(read_pool(POOL), "paper", loss, seconds)
        every, took = timed(all_fleets, wish)
        dollars = np.where(every.feasible, every.dollars, math.inf)
        best = int(np.argmin(dollars))
        found, branched = timed(cheapest, wish)
        tries, boxed = black_box(wish, float(dollars[best]))
        assert math.isclose(found.dollars, dollars[best], rel_tol=1e-6)
        yield [
            f"{loss:g}, {seconds:,.0f} s", [int(n) for n in every.counts[best]], f"{dollars[best]:.3f}",
            f"{len(dollars):,} fleets, {took:.3f} s", f"{found.evaluations} fleets, {branched:.2f} s",
            f"{tries} fleets, {boxed:.2f} s",
        ]  # fmt: skip


def against_force(pools: int) -> str:
    """How often both searches agree."""
    alike = 0
    for seed in range(pools):
        wish = wished(seed, 4, 5)
        weighed = all_fleets(wish)
        best = float(np.where(weighed.feasible, weighed.dollars, math.inf).min())
        alike += math.isclose(cheapest(wish).dollars, best, rel_tol=2e-6)
    return f"{alike} of {pools} random pools (4 types × 5): branching finds what brute force finds."


def others() -> Iterator[list[object]]:
    """What others would rent of the published pool."""
    for loss, seconds in ROWS:
        wish = FleetWish(read_pool(POOL), "paper", loss, seconds)
        best = cheapest(wish)
        for each in baselines(wish, best.counts, all_fleets(wish), lambda other: cheapest(other).counts):
            chosen = ("none", "") if each.fleet is None else (each.fleet.workers, f"{each.fleet.dollars:.3f}")
            yield [f"{loss:g}, {seconds:,.0f} s", each.name, *chosen, each.why]


def large(types: int, quota: int, pools: int) -> list[object]:
    """A line on pools of one size, whether anything does what is asked of them or not."""
    searched, planned, found, tries = [], [], [], []
    for seed in range(pools):
        wish = wished(seed, types, quota)
        each, seconds = timed(cheapest, wish)
        found.append(each)
        searched.append(seconds)
        planned.append(timed(provision, wish, "bench", "now")[1])
        if each.counts is not None:
            tries.append(black_box(wish, each.dollars)[0] or MAX_EVALUATIONS)
    return [
        f"{types} × {quota}", pools, *(f"{of(took):.2f}" for took in (searched, planned) for of in (median, max)),
        f"{median(each.nodes for each in found):.0f}", f"{median(each.evaluations for each in found):.0f}",
        f"{median(tries):,.0f}", sum(each.gap > 0 for each in found),
    ]  # fmt: skip


def main() -> None:
    asked = arguments(__doc__, pools=(20, "random pools of each size"), large=(5, "pools of 200 types × 20"))
    show(("goal", "fleet", "dollars", "enumeration", "branching", "black box"), published())
    print("", against_force(asked.pools), "", sep="\n", flush=True)
    show(("goal", "who", "fleet", "dollars", "why not"), others())
    print(flush=True)
    heads = ("types × quota", "pools", "search s", "most", "plan s", "most", "boxes", "weighed", "black box")
    sizes = ((30, 20, asked.pools), (200, 20, asked.large))
    show((*heads, "not proven"), (large(*size) for size in sizes))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nAt most {peak:.0f} MB; processor seconds; {machine()}.")


if __name__ == "__main__":
    main()
