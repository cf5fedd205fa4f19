"""Integrity of the shipped facts: plausible units, no contradictions, a date and a source for every number."""

import csv
import itertools
import re
from collections import defaultdict
from datetime import date

import pytest

from stash.catalog import shipped

pytestmark = pytest.mark.usefixtures("home")

GPUS = {gpu.name: gpu for gpu in shipped.gpus()}
INSTANCES = {(item.cloud, item.name): item for item in shipped.instances()}
PRICES = shipped.prices()
DATE = re.compile(r"20\d\d(-[01]\d(-[0-3]\d)?)?")

VARIANT_UNKNOWN = {("lambda", "gpu_8x_v100"), ("lambda", "gpu_2x_a100")}
"""No source says whether these are PCIe or SXM cards."""
MEMORY_UNKNOWN = {("gcp", "a4-highgpu-8g")}
DOLLARS_PER_GPU_HOUR = {
    "K80": (0.5, 1.3),
    "M60": (0.5, 1.6),
    "P100": (1.5, 2.5),
    "V100": (0.7, 4.5),
    "T4": (0.4, 5.0),
    "T4G": (0.4, 1.5),
    "A10": (0.9, 5.0),
    "A10G": (1.0, 4.5),
    "L4": (0.6, 2.2),
    "L40S": (1.8, 5.0),
    "A100": (1.2, 6.0),
    "H100": (3.0, 13.0),
    "H200": (7.0, 15.0),
    "B200": (6.0, 18.0),
    "B300": (12.0, 25.0),
}
"""On demand, one whole GPU; wide enough for the largest single-GPU machines."""


def price(item, kind):
    return next(
        (p for p in PRICES if (p.cloud, p.instance, p.kind) == (item.cloud, item.name, kind)), None
    )


@pytest.mark.parametrize("name", ["gpus.csv", "instances.csv", "prices.csv"])
def test_every_line_has_every_cell_and_no_stray_spaces(name):
    for row in shipped.read_rows(name):
        assert None not in row
        assert all(cell is not None and cell == cell.strip() for cell in row.values()), row


@pytest.mark.parametrize("name", ["gpus.csv", "instances.csv", "prices.csv"])
def test_every_line_has_a_source_and_every_date_is_one(name):
    for row in shipped.read_rows(name):
        assert row["source"], row
        assert DATE.fullmatch(row["as_of"]) or (name == "prices.csv" and row["notes"]), (
            f"neither date nor why: {row}"
        )
        if len(row["as_of"]) == 10:
            assert (
                date(2014, 1, 1)
                < date.fromisoformat(row["as_of"])
                <= date.fromisoformat(shipped.DATE)
            )


def test_no_number_is_negative_and_zero_only_means_none():
    for gpu in GPUS.values():
        for field, value in gpu.model_dump().items():
            assert not isinstance(value, float) or value > 0, (gpu.name, field)
    for item in INSTANCES.values():
        for field, value in item.model_dump().items():
            if isinstance(value, float) and field not in ("gpu_count", "local_disk_bytes"):
                assert value > 0, (item.name, field)
    assert all(p.dollars_per_hour > 0 for p in PRICES)


def test_units_are_plausible():
    bounds = {
        "gpu_memory_bytes": (2e9, 400e9),
        "memory_bytes": (4e9, 6e12),
        "vcpus": (2, 256),
        "interconnect_bytes_per_second": (80e9, 900e9),
        "pcie_bytes_per_second": (15e9, 64e9),
        "network_bytes_per_second": (0.75e9 / 8, 6400e9 / 8),
        "network_burst_bytes_per_second": (5e9 / 8, 100e9 / 8),
        "rdma_bytes_per_second": (25e9 / 8, 6400e9 / 8),
        "remote_disk_bytes_per_second": (80e6, 13e9),
        "remote_disk_burst_bytes_per_second": (80e6, 13e9),
    }
    for item in INSTANCES.values():
        for field, (least, most) in bounds.items():
            value = getattr(item, field)
            assert value is None or least <= value <= most, (item.name, field, value)
    for gpu in GPUS.values():
        assert 8e9 < (gpu.memory_bytes or 0) < 320e9
        assert 160e9 < (gpu.memory_bytes_per_second or 1e12) < 9e12
        assert 4e12 < (gpu.fp32_flops_per_second or 1e13) < 2e14


def test_every_gpu_model_leads_to_a_gpu_or_is_listed_as_unknown():
    models = {gpu.model for gpu in GPUS.values()}
    for key, item in INSTANCES.items():
        assert (item.gpu_model is None) == (item.gpu_count == 0), key
        if item.gpu_model is None:
            continue
        assert item.gpu_model in models, key
        assert (item.gpu is None) == (key in VARIANT_UNKNOWN), key
        if item.gpu:
            assert GPUS[item.gpu].model == item.gpu_model, key


def test_an_instance_has_the_memory_of_its_gpu():
    """Clouds write GB where the vendor does and GiB elsewhere: 7.4 % lies between the two."""
    for key, item in INSTANCES.items():
        if not item.gpu_count:
            continue
        assert (item.gpu_memory_bytes is None) == (key in MEMORY_UNKNOWN), key
        if item.gpu and item.gpu_memory_bytes:
            whole = GPUS[item.gpu].memory_bytes
            assert item.gpu_memory_bytes == pytest.approx(
                whole * min(1.0, item.gpu_count), rel=0.075
            ), key


