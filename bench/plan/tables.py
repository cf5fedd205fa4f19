"""Published throughputs as fleets to choose from: a job, the machines it was measured on, and what those cost.

Knows what was measured and nothing of forecasts. Rows: ``bench/plan/data/published.csv.gz``.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import recorded
from stash.catalog.facts import GpuFacts
from stash.predict.forecasting import shipped_catalog

DATA = Path(__file__).parent / "data"
PARAMETERS = {
    "ssd": 23e6,
    "bert_base_squad": 108.9e6,
    "ncf": 31.8e6,
    "resnet50": 25.6e6,
    "tacotron2": 28.2e6,
    "transformerxlbase": 192e6,
    "LM": 25e6,
    "ResNet-18": 11.2e6,
    "ResNet-50": 25.6e6,
    "Transformer": 45e6,
    "Recommendation": 20e6,
    "A3C": 1e6,
    "CycleGAN": 28e6,
}
"""Of models whose exchange is forecast; 50 million where the source does not say."""


@dataclass(frozen=True)
class Setup:
    """Some GPUs of one kind in one machine."""

    gpu: str
    """The exact variant in the catalog."""
    count: int

    @property
    def name(self) -> str:
        return f"{self.count}x{self.gpu}".lower()

    @property
    def facts(self) -> GpuFacts:
        return next(each for each in shipped_catalog().gpus if each.name == self.gpu)


class Job(NamedTuple):
    """What is trained, as one source measured it."""

    table: str
    model: str
    precision: str

    @property
    def parameters(self) -> float:
        return PARAMETERS.get(self.model.partition(",")[0], 5e7)


class Cell(NamedTuple):
    """One measurement."""

    batch: int
    """Of a GPU."""
    per_second: float
    """Samples of all GPUs."""


@lru_cache(maxsize=1)
def asking_prices() -> Mapping[str, tuple[float, ...]]:
    """Dollars of a GPU for an hour, one of each cloud that has it."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in recorded.rows(DATA / "gpu_prices.csv"):
        found[row["gpu"]].append(float(row["usd_per_gpu_hour"]))
    return {gpu: tuple(sorted(each)) for gpu, each in found.items()}


def prices(job: Job, seed: int, setups: Iterable[Setup]) -> dict[Setup, float]:
    """Dollars of an hour of each, every GPU from a cloud that is drawn for it."""
    draw = np.random.default_rng([seed, zlib.crc32(repr(tuple(job)).encode())])
    of_gpu = {
        gpu: asking_prices()[gpu][int(draw.integers(len(asking_prices()[gpu])))]
        for gpu in sorted({s.gpu for s in setups})
    }
    return {each: each.count * of_gpu[each.gpu] for each in setups}


@lru_cache(maxsize=1)
def jobs() -> Mapping[Job, Mapping[Setup, Cell]]:
    """Of jobs on several kinds of GPU and three set-ups or more."""
    found: dict[Job, dict[Setup, Cell]] = defaultdict(dict)
    for row in recorded.rows(DATA / "published.csv.gz"):
        job = Job(row["table"], row["model"], row["precision"])
        found[job][Setup(row["gpu"], int(row["gpus"]))] = Cell(
            int(row["batch"]), float(row["per_second"])
        )
    return {
        job: cells
        for job, cells in found.items()
        if len({each.gpu for each in cells}) > 1 and len(cells) > 2
    }
