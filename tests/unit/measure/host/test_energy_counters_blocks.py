"""What blocks of the highest rung drew, by hand: counters read now and then, each block its share of the seconds."""

import pytest

from stash.core.records.circumstances import EnergyUse
from stash.measure.host.energy_counters import EnergyCount, sum_energy

ROOT = "only root may"
SHORT = "no block of the highest rung was long enough, with readings at both of its ends"


def reading(seconds, packages, gpu=None):
    read = {"packages": (packages, ROOT), "gpus": (gpu, "not seen")}
    return {
        part: EnergyCount(seconds, unknown=why)
        if joules is None
        else EnergyCount(seconds, {"one": joules})
        for part, (joules, why) in read.items()
    }


def test_a_block_gets_its_share_of_each_reading():
    readings = [reading(0.0, 0.0), reading(1.0, 100.0), reading(2.0, 300.0), reading(4.0, 400.0)]
    # half of 100 J, all of 200, a quarter of 100; and half of the last 100
    found = sum_energy(readings, [(0.5, 2.5), (3.0, 4.0)], "warm", ("packages",), 0.15)
    assert found == EnergyUse(
        rung="warm",
        seconds=(2.0, 1.0),
        joules={"packages": (275.0, 50.0)},
        counts={"packages": 1},
        dollars_per_kwh=0.15,
    )


def test_blocks_before_a_gpu_was_seen_are_left_out_for_all_parts():
    readings = [reading(0.0, 0.0), reading(1.0, 10.0, 100.0), reading(2.0, 25.0, 400.0)]
    found = sum_energy(readings, [(0.0, 1.0), (1.0, 2.0)], "warm", ("packages", "gpus"))
    assert found.joules == {"packages": (15.0,), "gpus": (300.0,)}
    assert found.unknown == {}


@pytest.mark.parametrize(
    ("readings", "unknown"),
    [
        ([reading(0.0, None), reading(1.0, None)], {"packages": ROOT, "gpus": "not seen"}),
        ([reading(0.0, None, 1.0), reading(1.0, None, 9.0)], {"packages": ROOT}),
        ([reading(0.0, 5.0, 1.0), reading(1.0, 6.0, 0.0)], {"gpus": SHORT}),
        ([], {"packages": SHORT, "gpus": SHORT}),
    ],
)
def test_what_was_not_counted_is_unknown_and_says_why(readings, unknown):
    found = sum_energy(readings, [(0.0, 1.0)], "warm", ("packages", "gpus"))
    assert found.unknown == unknown
    assert found.joules.keys() == {"packages", "gpus"} - unknown.keys()


@pytest.mark.parametrize("block", [(0.5, 0.55), (0.5, 1.5), (-1.0, 0.5), (3.0, 4.0)])
def test_a_block_too_short_or_without_readings_at_its_ends_is_unknown(
    block,
):
    found = sum_energy([reading(0.0, 1.0), reading(1.0, 2.0)], [block], "warm", ("packages",))
    assert (found.seconds, found.joules, found.unknown) == ((), {}, {"packages": SHORT})
