"""The budget that would narrow an interval, by the spread so far."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from breakdowns import CALM
from profile_builder import build

from stash.analysis.stability import budget_for, more_time, spent_seconds
from stash.core.rounds import increments

PROFILE = build({name: values * 4 for name, values in CALM.items()})
"""12 rounds in 41.8 s of 120."""


def test_half_the_width_takes_four_times_the_budget():
    assert budget_for(PROFILE, 12, 0.02, 0.01) == pytest.approx(
        4 * 41.8, rel=0.15
    )  # Student's quantile falls meanwhile
    assert budget_for(PROFILE, 12, 0.02, 0.02) == 50.0  # 41.8 rounded up


def test_what_it_asks_for_is_enough_where_the_machine_stays_as_it_is():
    rng = np.random.default_rng(7)
    few, asked = [], []
    for _ in range(200):
        half = increments(rng.normal(0.1, 0.01, (6, 1)) * [0.0, 1.0])[0].half_width
        few.append(half)
        rounds = round(budget_for(PROFILE, 6, half, 0.004) / 41.8 * 6)
        asked.append(increments(rng.normal(0.1, 0.01, (rounds, 1)) * [0.0, 1.0])[0].half_width)
    assert np.median(few) > 0.008
    assert np.median(asked) == pytest.approx(0.004, rel=0.25)


def test_after_one_round_it_is_what_five_take():
    one = build({name: values[:1] for name, values in CALM.items()})
    assert budget_for(one, 1, None, 0.0) == 210.0
    assert budget_for(build({name: values[:2] for name, values in CALM.items()}), 2, 0.02, 0.019) == 110.0


def test_beyond_an_hour_it_is_the_machine_that_has_to_change():
    assert budget_for(PROFILE, 12, 0.1, 0.001) is None
    assert more_time(None).startswith("not even --budget 3600 would be enough as it is: stop other work")
    assert more_time(270.0) == "profile again with --budget 270"


def test_a_round_longer_than_the_budget_costs_what_it_took():
    blocks = tuple(replace(b, started=100.0 * b.round) for b in PROFILE.blocks)
    assert spent_seconds(PROFILE) == 41.8
    assert spent_seconds(PROFILE.model_copy(update={"blocks": blocks})) == pytest.approx(1101.76)
