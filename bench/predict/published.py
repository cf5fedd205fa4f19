"""Published throughputs on several GPUs, predicted from the same source's throughput on one and the data sheet's
links.

Split: of every group of rows (source, model, machine, batch, precision, data) the row of one GPU is given, and others
are predicted. What a step takes longer on several devices of a node than its exchange explains is learned from all
other sources (``python -m bench.predict.published --write`` writes that of all to ``node_scaling.csv``). What links
reach of their claims comes from published *collectives* (``collectives.csv``), measured by other people; for
arXiv 2006.10103 those of its own authors are left out. How far the model of an exchange is off comes from the rows of
several nodes of every other model. Two choices were made with these rows in sight: that half to all of what could
hide shows (``exposure.SHOWN``), and that gradients travel in 32 bits with mixed precision too, as parameters stay so.
Where it is unpublished when a model's gradients are ready, they are ready evenly by bytes, over a share of the step
that is the mean of the three models of which somebody did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path as File

import numpy as np

from bench import recorded
from bench.machine import ROOT, arguments
from bench.predict.errors import Prediction, coverage, evidence, widen_spread
from bench.table import median_90
from stash.predict import cluster, collective_times, compute_ratios, exposure, timeline
from stash.predict.cluster import NetworkKind, Wiring
from stash.predict.cluster_sources import network_rate, reach_of
from stash.predict.collective_times import Fabric, Hops
from stash.predict.draws import Array, Draws, Quantity
from stash.predict.exchange_stalls import MODEL_SPREAD
from stash.predict.gpu_scale import shipped_sheets

TABLE = ROOT / "src/stash/catalog/data/node_scaling.csv"
_ANY_BATCH = 128
"""Samples of a step whose batch was not published: its share of time does not depend on them."""
_PUBLISHED = {"TensorFlow performance benchmarks.md": "2017-05"}
_LOOKED_UP = "2026-11-20"
"""The tables; their other sources are undated."""
Job = tuple[str, str, str]
"""Source, model and machine."""
Key = tuple[str, str, str, str, str, str]
"""Of rows that are alike but for the number of GPUs: a job, batch, precision and data."""
GBIT, GB = 1e9 / 8, 1e9
DRAWS = Draws()
STEPS = {"resnet50": 0.12809, "resnet101": 0.19201, "vgg16": 0.19452}
"""Seconds of a whole step on one V100, by the source of ``gradients_v100.csv``."""


@dataclass(frozen=True)
class Machine:
    """What the data sheet of a published machine says of its links."""

    wiring: Wiring
    inside: float
    """Bytes per second of one GPU's links, one direction."""
    transport: NetworkKind | None = None
    between: float | None = None
    """Bytes per second of all of a node's interfaces."""
    gpu: str | None = None
    """Where it says more than its links."""


MACHINES = {
    "GCE n1-standard-32 + 8xK80": Machine("pcie", 15.75 * GB),
    "NVIDIA DGX-1 (P100)": Machine("nvlink", 80 * GB),
    "4 nodes x 8 V100-SXM2-16GB (NVLink mesh), Xeon Gold 5118": Machine(
        "nvlink", 150 * GB, "infiniband", 100 * GBIT
    ),
    "DGX-1 16GB V100": Machine("nvlink", 150 * GB),
    "DGX-1 32GB V100": Machine("nvlink", 150 * GB),
    "DGX-1 16GB": Machine("nvlink", 150 * GB),
    "DGX-1 32GB": Machine("nvlink", 150 * GB),
    "DGX-2": Machine("nvswitch", 150 * GB),
    "DGX-A100 80GB": Machine("nvswitch", 300 * GB),
    "4 nodes x 4 T4 (g4dn.12xlarge)": Machine("pcie", 15.75 * GB, "tcp", 50 * GBIT),
    "8 A100-SXM4-40GB (NVLink)": Machine("nvswitch", 300 * GB),
    "8 RTX 2080 Ti": Machine("pcie", 15.75 * GB, gpu="RTX-2080-Ti"),
}
"""By the name in the tables: NVIDIA's data sheets, as in ``catalog/data/gpus.csv``."""


