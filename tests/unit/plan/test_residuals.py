"""What earlier forecasts turned out to be, given back: by pencil, and what must hold of any residuals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.core.intervals import Interval
from stash.plan.records import PlanFact, StallShare
from stash.plan.residuals import Residual, Residuals, adjustment, before_residuals, calibrated, residual
from stash.predict.cluster import Target
from stash.predict.draws import Draws, intervals
from stash.predict.forecast import Predicted, StallDraws

DRAWS = Draws()
TARGET = Target(name="2 × there", nodes=2, devices=4, backend="nccl")
FORECAST = Interval(value=0.1, low=0.1 / 1.5, high=0.1 * 1.5)
CLAIMED = math.log(1.5) / 1.959964


def turned_out(z: float, machine: str = "a", error: float = 0.0, stall: str = "network") -> Residual:
    """A residual of ``z`` of the forecast's own standard deviations."""
    ratio = z * CLAIMED
    return Residual(stall=stall, origin="data sheet", machine=machine, log_ratio=ratio, claimed=CLAIMED, error=error)


def part(name: str = "network", **changes: object) -> Predicted:
    fields = {"name": name, "seconds": DRAWS.of(name, FORECAST), "origin": "data sheet", **changes}
    return Predicted(**fields)  # type: ignore[arg-type]


def forecast(*parts: Predicted) -> StallDraws:
    return StallDraws(TARGET, parts, (), 512.0)


def given_back(*found: Residual, of: Predicted | None = None) -> np.ndarray:
    drawn = calibrated(forecast(of or part()), Residuals(found=found), DRAWS)
    return drawn.parts[0].seconds


def width(seconds: np.ndarray) -> float:
    (found,) = intervals(np.log(seconds)[None, :])
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low


def test_a_residual_is_the_logarithm_of_what_was_measured_over_the_middle_of_the_forecast() -> None:
    found = residual("network", "data sheet", "2 × there", FORECAST, Interval(value=0.2, low=0.19, high=0.2 / 0.95))
    assert isinstance(found, Residual)
    assert found.log_ratio == pytest.approx(math.log(2))
    assert found.claimed == pytest.approx(CLAIMED)
    assert found.error == pytest.approx(math.log(0.2 / 0.95 / 0.19) / 2 / 1.959964)


@pytest.mark.parametrize(
    ("planned", "measured", "why"),
    [
        (FORECAST, Interval(value=0.1), "one round was measured"),
        (FORECAST, Interval(value=0.001, low=-0.001, high=0.003), "may be zero"),
        (Interval(value=0.001, low=-0.001, high=0.003), Interval(value=0.1, low=0.09, high=0.11), "may be zero"),
    ],
)
def test_what_has_no_ratio_is_told_in_a_sentence(planned: Interval, measured: Interval, why: str) -> None:
    found = residual("fetch", "scaled", "a", planned, measured)
    assert isinstance(found, str)
    assert why in found
    assert "fetch of a" in found


def test_without_residuals_nothing_is_changed() -> None:
    assert adjustment([]) == (0.0, 1.0, 0)
    assert np.array_equal(given_back(), part().seconds)


def test_one_residual_by_pencil() -> None:
    """z = 2: κ 2, μ 2/2; ν 11, 11 σ² = 10/2 + 2²/2 = 7; scale² = 7/11 · 3/2; t₁₁ 2.2010 over t₁₀ 2.2281."""
    found = adjustment([turned_out(2.0)])
    assert found.shift == pytest.approx(1.0)
    assert found.widening == pytest.approx(math.sqrt(7 / 11 * 1.5) * 2.2010 / 2.2281, rel=1e-4)


def test_two_residuals_of_opposite_sign_widen_and_do_not_shift() -> None:
    """z = ±3: κ 3, ν 12, 12 σ² = 5 + 18; scale² = 23/12 · 4/3; t₁₂ 2.1788."""
    found = adjustment([turned_out(3.0, "a"), turned_out(-3.0, "b")])
    assert found.shift == pytest.approx(0.0)
    assert found.widening == pytest.approx(math.sqrt(23 / 12 * 4 / 3) * 2.1788 / 2.2281, rel=1e-4)


def test_the_draws_are_moved_by_so_many_of_their_own_deviations() -> None:
    before, after = part().seconds, given_back(turned_out(2.0))
    assert np.mean(np.log(after)) - np.mean(np.log(before)) == pytest.approx(np.std(np.log(before)))
    assert width(after) / width(before) == pytest.approx(adjustment([turned_out(2.0)]).widening)


def test_residuals_of_one_machine_count_for_one() -> None:
    several = adjustment([turned_out(1.0, "a"), turned_out(2.0, "a"), turned_out(3.0, "a")])
    assert several == adjustment([turned_out(2.0, "a")])
    assert adjustment([turned_out(2.0, "a"), turned_out(2.0, "b")]).shift > several.shift


def test_a_measurement_as_noisy_as_the_forecast_counts_for_half_of_one() -> None:
    """w 1/2, z = 2: κ 3/2, μ = 1/2 · 2 / (3/2)."""
    assert adjustment([turned_out(2.0, error=CLAIMED)]).shift == pytest.approx(2 / 3)


def test_other_stalls_and_other_origins_say_nothing() -> None:
    other = turned_out(2.0).model_copy(update={"origin": "scaled"})
    assert np.array_equal(given_back(turned_out(2.0, stall="fetch"), other), part().seconds)


