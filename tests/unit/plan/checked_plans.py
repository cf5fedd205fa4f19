"""Profiles that were measured after a plan, for ``stash check PLAN RUN``: of its 2 × p3.8xlarge, and of others."""

from __future__ import annotations

from typing import Any

from forecast_profiles import around, gpu_job
from profile_builder import build

from stash.core.records.host import Gpu, Host, Limits
from stash.core.records.profile import Profile

PLANNED = {
    "compute": 0.170,
    "transfer": 0.004,
    "contention": 0.006,
    "interconnect": 0.008,
    "network": 0.180,
    "fetch": 0.002,
}
"""Seconds of ``plan_builder.lost()``, 2 × p3.8xlarge: 370 ms."""
RUNGS = {
    "compute": "resident",
    "transfer": "solo",
    "contention": "crowd",
    "interconnect": "node",
    "network": "cluster",
    "prep": "warm",
    "fetch": "cold",
}


def later(
    nodes: int = 2,
    devices: int = 4,
    instance: str | None = "p3.8xlarge",
    gpu: str = "Tesla V100-SXM2-16GB",
    batch: int = 64,
    without: tuple[str, ...] = (),
    fields: dict[str, Any] | None = None,
    **stalls: float,
) -> Profile:
    """Measured on so many machines: the planned stalls and 1 ms of prep, or ``stalls`` in seconds instead."""
    total, times = 0.0, {}
    for name, rung in RUNGS.items():
        total += {"prep": 0.001, **PLANNED, **stalls}[name]
        if name not in without:
            times[rung] = around(total)
    ranks = nodes * devices
    loaded = {"files": 10 * batch, "file_bytes": 10 * batch * 110_000, "samples": 10 * batch}
    hosts = tuple(
        Host(
            hostname=f"gpu{i}",
            cloud=None if instance is None else "aws",
            instance=instance,
            cores=32,
            memory_bytes=244 * 10**9,
            gpus=tuple(Gpu(index=j, name=gpu, memory_bytes=16 * 2**30) for j in range(devices)),
            limits=Limits(),
        )
        for i in range(nodes)
    )

    template = gpu_job()
    samples = {rung: {"samples": 10 * batch} for rung in times}
    samples["warm"] = {**samples.get("warm", {}), "wait_seconds": 0.02, "fetch_seconds": 3.0}
    samples["cold"] = loaded
    return build(
        times,
        **{
            "ranks": ranks,
            "nodes": nodes,
            "device": "cuda",
            "batch": batch,
            "block_extra": samples,
            "workload": {**template.workload.model_dump(), "batch": batch},
            "hosts": hosts,
            "rates": template.rates,
            "collectives": template.collectives,
            **(fields or {}),
        },
    )
