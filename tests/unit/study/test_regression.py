"""The paper's regression: lines that are known, their intervals, and models that were left out."""

from __future__ import annotations

import numpy as np
import pytest
from profile_builder import build

from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.records.profile import Collective, Gradient, Profile
from stash.predict.draws import Draws
from stash.study.regression import Features, by_the_line, features, regress, terms_known

SHAPES = ((10, 40e6), (50, 100e6), (100, 60e6), (150, 240e6), (30, 530e6), (60, 50e6))


def models(noise: float = 0.0, residual: float = 0.0) -> list[Features]:
    """Stalls of 1 ms, 10 µs a layer, 0.1 ns a byte, and ``residual`` more with residual links (every other model)."""
    random = np.random.default_rng(0)
    return [
        Features(
            name=f"model {number}",
            layers=layers,
            gradient_bytes=size,
            residual=number % 2 == 0,
            batch_norm=True,
            stall=Interval(
                value=0.001 + 1e-5 * layers + 1e-10 * size + residual * (number % 2 == 0) + noise * random.normal()
            ),
        )
        for number, (layers, size) in enumerate(SHAPES)
    ]


def test_a_line_without_noise_is_found_and_predicts_what_it_did_not_see() -> None:
    found = regress(models())
    assert [term.estimate.value for term in found.terms] == pytest.approx([0.001, 1e-5, 1e-10])
    assert found.explained == pytest.approx(1.0)
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_residual_links_are_a_term_if_models_differ_in_them() -> None:
    several = models(residual=0.005)
    assert terms_known(several) == ("constant", "layers", "gradients", "residual")
    found = regress(several, terms_known(several))
    assert found.terms[3].estimate.value == pytest.approx(0.005)


def test_terms_that_are_not_known_of_all_models_are_left_out() -> None:
    several = [each.model_copy(update={"residual": None}) for each in models()[:1]] + models()[1:]
    assert terms_known(several) == ("constant", "layers", "gradients")


def test_terms_that_models_do_not_tell_apart_are_left_out() -> None:
    # ResNets have both, VGGs neither: which of the two costs something is not in six such profiles
    several = [each.model_copy(update={"batch_norm": each.residual}) for each in models()]
    assert terms_known(several) == ("constant", "layers", "gradients", "residual")
    regress(several, terms_known(several))
    assert terms_known(several[:4] * 2) == ("constant", "layers", "gradients")  # nothing would tell how wrong it is


def test_intervals_hold_the_truth_and_shrink_with_the_noise() -> None:
    wide, narrow = regress(models(noise=1e-3)), regress(models(noise=1e-5))
    for found in (wide, narrow):
        for term, truth in zip(found.terms, (0.001, 1e-5, 1e-10), strict=True):
            assert term.estimate.low <= truth <= term.estimate.high
    assert wide.terms[1].estimate.half_width > 10 * narrow.terms[1].estimate.half_width  # type: ignore[operator]


def test_each_model_is_judged_by_a_line_through_all_others() -> None:
    several = models()
    several[2] = several[2].model_copy(update={"stall": Interval(value=1.0)})
    found = regress(several)
    # Its own second does not bend the line that judges it.
    assert found.judged[2].regression == pytest.approx(0.001 + 1e-5 * 100 + 1e-10 * 60e6)


def test_as_many_models_as_terms_leave_the_error_unknown() -> None:
    found = regress(models()[:3])
    assert found.terms[0].estimate.low is None
    assert found.error is None
    assert all(each.regression is None for each in found.judged)


def test_too_few_models_are_refused() -> None:
    with pytest.raises(UserError, match=r"2 different models cannot determine 3 coefficients"):
        regress(models()[:2] * 3)


def test_models_that_do_not_differ_are_refused() -> None:
    with pytest.raises(UserError, match="do not differ in layers, gradients"):
        regress([each.model_copy(update={"layers": 10}) for each in models()])


def test_the_line_predicts_models_that_were_not_profiled() -> None:
    found = regress(models())
    assert by_the_line(found, 20, 1e8, None, None) == pytest.approx(0.001 + 2e-4 + 0.01)
    with_residual = regress(models(), ("constant", "layers", "gradients", "residual"))
    assert by_the_line(with_residual, 20, 1e8, None, None) is None


def profile(exposed: float = 0.012) -> Profile:
    steps = [0.1, 0.101, 0.099]
    gradients = tuple(Gradient(name=str(i), bytes=10**6, ready_seconds=0.02 * i) for i in range(3))
    run = Collective(scope="node", ranks=2, bytes=3 * 10**6, seconds=0.03)
    return build(
        {"solo": steps, "crowd": steps, "node": [step + exposed for step in steps]},
        collectives=(run, run),
        workload={"gradients": gradients, "bucket_bytes": (10**6,) * 3, "name": "small"},
    )


def test_a_profile_s_features_are_its_gradients_and_its_stall() -> None:
    found = features(profile(), Draws())
    assert (found.name, found.layers, found.gradient_bytes) == ("small", 3, 3e6)
    assert found.stall.value == pytest.approx(0.012)


def test_the_timeline_s_prediction_does_not_know_the_stall() -> None:
    first, second = features(profile(0.012), Draws()), features(profile(0.03), Draws())
    # Buckets of 10 ms, ready every 20: the last one.
    assert first.timeline == second.timeline == pytest.approx(0.01, rel=0.01)


def test_one_device_has_no_stall_to_explain() -> None:
    with pytest.raises(UserError, match=r"run\.json has no exchange stall to explain"):
        features(build({"solo": [0.1, 0.1]}, ranks=1), Draws(), source="run.json")


def test_a_profile_without_gradients_is_refused() -> None:
    bare = profile().model_copy(update={"workload": profile().workload.model_copy(update={"gradients": ()})})
    with pytest.raises(UserError, match="does not hold the model's gradients"):
        features(bare, Draws())


def test_a_model_is_left_out_with_all_its_profiles() -> None:
    # The second profile of model 0 waits ten times as long: it must not tell of the first.
    again = models()[0].model_copy(update={"stall": Interval(value=0.05)})
    alone, twice = regress(models()), regress([*models(), again])
    assert twice.judged[0].regression == pytest.approx(alone.judged[0].regression)
    assert twice.judged[-1].regression == pytest.approx(alone.judged[0].regression)
