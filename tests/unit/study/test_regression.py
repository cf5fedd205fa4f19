"""The paper's regression: lines that are known, their intervals, and models that were left out."""

from __future__ import annotations

import numpy as np
import pytest

from stash.core.errors import UserError
from stash.study.regression import ModelStall, regress

SHAPES = ((10, 40e6), (50, 100e6), (100, 60e6), (150, 240e6), (30, 530e6), (60, 50e6))


def models(noise: float = 0.0) -> list[ModelStall]:
    """Stalls of 1 ms, 10 µs a layer and 0.1 ns a byte."""
    random = np.random.default_rng(0)
    return [
        ModelStall(f"model {number}", layers, size, 0.001 + 1e-5 * layers + 1e-10 * size + noise * random.normal())
        for number, (layers, size) in enumerate(SHAPES)
    ]


def test_a_line_without_noise_is_found_and_predicts_what_it_did_not_see() -> None:
    found = regress(models())
    assert [term.value for term in found.terms] == pytest.approx([0.001, 1e-5, 1e-10])
    assert found.explained == pytest.approx(1.0)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.seconds(20, 1e8) == pytest.approx(0.001 + 2e-4 + 0.01)


def test_intervals_hold_the_truth_and_shrink_with_the_noise() -> None:
    wide, narrow = regress(models(noise=1e-3)), regress(models(noise=1e-5))
    for found in (wide, narrow):
        for term, truth in zip(found.terms, (0.001, 1e-5, 1e-10), strict=True):
            assert term.low <= truth <= term.high
    assert wide.terms[1].half_width > 10 * narrow.terms[1].half_width  # type: ignore[operator]


def test_each_model_is_judged_by_a_line_through_all_others() -> None:
    several = models()
    several[2] = several[2]._replace(seconds=1.0)
    # Its own second does not bend the line that judges it.
    assert regress(several).unseen[2] == pytest.approx(0.001 + 1e-5 * 100 + 1e-10 * 60e6)


def test_as_many_models_as_terms_leave_the_error_unknown() -> None:
    found = regress(models()[:3])
    assert found.terms[0].low is None
    assert (found.error, found.unseen) == (None, (None, None, None))


def test_too_few_models_are_refused() -> None:
    with pytest.raises(UserError, match=r"2 different models cannot determine 3 coefficients"):
        regress(models()[:2] * 3)


def test_models_that_do_not_differ_are_refused() -> None:
    with pytest.raises(UserError, match="do not differ in layers, gradients"):
        regress([each._replace(layers=10) for each in models()])


def test_a_model_is_left_out_with_all_its_measurements() -> None:
    # The second measurement of model 0 waits ten times as long: it must not tell of the first.
    again = models()[0]._replace(seconds=0.05)
    alone, twice = regress(models()), regress([*models(), again])
    assert twice.unseen[0] == pytest.approx(alone.unseen[0])
    assert twice.unseen[-1] == pytest.approx(alone.unseen[0])
