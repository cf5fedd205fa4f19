"""Joules of a step by hand: the power of blocks times the step; and what a profile says of it."""

from __future__ import annotations

import pytest
from breakdowns import advice_for, flat
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.analysis.usage import gpu_watts, step_energy
from stash.core.records.circumstances import EnergyUse
from stash.core.records.profile import Profile
from stash.report.model_facts import energy_document as document
from stash.report.profile_page import page

TIMES = {"solo": [0.1] * 3, "warm": [0.199, 0.2, 0.201]}
USE = EnergyUse(
    rung="warm",
    seconds=(2.0, 2.0, 4.0),
    joules={"packages": (100.0, 102.0, 198.0), "gpus": (600.0, 606.0, 1194.0)},
    counts={"packages": 2, "gpus": 4},
)


def job(**changes: object) -> Profile:
    energy = USE.model_copy(update=changes)
    return build(TIMES, ranks=1).model_copy(update={"energy": energy})


def test_a_step_takes_the_power_of_its_rungs_blocks_times_its_seconds() -> None:
    profile = job()
    found = step_energy(attribute(profile), profile.energy)
    assert found is not None
    # 400 J and 2,400 J in 8 s: 50 and 300 W, for 0.2 s
    assert found.watts == pytest.approx(350.0)
    assert found.parts == pytest.approx({"packages": 10.0, "gpus": 60.0})
    assert found.joules.value == pytest.approx(70.0)
    # blocks of 350, 354 and 348 W: a spread of 3.06 and 4.303 of it over the root of 3 are 7.6 W, 1.5 J of a step
    half = found.joules.half_width
    assert half is not None
    assert half > 1.5
    assert gpu_watts(profile.energy) == pytest.approx(75.0)


def test_a_block_alone_has_no_interval() -> None:
    profile = job(seconds=(2.0,), joules={"packages": (100.0,)})
    found = step_energy(attribute(profile), profile.energy)
    assert found is not None
    assert found.joules.half_width is None
    assert gpu_watts(profile.energy) is None


@pytest.mark.parametrize("changes", [{"rung": "cold"}, {"seconds": (), "joules": {}}])
def test_energy_of_another_rung_or_none_is_unknown(changes: dict[str, object]) -> None:
    profile = job(**changes)
    assert step_energy(attribute(profile), profile.energy) is None


def details(profile: Profile, chapter: str) -> dict[str, str]:
    shown = page(attribute(profile), advice_for(profile), profile)
    return dict(next((each.facts for each in shown.chapters if each.name == chapter), ()))


def test_the_report_has_one_line_of_it_and_says_what_it_is_of() -> None:
    line = details(job(), "details")["energy"]
    assert "J a step at 350 W" in line
    assert line.endswith("processors 10.0 J and GPUs 60.0 J, nothing else")


def test_what_was_not_counted_is_said_in_the_further_figures() -> None:
    profile = job(seconds=(), joules={}, unknown={"packages": "only root may"})
    assert "energy" not in details(profile, "details")
    assert details(profile, "figures")["energy"] == "packages unknown: only root may"
    found = document(attribute(profile), profile)
    assert found is not None
    assert (found["step"], found["unknown"]) == (None, {"packages": "only root may"})


def test_a_profile_of_before_says_nothing() -> None:
    profile = build(flat(solo=0.1, warm=0.2), ranks=1)
    assert "energy" not in {**details(profile, "details"), **details(profile, "figures")}
    assert document(attribute(profile), profile) is None
