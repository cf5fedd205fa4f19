"""How long predictions take, how that grows, and how many draws a forecast needs. CPU seconds, so that load is no
matter.

    python -m bench.predict.speed
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from bench.machine import arguments
from bench.plan.speed import profiled
from bench.table import table
from stash.analysis.attribution import attribute
from stash.predict import collective_times, timeline
from stash.predict.cluster import Target
from stash.predict.cluster_sources import of_profile
from stash.predict.collective_times import Fabric, Hops
from stash.predict.draws import Array, Draws, intervals
from stash.predict.exchange_stalls import ExchangeModel
from stash.predict.forecast import Predicted, forecast

COUNTS = (32, 64, 128, 256, 512, 1024, 4096)
TARGET = Target(name="four nodes", nodes=4, devices=1, backend="gloo")
SHAPES = ((10, 8), (100, 128), (1000, 2048), (1000, 16384), (10000, 16384))
"""(buckets, ranks)"""


def section() -> str:
    title = "## Speed\n\nCPU seconds on one core of the machine that wrote this page."
    return "\n\n".join((title, draws_table(), timeline_table(), forecast_line()))


def cpu_seconds(work: Callable[[], object], least: float = 0.2) -> float:
    """Of one call, over as many as take ``least`` seconds."""
    work()
    calls, began = 0, time.process_time()
    while time.process_time() - began < least:
        work()
        calls += 1
    return (time.process_time() - began) / calls


def draws_table() -> str:
    """How far the ends of a forecast are from those of very many draws, and what it costs."""
    rows, truth = [], _ends(Draws(65536, seed=0))
    for count in COUNTS:
        off = [np.abs(_ends(Draws(count, seed)) / truth - 1).max() for seed in range(20)]
        seconds = cpu_seconds(lambda count=count: _one_forecast(Draws(count)))  # type: ignore[misc]
        rows.append([count, f"{np.mean(off):.1%}", f"{seconds * 1e3:.2f} ms"])
    return table(["draws", "ends off by", "one forecast"], rows)


def timeline_table() -> str:
    """The exchange and the timeline of large jobs."""
    rows = []
    for buckets, ranks in SHAPES:
        fabric = _fabric(ranks // 8, 8)
        seconds = cpu_seconds(lambda b=buckets, p=fabric: _timeline(p, b))  # type: ignore[misc]
        rows.append([f"{buckets:,}", f"{ranks:,}", f"{seconds * 1e3:.1f} ms"])
    return table(["buckets", "ranks", "timeline"], rows)


def forecast_line() -> str:
    """One more question to a model that was made before, its breakdown included."""
    profile = profiled()
    breakdown, base = attribute(profile), of_profile(profile)
    model = ExchangeModel(profile, breakdown, base, Draws())
    target = base.model_copy(update={"nodes": 8})
    asked = cpu_seconds(lambda: model.on(target))
    first = cpu_seconds(lambda: ExchangeModel(profile, breakdown, base, Draws()))
    return f"One exchange forecast takes {asked * 1e3:.2f} ms, after {first * 1e3:.2f} ms once a profile."


def _ends(draws: Draws) -> Array:
    """Both ends of a step that is a sum of what forecasts are made of."""
    (found,) = intervals((_late(draws) + 0.2 + 0.01 * draws.normals("compute"))[None, :])
    return np.array([found.low, found.high], dtype=np.float64)


def _one_forecast(draws: Draws) -> object:
    compute = Predicted("compute", 0.2 + 0.01 * draws.normals("compute"), "measured")
    return forecast(TARGET, [compute, Predicted("network", _late(draws), "scaled")])


def _late(draws: Draws) -> Array:
    exchange = collective_times.all_reduce(_fabric(4, 1, draws), np.full(5, 25e6), "gloo")
    return timeline.exposed(np.broadcast_to(np.linspace(0, 0.1, 5), exchange.shape), exchange)


def _fabric(nodes: int, devices: int, draws: Draws | None = None) -> Fabric:
    draws = draws or Draws()
    some = 1e-5 * np.exp(0.2 * draws.normals("latency"))
    hops = Hops(some, some, some)
    rate = 1e9 * np.exp(0.1 * draws.normals("rate"))
    return Fabric(nodes, devices, 10 * rate, rate, hops, hops)


def _timeline(fabric: Fabric, buckets: int) -> Array:
    exchange = collective_times.all_reduce(fabric, np.full(buckets, 1e6), "nccl")
    return timeline.exposed(np.broadcast_to(np.linspace(0, 1, buckets), exchange.shape), exchange)


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
