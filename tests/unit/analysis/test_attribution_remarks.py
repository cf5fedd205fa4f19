"""Figures of one report that seem to contradict each other are explained."""

from __future__ import annotations

from breakdowns import CALM, FETCH, PREP, flat
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.core.measured import Rate
from stash.core.records.profile import Loader, Profile


def notes_of(profile: Profile) -> str:
    return " ".join(attribute(profile).notes)


def test_time_beside_training_is_shown_and_little_of_it_is_not():
    lot, little = ({"warm": {"interrupted_seconds": each}} for each in (0.5, 0.001))
    assert "1.50 s on top of" in notes_of(build(CALM, block_extra=lot))
    assert "part of no step" in notes_of(build(CALM, block_extra=lot))
    assert notes_of(build(CALM, block_extra=little)) == ""


def test_nodes_that_exchange_slower_by_themselves_are_no_worse_conditions():
    assert "over slower routes" in notes_of(build(flat(crowd=0.1, node=0.13, cluster=0.12)))
    assert "worse conditions" in notes_of(build(flat(crowd=0.12, cluster=0.11)))


def _loaded(workers: int, rate: float, times: dict[str, float]) -> Profile:
    rates = tuple(
        Rate(feed="warm", rank=r, round=3, samples=80, seconds=80 / rate) for r in range(2)
    )
    return build(
        flat(**times), rates=rates, workload={"loaders": (Loader(kind="map", workers=workers),)}
    )


def test_loaders_that_are_faster_and_yet_a_prep_stall():
    assert "without workers nothing is prepared while a step trains" in notes_of(
        _loaded(0, 500, PREP)
    )
    assert "side by side, loading and training slow each other down" in notes_of(
        _loaded(2, 500, PREP)
    )
    assert "(1,000 samples/s) than the devices (160.0)" in notes_of(_loaded(2, 500, PREP))
    assert notes_of(_loaded(2, 40, PREP)) == ""  # slower loaders explain themselves
    assert notes_of(_loaded(2, 500, FETCH)) == ""
