"""How long machines live: laws worked by hand, which is taken, and that a bathtub is never taken as memoryless."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stash.core.units import parse_interruptions
from stash.spot.records.risks import InterruptionBand
from stash.spot.risk.lifetimes import (
    HOUR,
    Gang,
    LifeLaw,
    Memoryless,
    ObservedLives,
    WatchedLife,
    WeibullLife,
    kaplan_meier,
    law_of,
    law_of_band,
    refusal,
    runs_of,
    weibull_of,
)


def lives(seconds: list[float], revoked: list[bool]) -> ObservedLives:
    return ObservedLives(np.array(seconds, dtype=float), np.array(revoked))


def bathtub(count: int, seed: int) -> ObservedLives:
    """As GCP's preemptible machines: F(t) = A (1 − e^(−t/τ₁) + e^((t − b)/τ₂)) (Kadupitiya et al., HPDC 2020)."""
    hours = np.linspace(0, 24, 10_001)
    shares = 0.45 * (1 - np.exp(-hours / 1.0) + np.exp((hours - 24) / 0.8))
    drawn = np.interp(np.random.default_rng(seed).random(count), shares / shares[-1], hours) * HOUR
    return ObservedLives(np.maximum(drawn, 1.0), np.ones(count, dtype=bool))


def test_kaplan_and_meier_worked_by_hand() -> None:
    # 5 at risk, 1 revoked at 1 h: 4/5; one censored at 2 h; 3 at risk at 3 h: 4/5 · 2/3; at 4 h · 1/2; one is left
    found = kaplan_meier(lives([1, 2, 3, 4, 6], [True, False, True, True, False]))
    assert found.times.tolist() == [1, 3, 4]
    assert found.left == pytest.approx([0.8, 0.8 * 2 / 3, 0.8 * 2 / 3 / 2])
    assert found.survival(np.array([0.5, 1.0, 3.5])) == pytest.approx([1, 0.8, 0.8 * 2 / 3])
    assert found.rate == pytest.approx(3 / 16)  # three revocations in 16 hours of being there
    beyond = float(found.survival(np.array([4 + 16 / 3]))[0])
    assert beyond == pytest.approx(0.8 / 3 * math.exp(-1))
    assert found.drawn(np.array([0.9, 0.8, 0.79, 0.3])) == pytest.approx([1, 1, 3, 4])
    assert found.mean == pytest.approx(1 + 2 * 0.8 + 1 * 0.8 * 2 / 3 + 0.8 / 3 * 16 / 3)


def test_a_record_of_what_could_be_had_tells_lives_of_each_machine_in_turn() -> None:
    found = runs_of([2, 2, 1, 0, 3, 3], 600, 2)
    # The first machine: ticks 0 to 2, then 4 to 5 and on; the second: ticks 0 and 1, then 4 to 5 and on.
    assert found.seconds.tolist() == [1800, 1200, 1200, 1200]
    assert found.revoked.tolist() == [True, False, True, False]
    assert found.rate == pytest.approx(2 / 5400)
    assert not len(runs_of([0, 0], 600, 2).seconds)


@pytest.mark.parametrize("seed", range(4))
def test_a_bathtub_is_never_taken_as_memoryless(seed: int) -> None:
    chosen = law_of(bathtub(60, seed))
    assert chosen.law.name == "Kaplan-Meier"
    assert "refuse that age does not matter" in chosen.why


def test_a_law_is_refused_about_as_often_as_it_should_be_where_it_is_true() -> None:
    draw = np.random.default_rng(5)
    refused = 0
    for _ in range(200):
        lived = draw.exponential(5 * HOUR, 60)
        seen = ObservedLives(np.minimum(lived, 8 * HOUR), lived < 8 * HOUR)
        refused += refusal(seen, Memoryless(seen.rate), 1) < 0.05
    assert 2 <= refused <= 24  # 10 expected; outside once in 10⁴


def test_weibull_is_taken_where_it_holds_and_says_who_is_revoked_more() -> None:
    lived = 5 * HOUR * np.random.default_rng(2).weibull(0.5, 300)
    chosen = law_of(ObservedLives(lived, np.ones(300, dtype=bool)))
    assert isinstance(chosen.law, WeibullLife)
    assert chosen.law.shape == pytest.approx(0.5, rel=0.15)
    assert "the young are revoked more" in chosen.why


