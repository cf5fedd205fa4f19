"""What blocks of the highest rung drew, from counters read by hand as phases begin."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stash.core.records.circumstances import EnergyUse
from stash.measure.host.energy import EnergyCount
from stash.measure.launcher.energy_marks import EnergyMark, sum_energy

ROOT = "only root may"


def mark(rung: str, seconds: float, packages: float | None, gpu: float | None = None) -> EnergyMark:
    read = {"packages": (packages, ROOT), "gpus": (gpu, "not seen")}
    counts = {
        part: EnergyCount(seconds, unknown=why)
        if joules is None
        else EnergyCount(seconds, {"one": joules})
        for part, (joules, why) in read.items()
    }
    return EnergyMark(rung, seconds, counts)


def test_only_blocks_of_the_rung_count_and_not_those_too_short_to_tell() -> None:
    marks = [
        mark("warm-up", 0.0, 0.0),
        mark("solo", 1.0, 50.0),
        mark("warm", 3.0, 150.0),
        mark("solo", 5.0, 350.0),
        mark("warm", 6.0, 400.0),
        mark("warm", 6.2, 500.0),
        mark("", 7.2, 610.0),
    ]
    assert sum_energy(marks, "warm", ("packages",), 0.15) == EnergyUse(
        rung="warm",
        seconds=(2.0, 1.0),
        joules={"packages": (200.0, 110.0)},
        counts={"packages": 1},
        dollars_per_kwh=0.15,
    )


def test_blocks_before_a_gpu_was_seen_are_left_out_for_all_parts() -> None:
    marks = [
        mark("warm", 0.0, 0.0),
        mark("warm", 1.0, 10.0, 100.0),
        mark("", 2.0, 25.0, 400.0),
    ]
    found = sum_energy(marks, "warm", ("packages", "gpus"))
    assert found is not None
    assert found.joules == {"packages": (15.0,), "gpus": (300.0,)}
    assert found.unknown == {}


@pytest.mark.parametrize(
    ("marks", "unknown"),
    [
        ([mark("warm", 0.0, None), mark("", 1.0, None)], {"packages": ROOT, "gpus": "not seen"}),
        ([mark("warm", 0.0, None, 1.0), mark("", 1.0, None, 9.0)], {"packages": ROOT}),
    ],
)
def test_what_was_not_counted_is_unknown_and_says_why(
    marks: Sequence[EnergyMark], unknown: dict[str, str]
) -> None:
    found = sum_energy(marks, "warm", ("packages", "gpus"))
    assert found is not None
    assert found.unknown == unknown
    assert "packages" not in found.joules


def test_counters_that_no_block_had_at_both_ends_are_unknown_and_not_zero() -> None:
    found = sum_energy([mark("warm", 0.0, 1.0), mark("", 0.1, 2.0)], "warm", ("packages",))
    assert found is not None
    assert (found.seconds, found.joules) == ((), {})
    assert found.unknown == {
        "packages": "no block of the rung warm had the counters at both of its ends"
    }
    assert sum_energy([], "warm", ("packages",)) is None
