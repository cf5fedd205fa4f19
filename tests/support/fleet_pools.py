"""Pools of machines to rent a fleet from: the published one, and random ones."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np

from stash.spot.fleet_costs import FleetWish
from stash.spot.fleet_records import FleetPlan, FleetPool, LossCurve, ParameterServers, WorkerType
from stash.spot.provision import provision
from stash.spot.spot_files import read_pool

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "bench/spot/data/spotdnn.pool.yaml"
TODAY = date(2026, 11, 22)
JOB = "import stash.spot\njob = stash.spot.Job(None, None, None, None, batch=1)\n"


def published_pool() -> FleetPool:
    return read_pool(PUBLISHED)


def dated_plan(loss: float = 0.8, seconds: float = 2400.0, **pool_fields: object) -> FleetPlan:
    """Of the published pool, dated today, with a server that costs; two p3.2xlarge and four g3.8xlarge."""
    pool = published_pool()
    server = pool.server.model_copy(update={"dollars_per_hour": 0.2})
    update = {"as_of": TODAY.isoformat(), "server": server, "start_seconds": 60.0, **pool_fields}
    return provision(FleetWish(pool.model_copy(update=update), loss, seconds))


def random_pool(seed: int, most_types: int = 4, most_quota: int = 5) -> FleetPool:
    """With R in half of them, servers that cost and machines that take a while to start in others."""
    draw = np.random.default_rng(seed)
    types = tuple(
        WorkerType(
            name=f"t{number}",
            gpus=int(draw.choice([1, 2, 4, 8])),
            batch=float(draw.choice([128, 256, 512, 1024])),
            samples_per_second=float(draw.uniform(300, 2500)),
            quota=int(draw.integers(1, most_quota + 1)),
            dollars_per_hour=float(draw.uniform(0.2, 3)),
        )
        for number in range(draw.integers(2, most_types + 1))
    )
    return FleetPool(
        as_of="2026-11-22",
        source="drawn",
        exchange_bytes=11.5e6,
        worker_bytes_per_second=142e6,
        pcie_bytes_per_second=10e9,
        server=ParameterServers(
            bytes_per_second=1200e6, dollars_per_hour=float(draw.choice([0, 0.3]))
        ),
        loss=LossCurve(
            gamma1=876.5,
            gamma2=-0.2,
            gamma3=2507.6,
            gamma4=None if seed % 2 else float(draw.uniform(0.05, 1)),
            gamma5=0.5,
        ),
        start_seconds=float(draw.choice([0, 120])),
        types=types,
    )
