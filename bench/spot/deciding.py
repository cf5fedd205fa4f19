"""How long it takes to decide what to rent when machines of a fleet are gone.

A table of processor seconds (other work may be going on). Situations are drawn with a fixed seed: any
survivors, any loss on the way, a type that cools down, a speed that was observed. Every pool is asked about twice:
with spot machines alone, and with machines on demand at three times their price, where in every second situation all
types cool down.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

from bench.machine import arguments, machine, timed
from bench.table import show
from stash.spot.records.fleets import FleetPlan, FleetPool, LossCurve, ParameterServers, WorkerType
from stash.spot.replacement.outlook import FleetSituation
from stash.spot.replacement.replanning import replan
from stash.spot.spot_files import read_pool

POOL = Path(__file__).parent / "data" / "spotdnn.pool.yaml"
LOSS, DEADLINE = 0.8, 3000.0


def drawn(seed: int, types: int, quota: int) -> FleetPool:
    """A pool in the likeness of the published one."""
    draw = np.random.default_rng(seed)
    return FleetPool(
        as_of="2026-11-22",
        source="drawn",
        exchange_bytes=11.5e6,
        worker_bytes_per_second=142e6,
        pcie_bytes_per_second=10e9,
        server=ParameterServers(bytes_per_second=1200e6, dollars_per_hour=0.2),
        loss=LossCurve(gamma1=876.5, gamma2=-0.2, gamma3=2507.6, gamma4=0.3 if seed % 2 else None, gamma5=0.5),
        types=tuple(
            WorkerType(
                name=f"t{number}",
                gpus=int(draw.choice([1, 2, 4, 8])),
                batch=float(draw.choice([128, 256, 512, 1024])),
                samples_per_second=float(draw.uniform(300, 2500)),
                dollars_per_hour=float(draw.uniform(0.2, 3)),
                quota=quota,
            )
            for number in range(types)
        ),
    )


def plan_of(pool: FleetPool) -> FleetPlan:
    """A wish, without the search for its fleet: a situation says who is there."""
    return FleetPlan(
        stash_version="", created="", model="queue", deadline_seconds=DEADLINE, loss=LOSS, confidence=None,
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


def line(name: str, pool: FleetPool, count: int, hot: bool) -> list[object]:
    plan = plan_of(pool)
    found = [timed(replan, plan, seen) for seen in situations(pool, count, hot)]
    seconds, decisions = [took for _, took in found], [each for each, _ in found]
    weighed = f"{max(each.candidates for each in decisions):,}"
    fixed, waits = (
        sum(map(bool, each)) for each in zip(*((d.add_on_demand, d.later) for d in decisions), strict=True)
    )
    return [name, weighed, fixed, waits, f"{median(seconds):.2f}", f"{max(seconds):.2f}"]


def main(count: int) -> None:
    pools = {
        "the published pool": read_pool(POOL),
        "5 types × 11": drawn(1, 5, 11),
    }
    heads = ("pool", "fleets weighed", "on demand", "waits", "median s", "most s")
    show(
        heads,
        (
            line(name + more, with_on_demand(pool) if hot else pool, count, hot)
            for name, pool in pools.items()
            for more, hot in (("", False), (", on demand too", True))
        ),
    )
    print(f"\n{count} situations each, processor seconds; {machine()}.")


if __name__ == "__main__":
    main(arguments(__doc__, situations=(20, "")).situations)
