"""How long a recommendation takes, and how that grows with offers and node counts. CPU seconds, so that load is no
matter.

    python -m bench.plan.speed

Offers are the shipped catalog's GPU types, each in as many variants as are asked for (network, cores and price drawn
within a factor of two), and every variant at a price of its own in each
region.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date

from bench.machine import arguments, timed
from bench.table import show
from stash.catalog.facts import Instance, Price
from stash.catalog.layers import merge
from stash.catalog.offers import Catalog, Columns
from stash.core.records.host import Gpu, Host
from stash.core.records.profile import Block, Collective, Gradient, Loader, Profile, Rank, Rate, Settings, Workload
from stash.plan.bill import BillFacts
from stash.plan.recommend import recommend
from stash.plan.records import Constraints, Goal, RentalPlan, TrainingWork
from stash.predict.forecasting import base_of
from stash.predict.passes import Base

SHAPES = ((1_000, 10, 64), (3_000, 10, 64), (10_000, 10, 16), (10_000, 10, 64), (30_000, 10, 64), (10_000, 1, 64))
"""(offers, regions of a type, node counts)"""
RUNGS = {"solo": 0.170, "crowd": 0.172, "cluster": 0.240, "warm": 0.260, "cold": 0.300}
SAMPLES = 90 * 1_281_167


def main() -> None:
    arguments(__doc__)
    planned(base_of(profiled()), market(200, 1), 2)  # tables that are read once a process

    def line(offers: int, regions: int, nodes: int) -> list[str]:
        base, catalog = base_of(profiled()), market(offers, regions)
        plan, seconds = timed(planned, base, catalog, nodes)
        counts = [f"{count:,}" for count in (offers, len(catalog.instances), nodes, plan.weighed)]
        return [*counts, f"{plan.pruned / plan.weighed:.1%}", f"{seconds:.2f}"]

    heads = ("offers", "types", "node counts", "combinations", "never billed", "CPU seconds")
    show(heads, (line(*shape) for shape in SHAPES))


def planned(base: Base, catalog: Catalog, nodes: int) -> RentalPlan:
    goal = Goal(work=TrainingWork(samples=SAMPLES, text="90 epochs of ImageNet"), deadline_seconds=24 * 3600.0)
    limits = Constraints(most_nodes=nodes)
    return recommend([base], goal, limits, catalog, BillFacts(), ["x.stash.json"], date(2026, 11, 22))


def profiled() -> Profile:
    """A job of two V100s with every stall: means 170, 240, 260 and 300 ms, three loader workers a rank."""
    host = Host(
        hostname="gpu", cores=16, memory_bytes=64 * 10**9,
        gpus=(Gpu(index=0, name="Tesla V100-SXM2-16GB", memory_bytes=16 * 2**30),),
    )  # fmt: skip
    workload = Workload(
        command=("train.py",), name="resnet50", precision="float32", batch=64, parameter_bytes=102_400_000,
        gradients=tuple(Gradient(name=str(i), bytes=640_000, ready_seconds=0.0007 * i) for i in range(160)),
        bucket_bytes=(20_480_000,) * 5, sample_bytes=602_112, sample_disk_bytes=110_000, dataset_bytes=140e9,
        loaders=(Loader(kind="map", workers=3, prefetch_factor=2, samples=1_281_167),),
    )  # fmt: skip
    return Profile(
        stash_version="0", created="2026-11-22T00:00:00+00:00", hosts=(host, host), software={},
        workload=workload, blocks=tuple(_blocks()), ended="budget", elapsed_seconds=60,
        ranks=tuple(Rank(rank=rank, node=rank, local_rank=0, device="cuda:0") for rank in (0, 1)),
        settings=Settings(precision=0.02, budget_seconds=60, rungs=tuple(RUNGS), isolated=False, why="x"),
        collectives=tuple(
            Collective(scope="world", ranks=2, bytes=102_400_000, seconds=0.13 + 0.001 * i, latency_seconds=0.001)
            for i in range(4)
        ),
        rates=tuple(
            Rate(feed=feed, rank=rank, round=0, samples=640, seconds=seconds)
            for feed, seconds in (("warm", 2.6), ("cold", 3.0)) for rank in (0, 1)
        ),
    )  # fmt: skip


def _blocks() -> Iterator[Block]:
    """Four rounds of ten steps of every rung."""
    for number in range(4):
        for rung, mean in RUNGS.items():
            step = mean * (1 + 0.002 * (number % 2))
            more = {"wait_seconds": 0.2, "fetch_seconds": 7.8} if rung == "warm" else {}
            for rank in (0,) if rung == "solo" else (0, 1):
                yield Block(round=number, rung=rung, rank=rank, steps=10, seconds=10 * step, **more)


def market(offers: int, regions: int) -> Catalog:
    """So many offers, ``regions`` of each type."""
    shipped, chance = merge(None, None), random.Random(15)
    priced = {offer.instance.name: offer.dollars_per_hour for offer in reversed(shipped.query())}
    sold = [each for each in shipped.instances if each.gpu and each.name in priced]
    types, prices = [], []
    for number in range(offers // regions):
        kind = _variant(sold[number % len(sold)], number, chance)
        types.append(kind)
        usual = priced[sold[number % len(sold)].name] * chance.uniform(0.7, 1.4)
        for region in range(regions):
            dollars = usual * chance.uniform(1.0, 1.3)
            prices.append(Price(kind.cloud, kind.name, f"r{region}", "on-demand", dollars, "2026-11-20", "drawn", ""))
    index = {(each.cloud, each.name): number for number, each in enumerate(types)}
    return Catalog(shipped.gpus, tuple(types), Columns.of(prices, index))


def _variant(kind: Instance, number: int, chance: random.Random) -> Instance:
    """The same GPUs behind another network and with other cores."""

    def near(value: float | None) -> float | None:
        return None if value is None else value * chance.uniform(0.7, 1.4)

    return kind.model_copy(
        update={
            "name": f"{kind.name}.{number}",
            "network_bytes_per_second": near(kind.network_bytes_per_second),
            "vcpus": near(kind.vcpus),
            "memory_bytes": near(kind.memory_bytes),
        }
    )


if __name__ == "__main__":
    main()