@dataclass(frozen=True, eq=False)
class Model:
    """Gradients in the order in which they are ready: bytes, and when, as a fraction of the whole step."""

    gradients: tuple[int, ...]
    ready: Array
    tensors: int = 0
    """Gradients of the model itself, where those above are of one like it."""
    bucket: float = 25 * timeline.MIB
    """Bytes of a bucket: DistributedDataParallel's default, unless the script is known to differ."""

    @property
    def bytes(self) -> int:
        return sum(self.gradients)


@cache
def timed_model(name: str) -> Model:
    """A model whose gradients somebody timed on a V100."""
    own = [row for row in recorded.load_published("gradients_v100") if row["model"] == name]
    moments = np.cumsum([float(row["seconds_since_previous_gradient"]) for row in own])
    return Model(
        tuple(int(row["gradient_bytes"]) for row in own), (moments - moments[0]) / STEPS[name]
    )


_TIMED = {
    "ResNet-50": "resnet50",
    "ResNet50v1.5": "resnet50",
    "ResNet-18": "resnet50",
    "VGG16": "vgg16",
}
"""Models that were timed, or one like them: of residual networks most bytes are ready early in the backward pass."""


@cache
def model(name: str) -> Model:
    """A published model."""
    row = next(
        row for row in recorded.rows(recorded.PUBLISHED / "models.csv") if row["model"] == name
    )
    bucket, parts, size = float(row["bucket_bytes"]), int(row["parts"]), int(row["parameters"])
    if name in _TIMED:
        like = timed_model(_TIMED[name])
        times = size * 4 / like.bytes
        return Model(
            tuple(round(times * each) for each in like.gradients), like.ready, parts, bucket
        )
    passes = float(np.mean([timed_model(each).ready[-1] for each in STEPS]))
    return Model((size * 4 // parts,) * parts, np.linspace(0.0, passes, parts), parts, bucket)


def fabric(machine: Machine, nodes: int, devices: int, without: str | None = None) -> Fabric:
    """The fabric of so many devices on these machines, from claims and what others reached of such claims."""
    never = np.full(DRAWS.count, np.inf)
    inside = between = never
    if devices > 1:
        share = cluster.reached_share(cluster.inside_link(machine.wiring, machine.gpu), without)
        assert share is not None
        inside = DRAWS.draw("rate inside a node", reach_of(_claim(machine.inside), share))
    if nodes > 1 and machine.between is not None and machine.transport is not None:
        pcie = devices if machine.wiring == "pcie" else None
        rate = network_rate(_claim(machine.between), machine.transport, without, pcie)
        assert rate is not None
        pair = pcie and nodes == 2 and machine.transport == "tcp"
        between = (cluster.PAIR_SHARE if pair else 1.0) * DRAWS.draw("rate between nodes", rate)
    factor = DRAWS.draw("latency of published machines", cluster.latency_factor())
    ring, tree = (
        Hops(*(seconds * factor for seconds in _hops(machine.wiring, algorithm)))
        for algorithm in ("ring", "tree")
    )
    return Fabric(nodes, devices, inside, between, ring, tree)


def _hops(wiring: Wiring, algorithm: str) -> tuple[float, float, float]:
    start, inside = cluster.hop_latency(wiring, algorithm)
    return start, inside, cluster.hop_latency("network", algorithm)[1]


def _claim(rate: float) -> Quantity:
    return Quantity(
        value=rate, origin="data sheet", as_of="2026-11-20", source="the machine's data sheet"
    )


def exposed_seconds(
    model: Model, step: float, fabric: Fabric, spread: float = MODEL_SPREAD
) -> Array:
    """Seconds of a step that the exchange shows, ``[draws]``, as forecasts have it where nothing holds them."""
    buckets = timeline.bucket_sizes(model.gradients, model.bucket)
    ready = timeline.bucket_readiness(model.gradients, tuple(model.ready * step), buckets)
    each = collective_times.all_reduce(fabric, np.array(buckets, dtype=np.float64), "nccl")
    late = timeline.exposed_seconds(np.broadcast_to(ready, each.shape), each)
    uniforms = DRAWS.uniforms("share of the hidden exchange that shows")
    seen = exposure.shown_seconds(late, each.sum(axis=1), fabric.narrowest, uniforms)
    error = np.exp(spread * DRAWS.normals("error of the exchange model"))
    return np.asarray(seen * error / error.mean(), np.float64)


def ring_seconds(model: Model, ranks: int, rate: float) -> float:
    """The plain α–β of a ring whose payload crosses one link, none of it hidden."""
    return 2 * (ranks - 1) / ranks * model.bytes / rate


_PASSES, _KERNELS, _EAGER_SECONDS = 13, 9, 10e-6
"""Over a gradient, for it, and of each that Python starts: what AdaptDL does on a single GPU alone, where it compares
gradients with those of the step before (``gradient_noise_scale.py`` of petuum/adaptdl @0571c84: two norms, a mean and
a copy more)."""


def step_alone(name: str, row: dict[str, str]) -> float:
    """Seconds of a step on one GPU, without what its source's framework does on one and not on several."""
    step = float(row["batch_per_gpu"] or _ANY_BATCH) / float(row["value"])
    if not row["source"].startswith("siasosp23"):
        return step
    rate = shipped_sheets()[row["gpu"]].memory_bytes_per_second
    assert rate is not None
    trained = model(name)
    return step - _PASSES * trained.bytes / rate - trained.tensors * _KERNELS * _EAGER_SECONDS


def throughputs() -> Iterator[Prediction]:
    """Every published throughput on several GPUs of a known machine."""
    for key, alone, row in pairs():
        yield _prediction(key, alone, row)


def pairs() -> Iterator[tuple[Key, dict[str, str], dict[str, str]]]:
    """Every row of several GPUs of a known machine, with that of one GPU."""
    groups: dict[Key, list[dict[str, str]]] = {}
    for row in _list_known_rows():
        key = (*_job(row), row["batch_per_gpu"], row["precision"], row["data"])
        groups.setdefault(key, []).append(row)
    for key, group in groups.items():
        alone = next((row for row in group if row["n_gpus"] == "1"), None)
        if alone is not None:
            yield from ((key, alone, row) for row in group if row is not alone)


def _list_known_rows() -> list[dict[str, str]]:
    return [
        row
        for row in recorded.load_published("throughputs")
        if row["hardware"] in MACHINES and row["metric"].endswith("/s")
    ]


def _job(row: dict[str, str]) -> Job:
    return row["source"], row["model"], row["hardware"]


def scaling_rows() -> list[dict[str, str]]:
    """What ``node_scaling.csv`` holds: of one node, and of real data only where there is nothing synthetic.

    What real data add to a step is its input, a stall of its own.
    """
    inside = [pair for pair in pairs() if pair[2]["n_nodes"] == "1"]
    synthetic = {key[0] for key, *_ in inside if key[-1] == "synthetic"}
    return [
        _scaling_row(*pair)
        for pair in inside
        if pair[0][-1] == "synthetic" or pair[0][0] not in synthetic
    ]


def _scaling_row(key: Key, alone: dict[str, str], row: dict[str, str]) -> dict[str, str]:
    source, name, hardware, batch, precision, data = key
    ranks, nodes = int(row["n_gpus"]), int(row["n_nodes"])
    samples, step = float(batch or _ANY_BATCH), step_alone(name, alone)
    predicted = exposed_seconds(
        model(name), step, fabric(MACHINES[hardware], nodes, ranks // nodes), 0.0
    )
    short, _, when = source.partition(" (")
    return {
        "model": name,
        "machine": hardware,
        "gpu": row["gpu"],
        "batch": batch,
        "precision": precision,
        "data": data,
        "nodes": str(nodes),
        "devices": str(ranks),
        "one_per_s": f"{samples / step:.6g}",
        "all_per_s": row["value"],
        "exchange": f"{float(np.median(predicted)) / step:.4f}",
        "as_of": _PUBLISHED.get(short, _LOOKED_UP),
        "source": short,
        "notes": ", ".join(each for each in (row["framework"], when.rstrip(")")) if each),
    }


def write(path: File = TABLE) -> None:
    """What devices of a node cost each other, one line a throughput."""
    found = scaling_rows()
    recorded.write(path, list(found[0]), [list(row.values()) for row in found])


@cache
def model_spread(without: str | None = None) -> float:
    """How far the exchange between nodes is from what the model says: the source of ``MODEL_SPREAD``.

    Root mean square of ln(seen / predicted) over every row of several nodes but those of the model ``without``, seen
    being what a step takes longer than on one node of the same group. Widened to what Student's distribution asks of
    so few.
    """
    logs = []
    for key, alone, row in pairs():
        if (
            row["n_nodes"] == "1"
            or key[1] == without
            or MACHINES[row["hardware"]].transport == "tcp"
        ):
            continue  # of sockets it is their rate that is in doubt
        ranks, batch, machine = (
            int(row["n_gpus"]),
            float(row["batch_per_gpu"]),
            MACHINES[row["hardware"]],
        )
        node = next(other for same, _, other in pairs() if same == key and other["n_gpus"] == "8")
        seen = batch * ranks / float(row["value"]) - batch * 8 / float(node["value"])
        step = step_alone(row["model"], alone)
        within, whole = (
            float(
                np.median(
                    exposed_seconds(model(row["model"]), step, fabric(machine, nodes, 8), 0.0)
                )
            )
            for nodes in (1, ranks // 8)
        )
        logs.append(np.log(seen / (whole - within)))
    return widen_spread(float(np.sqrt(np.mean(np.square(logs)))), len(logs))


def _prediction(key: tuple[str, ...], alone: dict[str, str], row: dict[str, str]) -> Prediction:
    source, name, hardware, batch, precision, data = key
    machine, ranks, nodes = MACHINES[hardware], int(row["n_gpus"]), int(row["n_nodes"])
    exchanges, short = model(name), source.split(" (")[0]
    samples, step = float(batch or _ANY_BATCH), step_alone(name, alone)
    crowded = step * (
        1 + compute_ratios.crowding_quantiles(DRAWS.uniforms("crowding"), ranks // nodes, short)
    )
    spread = model_spread(without=name)
    # Links inside a node are told from other sources, or of the same one's other model; sockets of machines with PCIe
    # have one source, of one model.
    without = key[0] if machine.gpu is None else f"{key[0]}, {name}"
    links = fabric(machine, nodes, ranks // nodes, without=without if nodes == 1 else None)
    whole = crowded + exposed_seconds(exchanges, step, links, spread)
    link = machine.between if nodes > 1 and machine.between else machine.inside
    plain = step + ring_seconds(exchanges, ranks, link)
    return Prediction.throughput(
        source=f"{_short(source)}, {'several nodes' if nodes > 1 else 'one node'}, {data} data",
        name=f"{name} on {ranks} × {row['gpu']}, batch {batch or '?'}, {precision}",
        measured=float(row["value"]),
        samples=ranks * samples,
        step=whole,
        baselines={
            "perfect scaling": ranks * samples / step,
            "payload over one link": ranks * samples / plain,
        },
    )


def _short(source: str) -> str:
    return (
        source.partition(" (")[0]
        .replace("NVIDIA/DeepLearningExamples", "NVIDIA")
        .removeprefix("Oneflow-Inc/")
    )


def section() -> str:
    found, crowding = list(throughputs()), compute_ratios.crowding(8)
    simpler = {
        name: median_90((each.baselines[name] / each.measured - 1 for each in found), " / ")
        for name in ("perfect scaling", "payload over one link")
    }
    split = (
        f"{len(found)} throughputs, each from the same source's throughput on one GPU and the data sheet of the "
        "machine's links. *Split*: by source: steps take "
        f"{crowding.value:.0%} longer on several devices of a node than their exchange explains, {crowding.low:.0%} "
        f"to {crowding.high:.0%}, each predicted from the other sources'. The exchange model's spread "
        f"({MODEL_SPREAD:.0%}) comes from the rows of several nodes of every other model. Over all: median / 90th "
        f"{median_90((each.error for each in found), ' / ')}, in the interval {coverage(found):.0%}; "
        + "; ".join(f"{name} {errors}" for name, errors in simpler.items())
    )
    return evidence("Published throughput on several GPUs", f"{split}.", found)


if __name__ == "__main__":
    if arguments(__doc__, write=(False, "write what forecasts take from it")).write:
        write()
    print(section())
