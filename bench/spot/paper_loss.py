"""The paper's Table I: fleets of its exhaustive search over the published pool, beside those that are planned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.machine import arguments
from bench.table import show
from stash.spot.fleet_costs import FleetWish
from stash.spot.provision import provision
from stash.spot.spot_files import read_pool

POOL = Path(__file__).parent / "data" / "spotdnn.pool.yaml"
ROWS = (
    (0.9, 1900, {"p3.2xlarge": 2, "g3.8xlarge": 2}, 1.670),
    (0.8, 2400, {"p3.2xlarge": 2, "g3.8xlarge": 4}, 2.974),
    (0.7, 3700, {"p3.2xlarge": 2, "g4dn.4xlarge": 1, "g3.8xlarge": 3}, 4.363),
)
"""Loss, seconds, and the paper's exhaustive row: workers and dollars."""


def table_one() -> Iterator[list[object]]:
    """A row for each wish: the paper's fleet and dollars beside those that are planned."""
    for loss, seconds, workers, dollars in ROWS:
        chosen = provision(FleetWish(read_pool(POOL), loss, seconds)).chosen
        assert chosen is not None
        same = "yes" if chosen.workers == workers else "no"
        yield [
            loss,
            f"{seconds} s",
            _fleet(workers),
            f"${dollars:.3f}",
            _fleet(chosen.workers),
            f"${chosen.dollars:.3f}",
            same,
        ]


def _fleet(workers: dict[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in workers.items())


if __name__ == "__main__":
    arguments(__doc__)
    show(
        (
            "loss",
            "deadline",
            "Table I, exhaustive",
            "its dollars",
            "planned",
            "dollars",
            "same fleet",
        ),
        table_one(),
    )