def test_the_fabric_fits_the_gpu():
    for key, item in INSTANCES.items():
        count = item.gpu_count or 0
        if item.interconnect is None:
            assert not count or item.cloud in ("lambda", "runpod"), key
            continue
        assert (item.interconnect == "none") == (0 < count <= 1), key
        if item.gpu and item.interconnect_bytes_per_second:
            assert item.interconnect_bytes_per_second == GPUS[item.gpu].nvlink_bytes_per_second, key
        if item.interconnect.startswith("nvlink") and item.gpu:
            assert GPUS[item.gpu].nvlink_bytes_per_second, key
        if item.interconnect.startswith("pcie"):
            assert item.interconnect_bytes_per_second is None, key
        pair = item.pair_min_bytes_per_second
        best = item.pair_max_bytes_per_second
        assert (
            pair is None
            or best is None
            or pair <= best <= (item.interconnect_bytes_per_second or best)
        ), key


def test_parts_of_an_a3_have_the_network_of_one_interface_by_their_gpus():
    rates = [
        INSTANCES["gcp", f"a3-highgpu-{gpus}g"].network_bytes_per_second for gpus in (1, 2, 4, 8)
    ]
    assert rates == [gbit * 1e9 / 8 for gbit in (25, 50, 100, 1000)]


def test_bursts_are_no_slower_than_what_is_sustained():
    for key, item in INSTANCES.items():
        for rate in ("network", "remote_disk"):
            base = getattr(item, f"{rate}_bytes_per_second")
            burst = getattr(item, f"{rate}_burst_bytes_per_second")
            assert base is None or burst is None or base <= burst, key
        assert item.rdma is not False or item.rdma_bytes_per_second is None, key


def test_a_larger_type_of_a_family_has_no_less():
    """Of one family (the name up to its size) and GPU count, more vCPUs never come with less of anything.

    Across counts it does not hold: g5.16xlarge has one GPU and less network than g5.12xlarge, which has four.
    """
    families = defaultdict(list)
    for item in INSTANCES.values():
        family = re.split(r"[.]|(?<=[a-z])-\d", item.name)[0] if item.cloud != "azure" else ""
        if family and "+" not in item.name:
            families[item.cloud, family, str(item.gpu), str(item.gpu_count)].append(item)
    assert sum(len(members) > 1 for members in families.values()) >= 9
    for family, members in families.items():
        members.sort(key=lambda item: (item.vcpus or 0, item.memory_bytes or 0))
        for small, large in itertools.pairwise(members):
            for field in (
                "memory_bytes",
                "network_bytes_per_second",
                "remote_disk_burst_bytes_per_second",
            ):
                less = getattr(small, field)
                more = getattr(large, field)
                assert less is None or more is None or less <= more, (
                    family,
                    small.name,
                    large.name,
                    field,
                )
            cheap = price(small, "on-demand")
            dear = price(large, "on-demand")
            assert (
                cheap is None or dear is None or cheap.dollars_per_hour <= dear.dollars_per_hour
            ), large.name
    # More GPUs of a kind in a family never cost less, nor come with less network, than the smallest type with fewer.
    for (cloud, family, gpu, count), members in families.items():
        for (cloud2, family2, gpu2, more), others in families.items():
            if (cloud, family, gpu) == (cloud2, family2, gpu2) and float(count) < float(more):
                cheap = price(members[0], "on-demand")
                dear = price(others[-1], "on-demand")
                assert (
                    cheap is None or dear is None or cheap.dollars_per_hour < dear.dollars_per_hour
                ), others[-1].name


def test_a_gpu_hour_costs_what_such_a_gpu_costs():
    for key, item in INSTANCES.items():
        asked = price(item, "on-demand")
        if item.gpu_count and asked is not None:
            least, most = DOLLARS_PER_GPU_HOUR[str(item.gpu_model)]
            assert least <= asked.dollars_per_hour / item.gpu_count <= most, key


def test_spot_is_cheaper_than_on_demand():
    for key, item in INSTANCES.items():
        full = price(item, "on-demand")
        spot = price(item, "spot")
        if full and spot:
            assert spot.dollars_per_hour < full.dollars_per_hour, (
                f"{key}: lists repeat a price for one not known"
            )


def test_every_price_belongs_to_an_instance():
    assert {(p.cloud, p.instance) for p in PRICES} <= INSTANCES.keys()


def test_the_files_are_plain_csv_with_unix_line_ends():
    from importlib.resources import files

    predicted = ("collectives.csv", "hop_latencies.csv", "node_scaling.csv", "power_limits.csv")
    for name in ("gpus.csv", "instances.csv", "prices.csv", *predicted):
        raw = files("stash.catalog").joinpath("data").joinpath(name).read_bytes()
        assert b"\r" not in raw
        assert raw.endswith(b"\n")
        assert len(list(csv.reader(raw.decode().splitlines()))) == raw.count(b"\n")
