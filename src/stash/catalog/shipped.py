"""Reads the facts that come with Stash, ``data/*.csv``: a dated and sourced line for each.

Knows the columns of GPUs, instances and prices and their units, and turns them into base units; an empty cell leaves
a field at its default. Knows nothing of other layers, and checks nothing: the integrity tests do.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib.resources import files
from typing import TypeVar, get_args

from stash.catalog.facts import GpuFacts, Instance, Price, PriceKind
from stash.core.records.base import Record

R = TypeVar("R", bound=Record)
DATE = "2026-11-20"
"""When the shipped tables were compiled; every price carries its own, older, date."""

GIB, GB, MB, GBIT, TERA = 2**30, 1e9, 1e6, 1e9 / 8, 1e12
Units = Mapping[str, tuple[str, float]]
"""Of a file: the field of the record that each is, and the factor to base units. Others are called like the field."""

_GPU: Units = {
    "fp32_tflops": ("fp32_flops_per_second", TERA),
    "tensor_fp16_bf16_tflops": ("tensor_fp16_flops_per_second", TERA),
    "tensor_tf32_tflops": ("tensor_tf32_flops_per_second", TERA),
    "fp16_tflops": ("fp16_flops_per_second", TERA),
    "memory_gib": ("memory_bytes", GIB),
    "memory_gb_per_s": ("memory_bytes_per_second", GB),
    "tdp_w": ("watts", 1.0),
    "nvlink_gb_per_s": ("nvlink_bytes_per_second", GB),
}
_INSTANCE: Units = {
    "gpu_memory_gib": ("gpu_memory_bytes", GIB),
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
_DISK_UNITS = {"": 1.0, "GB": GB, "GiB": GIB}
_KINDS: dict[str, PriceKind] = {kind: kind for kind in get_args(PriceKind)}


def read_rows(name: str) -> list[dict[str, str]]:
    """The lines of one data file, e.g. ``"gpus.csv"``, as they are."""
    text = files("stash.catalog").joinpath("data").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def parse_record(
    row: Mapping[str, str], model: type[R], name: str = "", columns: Units | None = None
) -> R:
    """One line as a record; the column ``name`` is its field ``name``."""
    fields: dict[str, object] = {}
    for column, cell in row.items():
        field, factor = (columns or {}).get(column, ("name" if column == name else column, None))
        if cell:
            fields[field] = cell if factor is None else float(cell) * factor
    return model.model_validate(fields)


def read_records(
    file: str, model: type[R], name: str = "", columns: Units | None = None
) -> tuple[R, ...]:
    """Every line of a data file as a record, in the file's order."""
    return tuple(parse_record(row, model, name, columns) for row in read_rows(file))


def gpus() -> tuple[GpuFacts, ...]:
    """The shipped GPUs, in base units."""
    return read_records("gpus.csv", GpuFacts, "gpu", _GPU)


def instances() -> tuple[Instance, ...]:
    """The shipped instances, in base units."""
    found = []
    for row in read_rows("instances.csv"):
        disk = _DISK_UNITS[row.pop("local_disk_unit")]
        found.append(
            parse_record(
                row, Instance, "instance", {**_INSTANCE, "local_disk": ("local_disk_bytes", disk)}
            )
        )
    return tuple(found)


def prices() -> tuple[Price, ...]:
    """The shipped prices, in dollars per hour."""
    return tuple(
        Price(
            *(
                row["cloud"],
                row["instance"],
                row["region"] or None,
                _KINDS[row["kind"]],
                float(row["usd_per_hour"]),
            ),
            *(row["as_of"] or None, row["source"], row["notes"]),
        )
        for row in read_rows("prices.csv")
    )