def test_the_likeliest_weibull_law_makes_its_equations_true() -> None:
    # Two lives of 1 and e, both revoked: (ln 1 + e^k) / (1 + e^k) − 1 / k = 1/2, so e^k (k − 2) = k + 2.
    found = weibull_of(lives([1, math.e], [True, True]))
    assert math.exp(found.shape) * (found.shape - 2) == pytest.approx(found.shape + 2)
    assert found.scale**found.shape == pytest.approx((1 + math.exp(found.shape)) / 2)
    fitted = stats.weibull_min.fit(stats.CensoredData.right_censored([5, 7, 9, 20], [0, 0, 1, 0]), floc=0)
    censored = weibull_of(lives([5, 7, 9, 20], [True, True, False, True]))
    assert (censored.shape, censored.scale) == (
        pytest.approx(fitted[0], rel=1e-3),
        pytest.approx(fitted[2], rel=1e-3),
    )


def test_few_revocations_and_none_are_said_to_tell_little() -> None:
    few = law_of(lives([HOUR] * 4, [True] * 4))
    assert few.law == Memoryless(1 / HOUR)
    assert "too few" in few.why
    none = law_of(lives([10 * HOUR] * 10, [False] * 10))
    assert isinstance(none.law, Memoryless)
    assert none.law.rate * HOUR == pytest.approx(math.log(20) / 100)  # e^(−rate · 100 h) = 5 %
    assert "none was revoked in 100 h" in none.why


def test_a_band_counts_with_its_upper_end() -> None:
    chosen = law_of_band(InterruptionBand(low=0.1, high=0.2))
    assert chosen.law.mean == pytest.approx(5 * HOUR)
    assert chosen.why == "stated: 0.1 an hour to 0.2 an hour; taken as memoryless at the upper end"
    low, high = parse_interruptions("5-10%/month")
    assert "stated: 5% a month to 10% a month;" in law_of_band(InterruptionBand(low=low, high=high)).why


LAWS: list[LifeLaw] = [
    Memoryless(1 / HOUR),
    WeibullLife(0.6, HOUR),
    WeibullLife(3.0, HOUR),
    kaplan_meier(bathtub(200, 1)),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.name} {law.mean:.0f}")
def test_what_is_drawn_has_the_law_s_survival_and_mean(law: LifeLaw) -> None:
    drawn = law.drawn(1 - np.random.default_rng(1).random(40_000))
    for age in (0.2 * HOUR, HOUR, 3 * HOUR):
        share = float(law.survival(np.array([age]))[0])
        error = math.sqrt(max(share * (1 - share), 1e-4) / len(drawn))
        assert abs((drawn > age).mean() - share) < 4.5 * error
    assert drawn.mean() == pytest.approx(law.mean, abs=4.5 * drawn.std() / 200)


@settings(max_examples=40, deadline=None)
@given(
    watched=st.lists(st.tuples(st.floats(1, 1e6), st.booleans()), min_size=1, max_size=60),
    uniforms=st.lists(st.floats(1e-9, 1), min_size=1, max_size=9),
)
def test_survival_falls_and_draws_are_positive_whatever_was_watched(
    watched: list[tuple[float, bool]], uniforms: list[float]
) -> None:
    law = law_of(lives([seconds for seconds, _ in watched], [gone for _, gone in watched])).law
    ages = np.array([0, 1, 10, 1e3, 1e5, 1e7])
    left = law.survival(ages)
    assert left[0] <= 1
    assert (np.diff(left) <= 1e-12).all()
    assert (left >= 0).all()
    drawn = law.drawn(np.sort(np.array(uniforms)))
    assert (drawn >= 0).all()
    assert (np.diff(drawn) <= 0).all()
    assert law.mean > 0


def test_a_gang_lives_until_the_first_is_revoked() -> None:
    memoryless = Gang(((Memoryless(1 / HOUR), 3), (Memoryless(2 / HOUR), 1)), shocks=1 / HOUR)
    assert memoryless.rate == pytest.approx(6 / HOUR)
    assert memoryless.mean == pytest.approx(HOUR / 6)
    # The least of four Weibull lives of one shape is Weibull with scale / 4^(1/shape).
    aging = Gang(((WeibullLife(2.0, HOUR), 4),))
    assert aging.rate is None
    assert aging.mean == pytest.approx(WeibullLife(2.0, HOUR / 2).mean, rel=1e-6)
    drawn = aging.drawn(np.random.default_rng(1), 20_000)
    assert drawn.mean() == pytest.approx(aging.mean, rel=0.02)
    watched = kaplan_meier(bathtub(100, 3))
    assert isinstance(watched, WatchedLife)
    gang = Gang(((watched, 2),), shocks=0.1 / HOUR)
    assert gang.drawn(np.random.default_rng(2), 40_000).mean() == pytest.approx(gang.mean, rel=0.03)
