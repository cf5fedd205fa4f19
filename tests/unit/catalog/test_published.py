"""Reading price lists as they are published: what a line means, and which lines and lists are not believed."""

import pytest
from price_lists import HUNT_HEAD

from stash.catalog.published import parse_gpuhunt

pytestmark = pytest.mark.usefixtures("home")


def test_pods_are_named_by_how_many_gpus_they_have_and_whose_they_are():
    line = "NVIDIA {},{},{},8,117.0,{},{},80.0,False,,nvidia,,x86,{{}}\n"
    pods = [
        ("A100 80GB PCIe", "US-CA-1", 1.64, 1, "A100"),
        ("A100 80GB PCIe", "US-CA-1", 13.12, 8, "A100"),
        ("A100 80GB PCIe", "US", 1.19, 1, "A100"),
        ("RTX 6000 Ada Generation", "US-CA-1", 1.54, 2, "RTX6000"),
    ]
    text = HUNT_HEAD + "".join(line.format(*pod) for pod in pods)
    assert parse_gpuhunt("runpod", text, "s", "2026-11-20", {}).prices() == {
        ("1x_A100-80GB_SECURE", "US-CA-1", "on-demand"): 1.64,
        ("8x_A100-80GB_SECURE", "US-CA-1", "on-demand"): 13.12,
        ("1x_A100-80GB_COMMUNITY", "US", "on-demand"): 1.19,
        ("2x_RTX6000-Ada_SECURE", "US-CA-1", "on-demand"): 1.54,
    }


@pytest.mark.parametrize(
    ("flags", "sold"),
    [
        ("", True),
        ("gcp-a4", True),
        ("lambda-arm", True),
        ("x gcp-dws-calendar-mode", False),
        ("x-cluster", False),
    ],
)
def test_what_is_sold_otherwise_than_by_the_hour_is_no_offer(flags, sold):
    line = "{},us-central1-a,80,224,3968.0,8,B200,192.0,False,,nvidia,{},x86,{{}}\n"
    text = HUNT_HEAD + line.format("usual", "") + line.format("a4-highgpu-8g", flags)
    found = parse_gpuhunt("gcp", text, "s", "2026-11-20", {})
    assert (("a4-highgpu-8g", "us-central1", "on-demand") in found.prices(), found.left_out) == (
        sold,
        0,
    )


@pytest.mark.parametrize("memory", ["nan", "inf", "-1"])
def test_of_a_machine_that_makes_no_sense_no_price_is_taken(memory):
    line = "{},us-east-1,12.24,32,{},4,V100,16.0,False,,nvidia,,x86,{{}}\n"
    good = "".join(line.format(f"good{number}", 244) for number in range(9))
    found = parse_gpuhunt(
        "aws", HUNT_HEAD + good + line.format("bad", memory), "s", "2026-11-20", {}
    )
    assert found.left_out == 1
    assert {name for name, _, _ in found.prices()} == found.instances.keys()
