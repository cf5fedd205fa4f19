"""How long it takes to decide what to rent when machines of a fleet are gone.

A table of processor seconds (other work may be going on). Situations are drawn with a fixed seed: any
survivors, any loss on the way, a type that cools down, a speed that was observed. Every pool is asked about twice:
with spot machines alone, and with machines on demand at three times their price, where in every second situation all
types cool down.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from bench.machine import arguments, machine, timed
from bench.spot.search import POOL, drawn
from bench.table import show
from stash.spot.records.fleets import FleetPlan, FleetPool
from stash.spot.replacement.outlook import FleetSituation
from stash.spot.replacement.replanning import replan
from stash.spot.spot_files import read_pool

LOSS, DEADLINE = 0.8, 3000.0


def plan_of(pool: FleetPool, model: str) -> FleetPlan:
    """A wish, without the search for its fleet: a situation says who is there."""
    return FleetPlan(
        stash_version="", created="", model=model, deadline_seconds=DEADLINE, loss=LOSS, confidence=None,
        budget_dollars=None, pool=pool, chosen=None, optimal=False, gap=None, evaluations=0, search_seconds=0,
    )  # fmt: skip


def situations(pool: FleetPool, count: int, hot: bool) -> Iterator[FleetSituation]:
    """With ``hot`` all types cool down in every second one, else always one."""
    draw = np.random.default_rng(17)
    for number in range(count):
        some = draw.choice(len(pool.types), min(4, len(pool.types)), replace=False)
        workers = {pool.types[at].name: int(draw.integers(0, pool.types[at].quota + 1)) for at in some}
        yield FleetSituation(
            workers=workers,
            updates=float(draw.uniform(0, 5000)),
            loss=float(draw.uniform(LOSS, 3)),
            seconds_left=float(draw.uniform(0, DEADLINE)),
            dollars_left=None,
            join_seconds=120.0,
            speeds={pool.types[some[0]].name: float(draw.uniform(0.5, 2))},
            cooling={kind.name: 600.0 for kind in (pool.types if hot and number % 2 else [pool.types[some[1]]])},
        )


def with_on_demand(pool: FleetPool) -> FleetPool:
    types = tuple(
        kind.model_copy(update={"on_demand_dollars_per_hour": 3 * kind.dollars_per_hour}) for kind in pool.types
    )
    return pool.model_copy(update={"types": types})


def line(name: str, pool: FleetPool, model: str, count: int, hot: bool) -> list[object]:
    plan = plan_of(pool, model)
    found = [timed(replan, plan, seen) for seen in situations(pool, count, hot)]
    seconds, decisions = [took for _, took in found], [each for each, _ in found]
    weighed = f"{max(each.candidates for each in decisions):,}"
    fixed, waits = (
        sum(map(bool, each)) for each in zip(*((d.add_on_demand, d.later) for d in decisions), strict=True)
    )
    return [name, model, weighed, fixed, waits, f"{median(seconds):.2f}", f"{max(seconds):.2f}"]


def main(count: int) -> None:
    pools = {
        "the published pool": read_pool(POOL),
        "7 types × 10": drawn(1, 7, 10),
        "200 types × 20": drawn(2, 200, 20),
    }
    heads = ("pool", "model", "fleets weighed", "on demand", "waits", "median s", "most s")
    show(
        heads,
        (
            line(name + more, with_on_demand(pool) if hot else pool, model, count, hot)
            for name, pool in pools.items()
            for model in ("queue", "paper")
            for more, hot in (("", False), (", on demand too", True))
        ),
    )
    print(f"\n{count} situations each, processor seconds; {machine()}.")


if __name__ == "__main__":
    main(arguments(__doc__, situations=(20, "")).situations)
