"""Whether a profile deserves trust, how far it has come, and what more of it would bring."""

from __future__ import annotations

import numpy as np
from breakdowns import CALM
from profile_builder import build, own_launches

from stash.analysis.attribution import attribute
from stash.core.records.profile import Profile


def _noisy(rounds: int, scale: float, seed: int = 1) -> dict[str, list[float]]:
    rng = np.random.default_rng(seed)
    return {
        name: (values[0] * (1 + scale * rng.standard_normal(rounds))).tolist()
        for name, values in CALM.items()
    }


def warnings_of(profile: Profile) -> str:
    return " ".join(attribute(profile).stability.warnings)


def test_steal_time_is_a_warning_with_advice():
    text = warnings_of(build(_noisy(8, 0.003), host={"steal_fraction": 0.12}))
    assert "12%" in text
    assert "dedicated machine" in text


def test_wide_intervals_are_compared_with_the_precision_if_one_was_asked_for():
    profile = build(_noisy(6, 0.05))
    assert "% of the step, and ±2.0% was asked for" in warnings_of(profile)
    decide = profile.settings.model_copy(update={"until_decided": True})
    assert "asked for" not in warnings_of(profile.model_copy(update={"settings": decide}))


def test_no_warning_names_a_budget():
    for rounds in (1, 2, 6):
        assert "--budget" not in warnings_of(build(_noisy(rounds, 0.05)))


def test_warming_up_is_named_only_where_steps_fall_at_the_beginning():
    cold = np.array([1.09, 1.08, 1.06, 1.03, 1.02, 1.015, 1.01, 1.005, 1.0])
    quieter = np.array([1.3] * 6 + [1.0] * 5) + 0.001 * np.arange(11)[::-1]
    for factors, why in (
        (cold, "it was still warming up at first"),
        (quieter, "the machine got quieter"),
    ):
        times = {name: (values[0] * factors).tolist() for name, values in CALM.items()}
        assert f"faster from the first round to the last: {why}" in warnings_of(build(times))


def test_two_speeds_are_a_warning():
    times = {
        name: [values[0] * (1.0 if i % 3 else 1.3) for i in range(9)]
        for name, values in CALM.items()
        if name != "solo"
    }
    assert "The step under crowd takes either 104 ms or 135 ms" in warnings_of(build(times))


def test_replayed_batches_that_take_longer_than_fresh_ones_are_no_silent_stall():
    lengths = _noisy(8, 0.003) | {"warm": [0.115] * 8, "cold": [0.120] * 8}
    text = warnings_of(build(lengths))
    assert "Steps on replayed batches take 25." in text
    assert "profile with batches of one size" in text
    assert "replayed" not in warnings_of(build(_noisy(8, 0.003)))


def test_of_separate_launches_it_is_sets_that_are_too_few():
    assert "Only 2 of the 3 sets of launches" in warnings_of(own_launches(sets=2))
