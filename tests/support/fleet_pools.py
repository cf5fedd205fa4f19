"""Pools of machines to rent a fleet from."""

from datetime import date
from pathlib import Path

from stash.spot.fleet_costs import FleetWish
from stash.spot.provision import provision
from stash.spot.spot_files import read_pool

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "bench/spot/data/spotdnn.pool.yaml"
TODAY = date(2026, 11, 22)
JOB = "import stash.spot\njob = stash.spot.Job(None, None, None, None, batch=1)\n"


def published_pool():
    return read_pool(PUBLISHED)


def dated_plan(loss=0.8, seconds=2400.0, **pool_fields):
    """Of the published pool, dated today, with a server that costs; two p3.2xlarge and four g3.8xlarge."""
    pool = published_pool()
    server = pool.server.model_copy(update={"dollars_per_hour": 0.2})
    update = {"as_of": TODAY.isoformat(), "server": server, "start_seconds": 60.0, **pool_fields}
    return provision(FleetWish(pool.model_copy(update=update), loss, seconds))
