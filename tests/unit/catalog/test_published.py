"""Reading price lists as they are published: what a line means, and which lines and lists are not believed."""

from __future__ import annotations

import pytest
from price_lists import HUNT_HEAD, SKY_AWS, SKY_GCP, SKY_RUNPOD

from stash.catalog.published import DamagedError, gpuhunt, skypilot
from stash.catalog.shipped import instances

pytestmark = pytest.mark.usefixtures("home")


def test_gcp_machines_of_skypilot_cost_machine_and_gpus_together() -> None:
    known = {item.name: item for item in instances() if item.cloud == "gcp"}
    found = skypilot("gcp", SKY_GCP, "s", "2026-11-20", known).prices()
    expected = {
        "a2-highgpu-1g": 0.73948 + 2.933908,
        "a2-ultragpu-1g": 1.09962 + 3.969176,
        "a3-megagpu-8g": 9.46 + 82.75,
        "n1-standard-8+1xV100": 0.38 + 2.48,
    }
    assert {key[0]: price for key, price in found.items() if key[2] == "on-demand"} == pytest.approx(expected)
    assert found["a2-highgpu-1g", "us-central1", "spot"] == pytest.approx(0.36975 + 1.4341)


def test_placeholders_of_skypilot_are_not_prices() -> None:
    aws = skypilot("aws", SKY_AWS, "s", "2026-11-20", {}).prices()
    assert ("p4de.24xlarge", "us-east-1", "spot") not in aws  # equal to on demand: none known
    harvest = skypilot("runpod", SKY_RUNPOD, "s", "2026-11-20", {})
    assert set(harvest.prices()) == {
        ("1x_A100-80GB_SECURE", "US", "on-demand"),
        ("1x_A40_SECURE", "US", "on-demand"),
        ("1x_A40_SECURE", "US", "spot"),
    }
    assert harvest.instances["1x_A100-80GB_SECURE"].gpu_memory_bytes == 80 * 2**30
    assert harvest.instances["1x_A40_SECURE"].gpu_memory_bytes is None  # "48 MiB" is not believed


def test_a_few_senseless_lines_are_left_out_and_counted() -> None:
    line = "p3.8xlarge,us-east-1,{},32,244.0,4,V100,16.0,False,,nvidia,,x86,{{}}\n"
    good = "".join(line.format(12.24) for _ in range(20))
    for bad in ("0", "700000", "-3", "nan", "inf", "twelve"):
        harvest = gpuhunt("aws", HUNT_HEAD + good + line.format(bad), "s", "2026-11-20", {})
        assert harvest.left_out == 1
        assert list(harvest.prices().values()) == [12.24]


@pytest.mark.parametrize("text", ["", "a,b\n", SKY_AWS.replace("Region", "Place", 1), SKY_AWS[:-1]])
def test_skypilots_lists_are_checked_too(text: str) -> None:
    with pytest.raises(DamagedError):
        skypilot("aws", text, "s", "2026-11-20", {})
