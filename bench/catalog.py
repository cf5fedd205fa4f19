"""How long the catalog takes: load, and queries, over 100,000 offers. Targets: load <= 500 ms, query <= 100 ms.

The offers are synthetic: the shipped instances in many regions, on demand and spot, in a snapshot of the real format
in a temporary folder. Medians of interleaved runs in one process, imports not counted.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from bench.machine import arguments
from bench.table import report, table
from stash.catalog import layers, shipped
from stash.catalog.facts import Price, PriceKind
from stash.catalog.offers import Columns, OfferFilter
from stash.catalog.snapshot import Part, Snapshot, write

RUNS, OFFERS, TYPES = 15, 100_000, 2_000


def synthetic(path: Path) -> None:
    """Write a snapshot of OFFERS offers of TYPES types at ``path``."""
    base, dice = shipped.instances(), np.random.default_rng(0)
    types = tuple(
        base[number % len(base)].model_copy(update={"name": f"{base[number % len(base)].name}-{number}"})
        for number in range(TYPES)
    )
    kinds: tuple[PriceKind, ...] = ("on-demand", "spot")
    rows = [
        Price(
            item.cloud, item.name, f"region-{place}", kind, float(dice.uniform(0.1, 90)), "2026-11-20", "made up", ""
        )
        for place in range(OFFERS // TYPES // 2)
        for item in types
        for kind in kinds
    ]
    index = {(item.cloud, item.name): number for number, item in enumerate(types)}
    part = Part("gpuhunt aws", "", "2026-11-20", "2026-11-20", 0, types, Columns.of(rows, index))
    write(Snapshot("2026-11-20T00:00:00+00:00", (part,)), path)


def seconds(action: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds; on a busy machine the second is the catalog's own."""
    wall, processor = time.perf_counter(), time.process_time()
    result = action()
    spent = time.perf_counter() - wall, time.process_time() - processor
    del result
    return spent


def main() -> None:
    """Print the table."""
    arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalog.json"
        os.environ["STASH_HOME"] = folder
        synthetic(path)
        known = layers.load()
        wishes = {
            "query: one GPU model, network, price": OfferFilter(
                gpu="V100", min_network_bytes_per_second=25e9 / 8, max_dollars_per_hour=10
            ),
            "query: 8 GPUs with NVLink": OfferFilter(min_gpu_count=8, interconnect="nvlink"),
            "query: one region": OfferFilter(region="region-7"),
            "query: everything": OfferFilter(kinds=("on-demand", "spot")),
        }
        actions: dict[str, Callable[[], object]] = {f"load, {path.stat().st_size / 1e6:.1f} MB": layers.load}
        actions |= {name: lambda wish=wish: known.query(wish) for name, wish in wishes.items()}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
        for _ in range(RUNS):
            for name, action in actions.items():
                times[name].append(seconds(action))
    rows = []
    for name, values in times.items():
        wall, processor = ([f"{1e3 * of(each):.0f} ms" for of in (median, max)] for each in zip(*values, strict=True))
        found = len(known.query(wishes[name])) if name in wishes else ""
        rows.append([name, found, *wall, processor[0]])
    heads = ("what", "found", "wall, median", "wall, worst", "processor, median")
    report(f"{len(known.columns):,} offers", table(heads, rows))


if __name__ == "__main__":
    main()
