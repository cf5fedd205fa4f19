"""Reads the facts that come with Stash: ``data/gpus.csv``, ``data/instances.csv``, ``data/prices.csv``.

Knows the columns of these files and their units, and turns them into base units; an empty cell becomes ``None``.
Knows nothing of other layers, and checks nothing: the integrity tests do.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import get_args

from stash.catalog.facts import GpuFacts, Instance, Price, PriceKind

DATE = "2026-11-20"
"""When the shipped tables were compiled; every price carries its own, older, date."""

GIB, GB, MB, GBIT, TERA = 2**30, 1e9, 1e6, 1e9 / 8, 1e12

# column of the file: (field of the record, factor to base units)
_GPU = {
    "fp32_tflops": ("fp32_flops_per_second", TERA),
    "tensor_fp16_bf16_tflops": ("tensor_fp16_flops_per_second", TERA),
    "tensor_tf32_tflops": ("tensor_tf32_flops_per_second", TERA),
    "fp16_tflops": ("fp16_flops_per_second", TERA),
    "memory_gib": ("memory_bytes", GIB),
    "memory_gb_per_s": ("memory_bytes_per_second", GB),
    "tdp_w": ("watts", 1.0),
    "nvlink_gb_per_s": ("nvlink_bytes_per_second", GB),
}
_INSTANCE = {
    "gpu_count": ("gpu_count", 1.0),
    "gpu_memory_gib": ("gpu_memory_bytes", GIB),
    "vcpus": ("vcpus", 1.0),
    "memory_gib": ("memory_bytes", GIB),
    "interconnect_gb_per_s": ("interconnect_bytes_per_second", GB),
    "pair_min_gb_per_s": ("pair_min_bytes_per_second", GB),
    "pair_max_gb_per_s": ("pair_max_bytes_per_second", GB),
    "pcie_gb_per_s": ("pcie_bytes_per_second", GB),
    "pcie_measured_gb_per_s": ("pcie_measured_bytes_per_second", GB),
    "network_gbit_per_s": ("network_bytes_per_second", GBIT),
    "network_burst_gbit_per_s": ("network_burst_bytes_per_second", GBIT),
    "rdma_gbit_per_s": ("rdma_bytes_per_second", GBIT),
    "remote_disk_mb_per_s": ("remote_disk_bytes_per_second", MB),
    "remote_disk_burst_mb_per_s": ("remote_disk_burst_bytes_per_second", MB),
}
_DISK_UNITS = {"GB": GB, "GiB": GIB}
_KINDS: dict[str, PriceKind] = {kind: kind for kind in get_args(PriceKind)}


def rows(name: str) -> list[dict[str, str]]:
    """The lines of one data file, e.g. ``"gpus.csv"``, as they are."""
    text = files("stash.catalog").joinpath("data").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _numbers(row: dict[str, str], columns: dict[str, tuple[str, float]]) -> dict[str, float]:
    return {to: float(row[column]) * factor for column, (to, factor) in columns.items() if row[column]}


def gpus() -> tuple[GpuFacts, ...]:
    """The shipped GPUs, in base units."""
    return tuple(
        GpuFacts(
            name=row["gpu"],
            model=row["model"],
            architecture=row["architecture"] or None,
            pcie=row["pcie"] or None,
            release_year=int(row["release_year"]) if row["release_year"] else None,
            as_of=row["as_of"],
            source=row["source"],
            notes=row["notes"],
            **_numbers(row, _GPU),
        )
        for row in rows("gpus.csv")
    )


def instances() -> tuple[Instance, ...]:
    """The shipped instances, in base units."""
    return tuple(_instance(row) for row in rows("instances.csv"))


def _instance(row: dict[str, str]) -> Instance:
    disk = float(row["local_disk"]) * _DISK_UNITS[row["local_disk_unit"]] if row["local_disk"] else None
    return Instance(
        cloud=row["cloud"],
        name=row["instance"],
        gpu_model=row["gpu_model"] or None,
        gpu=row["gpu"] or None,
        interconnect=row["interconnect"] or None,
        rdma={"yes": True, "no": False}.get(row["rdma"]),
        local_disk_bytes=disk,
        as_of=row["as_of"],
        source=row["source"],
        notes=row["notes"],
        **_numbers(row, _INSTANCE),
    )


def prices() -> tuple[Price, ...]:
    """The shipped prices, in dollars per hour."""
    return tuple(
        Price(
            *(row["cloud"], row["instance"], row["region"] or None, _KINDS[row["kind"]], float(row["usd_per_hour"])),
            *(row["as_of"] or None, row["source"], row["notes"]),
        )
        for row in rows("prices.csv")
    )