def test_a_stall_that_may_be_negative_is_moved_in_seconds() -> None:
    noise = part("fetch", seconds=np.linspace(-0.01, 0.03, DRAWS.count))
    after = given_back(turned_out(2.0, stall="fetch"), of=noise)
    assert after.mean() == pytest.approx(noise.seconds.mean() + noise.seconds.std())


def test_a_stall_without_a_spread_gets_one_from_two_machines_on() -> None:
    """Ratios e^0.1 and e^0.3: the mean e^0.2, and t₁ with 0.1414 · √1.5 around it."""
    exact = part(seconds=np.full(DRAWS.count, 0.1), spread_known=False)
    found = [turned_out(0, name).model_copy(update={"log_ratio": r, "claimed": None}) for name, r in
             (("a", 0.1), ("b", 0.3))]  # fmt: skip
    one = calibrated(forecast(exact), Residuals(found=tuple(found[:1])), DRAWS).parts[0]
    assert not one.spread_known
    assert np.array_equal(one.seconds, exact.seconds)
    two = calibrated(forecast(exact), Residuals(found=tuple(found)), DRAWS).parts[0]
    assert two.spread_known
    assert np.median(np.log(two.seconds / 0.1)) == pytest.approx(0.2, abs=0.001)
    quartiles = np.quantile(np.log(two.seconds / 0.1), [0.25, 0.75])
    assert np.diff(quartiles)[0] == pytest.approx(2 * math.sqrt(0.02) * math.sqrt(1.5), rel=0.02)  # t₁: ±1


def test_what_a_stall_was_before_is_among_its_facts_and_found_there() -> None:
    after = calibrated(forecast(part()), Residuals(found=(turned_out(2.0),)), DRAWS).parts[0]
    (was,) = intervals(part().seconds[None, :])
    fact = after.facts[-1]
    assert fact.about == "network before residuals moved it"
    assert fact.quantity.source == "moved by what 1 earlier forecast turned out to be"
    assert (fact.quantity.value, fact.quantity.low, fact.quantity.high) == (was.value, was.low, was.high)
    kept = PlanFact(about=fact.about, unit=fact.unit, **fact.quantity.model_dump())
    (now,) = intervals(after.seconds[None, :])
    share = StallShare(name="network", seconds=now, share=0.1, dollars=now, origin="data sheet", facts=(kept,))
    assert before_residuals(share).value == was.value
    assert before_residuals(share.model_copy(update={"facts": ()})) == now


Z = st.floats(-6, 6)


@given(Z, st.floats(0, 2))
def test_one_residual_never_narrows_below_what_it_can_know(z: float, error: float) -> None:
    """Even an exact one of 0 leaves the machine's own half of the variance, and the shared half's half."""
    least = math.sqrt(10 / 11 * 3 / 4) * 2.2009 / 2.2282
    assert least < adjustment([turned_out(z, error=error)]).widening


@given(st.lists(Z, min_size=1, max_size=12))
def test_a_shift_goes_towards_what_was_seen_and_never_beyond_it(z: list[float]) -> None:
    found = adjustment([turned_out(each, str(number)) for number, each in enumerate(z)])
    mean = sum(z) / len(z)
    assert abs(found.shift) <= abs(mean) + 1e-9
    assert found.shift * mean >= -1e-9


@given(st.floats(0, 5), st.floats(0.1, 3))
def test_a_worse_surprise_never_gives_a_narrower_interval(z: float, more: float) -> None:
    assert adjustment([turned_out(z + more)]).widening > adjustment([turned_out(z)]).widening


@settings(max_examples=25)
@given(st.lists(Z, max_size=5))
def test_draws_keep_their_order_and_their_sign(z: list[float]) -> None:
    before = part().seconds
    after = given_back(*(turned_out(each, str(number)) for number, each in enumerate(z)))
    assert np.array_equal(np.argsort(before), np.argsort(after))
    assert np.all(after > 0)


def coverage(inflated: float, count: int, trials: int = 1000) -> tuple[float, float, float]:
    """Simulated: errors ``inflated`` times as large as forecasts claim, half of the variance shared. Shares of new
    errors inside the interval as forecast and after ``count`` residuals, and how much wider it became."""
    rng, kept, widened = np.random.default_rng(15), np.zeros(2), 0.0
    for _ in range(trials):
        deviation = inflated / math.sqrt(2)
        z = rng.normal(0, deviation) + rng.normal(0, deviation, count + 1)
        change = adjustment([turned_out(each, str(number)) for number, each in enumerate(z[:count])])
        kept += np.abs(z[count] - np.array([0.0, change.shift])) < 1.959964 * np.array([1.0, change.widening])
        widened += change.widening
    before, after = kept / trials
    return float(before), float(after), widened / trials


@pytest.mark.parametrize("count", [1, 3, 10])
def test_honest_forecasts_get_narrower_and_stay_honest(count: int) -> None:
    _, after, widening = coverage(1.0, count)
    assert after > 0.9
    assert widening < 0.9


def test_forecasts_that_were_too_sure_of_themselves_get_wider_and_better() -> None:
    """Not all the way: after ten residuals their own claim still counts for half."""
    before, after, widening = coverage(3.0, 10)
    assert before < 0.6
    assert after > 0.75
    assert widening > 1.3
