"""From two nodes to more, by the product's own path: what published steps of two nodes tell of three and four.

A profile holds what its source published: a step on one GPU, on one node and on two, and what the exchange by itself
takes by the machine's data sheet. Of sockets between machines with PCIe that is Sia's BERT (``collectives.csv``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bench.machine import arguments
from bench.predict import published
from bench.predict.errors import Prediction, evidence
from bench.predict.published import Key, Machine, Model
from bench.predict.published_profile import published_profile
from stash.core.measured import Collective
from stash.core.records.profile import Gradient, Profile
from stash.predict import collective_times, timeline
from stash.predict.changes import Alteration
from stash.predict.forecasting import base_of, stall_draws
from stash.predict.gpu_scale import shipped_sheets

_NAMED = {"V100-SXM2": "V100-SXM2-16GB"}
Group = dict[tuple[int, int], float]
"""Samples a second by nodes and GPUs."""


def predictions() -> Iterator[Prediction]:
    """The rule: throughput in proportion to GPUs."""
    for key, alone, rows in _groups():
        for (nodes, ranks), rate in rows.items():
            devices = ranks // nodes
            inside = (1, devices) if devices > 1 else (1, 1)
            if nodes != 2 or inside not in rows:
                continue
            profile = _profile(key, alone, devices, rows[inside], rate)
            for (more, all_ranks), measured in rows.items():
                if more > 2 and all_ranks == more * devices:
                    drawn = stall_draws(base_of(profile), Alteration(nodes=more))
                    yield Prediction.throughput(
                        f"{key[0].partition(' (')[0].removeprefix('Oneflow-Inc/')}, two nodes to more",
                        f"{key[1]} on {ranks} to {all_ranks} × {alone['gpu']}, batch {key[3]}",
                        measured,
                        float(key[3]) * all_ranks,
                        drawn.step,
                        {"in proportion": rate * all_ranks / ranks},
                    )


def _groups() -> Iterator[tuple[Key, dict[str, str], Group]]:
    """Of machines on several nodes: the row of one GPU, and all rates, that of one GPU too."""
    found: dict[Key, Group] = defaultdict(dict)
    alone: dict[Key, dict[str, str]] = {}
    for key, one, row in published.pairs():
        found[key][int(row["n_nodes"]), int(row["n_gpus"])] = float(row["value"])
        alone[key] = one
    for key, rows in found.items():
        if any(nodes > 1 for nodes, _ in rows):
            rows[1, 1] = float(key[3]) / published.step_alone(key[1], alone[key])
            yield key, alone[key], rows


def _profile(key: Key, alone: dict[str, str], devices: int, inside: float, rate: float) -> Profile:
    """Of two nodes of so many devices; ``inside`` and ``rate`` in samples a second of one and both."""
    machine, trained = published.MACHINES[key[2]], published.model(key[1])
    batch, gpu = int(key[3]), alone["gpu"]
    one = published.step_alone(key[1], alone)
    times = {
        "solo": one,
        "crowd": one,
        "node": max(one, batch * devices / inside),
        "cluster": batch * 2 * devices / rate,
    }
    made = published_profile(
        key[1],
        shipped_sheets()[_NAMED.get(gpu, gpu)],
        1.0,
        batch,
        trained.bytes / 4,
        "float32",
        2,
        devices,
    )
    blocks = tuple(replace(each, seconds=each.seconds * times[each.rung]) for each in made.blocks)
    gradients = tuple(
        Gradient(name=f"gradient{number}", bytes=size, ready_seconds=float(ready * one))
        for number, (size, ready) in enumerate(zip(trained.gradients, trained.ready, strict=True))
    )
    buckets = timeline.bucket_sizes(trained.gradients, trained.bucket)
    more = {"gradients": gradients, "bucket_bytes": tuple(map(int, buckets))}
    scopes = [("node", 1)] * (devices > 1) + [("world", 2)]
    sent = tuple(_exchange(scope, nodes, machine, trained, devices) for scope, nodes in scopes)
    work = made.workload.model_copy(update=more)
    return made.model_copy(update={"blocks": blocks, "workload": work, "collectives": sent})


def _exchange(scope: str, nodes: int, machine: Machine, trained: Model, devices: int) -> Collective:
    sizes = np.array(timeline.bucket_sizes(trained.gradients, trained.bucket), np.float64)
    links = published.fabric(machine, nodes, devices)
    seconds = np.median(collective_times.all_reduce(links, sizes, "nccl").sum(axis=1))
    return Collective(
        scope=scope, ranks=nodes * devices, bytes=trained.bytes, seconds=float(seconds)
    )


def section() -> str:
    return evidence("Two nodes to more", " ".join((__doc__ or "").split()), list(predictions()))


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
