"""Throughputs that others published of the same model, batch and GPUs, beside those measured on the emulated fleet.

Like is compared with like only: one model, one batch a GPU, as many of the same GPU in one machine, float32. Gavel's
ResNet-18 trains on CIFAR-10, so it is no pair. Rows of one GPU are left out: the emulation takes its times from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench import recorded
from bench.study.runs import Row
from stash.catalog.reference import model_key

_OTHER_INPUT = ("resnet18",)


class PublishedPair(NamedTuple):
    """One measurement of others beside one of ours."""

    row: Row
    gpus: int
    published: float
    """Samples per second of all GPUs together."""
    data: str
    """``synthetic``, or ``real`` data from a disk, which the emulation has not."""
    source: str

    @property
    def ratio(self) -> float:
        """Emulated over published."""
        return (self.row.number("samples_per_second") or 0.0) / self.published


class _Published(NamedTuple):
    key: str
    gpu: str
    nodes: int
    gpus: int
    batch: int
    per_second: float
    data: str
    source: str


def pairs(rows: Sequence[Row]) -> tuple[PublishedPair, ...]:
    """Every pair, in the study's order; of an instance as the catalog has it, not of one with links of its own."""
    known = (*_throughputs(), *_gavel())
    found = []
    for row in rows:
        gpus, nodes = int(row.cell["devices"]) * int(row.cell["nodes"]), int(row.cell["nodes"])
        gpu = {"p2": "K80", "p3": "V100"}[row.cell["place"].split(".")[0]]
        for each in known:
            like = (each.key, each.gpu, each.nodes, each.gpus, each.batch)
            if (
                gpus > 1
                and " " not in row.cell["place"]
                and like == (model_key(row.workload), gpu, nodes, gpus, row.batch)
            ):
                found.append(PublishedPair(row, gpus, each.per_second, each.data, each.source))
    return tuple(found)


def _throughputs() -> Iterator[_Published]:
    for row in recorded.published("throughputs"):
        if row["metric"].endswith("/s") and row["precision"] == "fp32" and row["batch_per_gpu"] and row["n_gpus"]:
            yield _Published(
                model_key(row["model"]), row["gpu"].split("-")[0], int(row["n_nodes"]), int(row["n_gpus"]),
                int(row["batch_per_gpu"]), float(row["value"]), row["data"], f"{row['source']}, {row['hardware']}",
            )  # fmt: skip


def _gavel() -> Iterator[_Published]:
    """Jobs packed on one machine; which machine, Gavel does not say."""
    for row in recorded.published("gavel"):
        key = model_key(row["model"])
        if row["placement"] == "consolidated" and row["batch_size"] and key not in _OTHER_INPUT:
            count, batch = int(row["scale_factor"]), int(row["batch_size"])
            speed = float(row["iterations_per_s_aggregate"]) * batch
            yield _Published(key, row["gpu"].upper(), 1, count, batch, speed, "real", "Gavel (OSDI 2020)")
