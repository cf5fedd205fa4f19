"""Training on 8 to 576 GPUs against MLPerf Training 5.1: a submitter's smaller system is profiled, its larger ones
forecast by ``stash whatif --nodes --batch --network``.

What was logged is one number a system. So the profile says what a step takes, that none of it is known to be exchange
or input, and what exchanging its gradients takes over the links that the submission names. Ranks that share a replica
of Llama 2 are 8. The constants of other batches come from other sources (``bench.predict.gpus``); nothing was fitted
to these rows, but for the doubt of more ranks (``stragglers``), which is the intervals' alone. A part of the logs is
kept back. Source: mlcommons/training_results_v5.1 @441d65f4 (Apache-2.0), looked up 2026-11-29.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from bench import recorded
from bench.machine import arguments
from bench.predict.errors import Prediction, evidence
from bench.predict.published_profile import published_profile
from bench.table import median_90
from stash.core.measured import Collective
from stash.core.records.profile import Profile
from stash.predict import cluster
from stash.predict.changes import Alteration
from stash.predict.forecasting import base_of, shipped_catalog, stall_draws

PARAMETERS = {"llama2_70b_lora": 44.6e6 / 8, "retinanet": 38.0e6, "dlrm_dcnv2": 16.0e6}
"""Whose gradients a rank exchanges with its like: an eighth of LoRA's of rank 16, all of RetinaNet's, and those of
DLRM that are no table."""
SHARED_BY = {"llama2_70b_lora": 8}
"""Ranks of one replica."""


@dataclass(frozen=True)
class System:
    """One submission: what it is, and what it trained."""

    submitter: str
    benchmark: str
    gpu: str
    nodes: int
    devices: int
    """Of a node."""
    batch: int
    """Of all ranks."""
    per_second: float
    between: float
    """Bytes per second of a node's interfaces."""

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices

    @property
    def replicas(self) -> int:
        return self.ranks // SHARED_BY.get(self.benchmark, 1)


def load_systems() -> list[System]:
    return [
        System(
            row["submitter"],
            row["benchmark"],
            row["gpu"],
            int(row["nodes"]),
            int(row["devices"]),
            int(row["batch"]),
            float(row["per_second"]),
            float(row["gbit_between_nodes"]) * 1e9 / 8,
        )
        for row in recorded.rows(recorded.PUBLISHED / "mlperf.csv")
    ]


def profile_of(system: System) -> Profile:
    """What a profile would hold that knows no more than was logged."""
    size = int(4 * PARAMETERS[system.benchmark])
    gpu = next(each for each in shipped_catalog().gpus if each.name == system.gpu)
    inside, outside = cluster.reached_share("nvswitch"), cluster.reached_share("infiniband")
    assert inside is not None
    assert outside is not None
    rates = {"node": (system.devices, (gpu.nvlink_bytes_per_second or 0.0) * inside.value)}
    if system.nodes > 1:
        rates["world"] = (system.ranks, system.between * outside.value)
    made = published_profile(
        system.benchmark,
        gpu,
        step=system.batch / system.per_second,
        batch=system.batch // system.replicas,
        parameters=PARAMETERS[system.benchmark],
        precision="bfloat16",
        nodes=system.nodes,
        devices=system.devices,
    )
    sent = tuple(
        Collective(
            scope=scope, ranks=ranks, bytes=size, seconds=2 * (ranks - 1) / ranks * size / rate
        )
        for scope, (ranks, rate) in rates.items()
    )
    more = {"replicas": system.replicas, "bucket_bytes": (size,)}
    return made.model_copy(
        update={"collectives": sent, "workload": made.workload.model_copy(update=more)}
    )


def predictions() -> Iterator[Prediction]:
    """Of every larger system of a submitter, from each smaller one."""
    series: dict[tuple[str, str, str], list[System]] = defaultdict(list)
    for system in load_systems():
        series[system.submitter, system.benchmark, system.gpu].append(system)
    for systems in series.values():
        for small, large in itertools.combinations(systems, 2):
            yield _prediction(small, large)


def _prediction(small: System, large: System) -> Prediction:
    same = large.batch * small.replicas == small.batch * large.replicas
    wanted = Alteration(
        nodes=large.nodes,
        batch=None if same else large.batch // large.replicas,
        network=large.between if small.nodes == 1 else None,
        transport="rdma",
    )
    drawn = stall_draws(base_of(profile_of(small)), wanted)
    fewer = large.batch / large.ranks / (small.batch / small.ranks)
    perfect = small.per_second * large.ranks / small.ranks
    kind = "as many samples a GPU" if same else "fewer samples a GPU"
    return Prediction.throughput(
        f"MLPerf, 8 to 576 GPUs, {kind}",
        f"{large.submitter}, {large.benchmark} on {small.ranks} to {large.ranks} × {large.gpu}",
        large.per_second,
        large.batch,
        drawn.step,
        {"perfect scaling": perfect, "batch^.77": perfect * fewer**0.23},
    )


def section() -> str:
    found = list(predictions())
    errors = median_90(each.error for each in found)
    text = f"{' '.join((__doc__ or '').split())} All {len(found)}: {errors}."
    return evidence("Scaling to hundreds of GPUs", text, found)


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
