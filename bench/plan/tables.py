"""Published throughputs as fleets to choose from: a job, the set-ups it was measured on, and what those cost an hour.

From ``bench/predict/data`` (sources and dates there) and prices of the shipped catalog. Left out is whatever Stash's
models of exchange and crowding were learned from: TensorFlow's rows on synthetic data, DLPerf's BERT in float32 over
several nodes. Knows what was measured and nothing of what is hidden, predicted or chosen.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from bench import recorded
from bench.predict.published import MACHINES
from stash.catalog.facts import GpuFacts
from stash.catalog.offers import OfferFilter
from stash.predict.forecasting import shipped_catalog

PRICES_OF = "gcp"
"""The one cloud that has a price of each of these GPUs."""


@dataclass(frozen=True)
class Setup:
    """Some GPUs of one kind, together in one way."""

    gpu: str
    """The GPU's model in the catalog."""
    count: int
    nodes: int
    machine: str
    """As the source calls it, or how Gavel placed the job."""
    cores: int | None = None
    """Rented with the GPU, where that is what differs."""

    @property
    def name(self) -> str:
        return f"{self.count} × {self.gpu}, {self.machine}"

    @property
    def dollars_per_hour(self) -> float:
        if self.cores is None:
            return self.count * dollars_per_gpu_hour(self.gpu)
        core = dollars_per_core_hour()
        return self.count * (_price("n1-standard-8+1xV100") - 8 * core) + self.cores * core

    @property
    def facts(self) -> GpuFacts:
        return next(each for each in shipped_catalog().gpus if each.model == self.gpu)


@dataclass(frozen=True)
class Job:
    """What is trained, as one source measured it."""

    source: str
    model: str
    batch: int | None
    """Of a GPU."""
    precision: str

    @property
    def name(self) -> str:
        return f"{self.source}: {self.model}, batch {self.batch or '?'}, {self.precision}"


Cells = dict[Setup, float]
"""Samples, or iterations where the batch is unknown, per second of all GPUs."""


@lru_cache(maxsize=8)
def dollars_per_gpu_hour(gpu: str) -> float:
    """The cheapest on-demand price of one such GPU for an hour, of types of ``PRICES_OF``."""
    offers = shipped_catalog().query(OfferFilter(gpu=gpu, cloud=PRICES_OF))
    return min(each.dollars_per_gpu_hour for each in offers if each.dollars_per_gpu_hour)


@lru_cache(maxsize=1)
def dollars_per_core_hour() -> float:
    """Of a core with its memory, from two types with the same GPU and unlike numbers of cores for each."""
    few, many = _price("n1-standard-8+1xV100"), _price("n1-standard-96+8xV100")
    return (many - 8 * few) / (96 - 8 * 8)


@lru_cache(maxsize=8)
def _price(name: str) -> float:
    offers = shipped_catalog().query(OfferFilter(cloud=PRICES_OF))
    return min(each.dollars_per_hour for each in offers if each.instance.name == name)


def prices() -> str:
    """The prices in words, with their dates."""
    texts = []
    for gpu in ("K80", "P100", "V100", "A100"):
        offers = [o for o in shipped_catalog().query(OfferFilter(gpu=gpu, cloud=PRICES_OF)) if o.dollars_per_gpu_hour]
        cheapest = min(offers, key=lambda offer: offer.dollars_per_gpu_hour or 0.0)
        when = cheapest.as_of or "undated"
        texts.append(f"{gpu} ${cheapest.dollars_per_gpu_hour:.2f} ({cheapest.instance.name}, {when})")
    return f"{', '.join(texts)}, a core ${dollars_per_core_hour():.3f}"


def gavel() -> dict[Job, Cells]:
    """Gavel's isolated jobs; packed into one machine and spread over several are jobs of their own."""
    found: dict[Job, Cells] = defaultdict(dict)
    for row in recorded.published("gavel"):
        batch = int(row["batch_size"]) if row["batch_size"] else None
        spread = row["placement"] == "unconsolidated"
        job = Job(f"Gavel, {'spread' if spread else 'packed'}", row["model"].rstrip(","), batch, "fp32")
        count = int(row["scale_factor"])
        setup = Setup(row["gpu"].upper(), count, count if spread else 1, "spread" if spread else "packed")
        found[job][setup] = float(row["iterations_per_s_aggregate"]) * (batch or 1)
    return dict(found)


def others() -> dict[Job, Cells]:
    """TensorFlow's on real data, DLPerf's and NVIDIA's, on machines whose data sheets are known."""
    found: dict[Job, Cells] = defaultdict(dict)
    for row in recorded.published("throughputs"):
        if row["hardware"] not in MACHINES or not row["metric"].endswith("/s") or _learned_from(row):
            continue
        batch = int(row["batch_per_gpu"]) if row["batch_per_gpu"] else None
        precision = "amp" if row["precision"] == "amp" else "fp32"
        source = (
            row["source"].split(" (")[0].split(" performance")[0].replace("NVIDIA/DeepLearningExamples", "NVIDIA")
        )
        job = Job(source.removeprefix("Oneflow-Inc/").removesuffix(" report v1"), row["model"], batch, precision)
        gpu = row["gpu"].split("-")[0]
        found[job][Setup(gpu, int(row["n_gpus"]), int(row["n_nodes"]), row["hardware"])] = float(row["value"])
    return dict(found)


def synergy() -> dict[Job, Cells]:
    """Synergy's speeds of one V100 with more and fewer cores, relative to three, with memory for all data."""
    found: dict[Job, Cells] = defaultdict(dict)
    table = recorded.published("synergy")
    most = max(float(row["mem_gb_per_gpu"]) for row in table)
    for row in table:
        if float(row["mem_gb_per_gpu"]) == most:
            cores = int(row["cpus_per_gpu"])
            setup = Setup("V100", 1, 1, f"{cores} cores", cores)
            job = Job("Synergy", row["model"], int(row["batch"]), "fp32")
            found[job][setup] = float(row["relative_throughput_vs_3cpu"])
    return dict(found)


def _learned_from(row: dict[str, str]) -> bool:
    if row["source"].startswith("TensorFlow"):
        return row["data"] == "synthetic"
    return row["model"] == "BERT-base pretrain" and row["precision"] == "fp32" and row["n_nodes"] != "1"
