"""The paper's regression: lines that are known, their intervals, and models that were left out."""

import numpy as np
import pytest

from stash.study.regression import ModelStall, regress

SHAPES = ((10, 40e6), (50, 100e6), (100, 60e6), (150, 240e6), (30, 530e6), (60, 50e6))


def models(noise=0.0):
    """Stalls of 1 ms, 10 µs a layer and 0.1 ns a byte."""
    random = np.random.default_rng(0)
    return [
        ModelStall(
            f"model {number}",
            layers,
            size,
            0.001 + 1e-5 * layers + 1e-10 * size + noise * random.normal(),
        )
        for number, (layers, size) in enumerate(SHAPES)
    ]


TRUTH = (0.001, 1e-5, 1e-4)
"""The same, the last a megabyte."""


def fit(of):
    found = regress(of)
    assert found is not None
    return found


def test_a_line_without_noise_is_found_and_predicts_what_it_did_not_see():
    found = fit(models())
    assert [term.value for term in found.terms] == pytest.approx(TRUTH)
    assert found.explained == pytest.approx(1.0)
    assert found.error(models()) == pytest.approx(0.0, abs=1e-9)


def test_intervals_hold_the_truth_and_shrink_with_the_noise():
    wide, narrow = fit(models(noise=1e-3)), fit(models(noise=1e-5))
    for found in (wide, narrow):
        for term, truth in zip(found.terms, TRUTH, strict=True):
            assert term.low <= truth <= term.high
    assert wide.terms[1].half_width > 10 * narrow.terms[1].half_width


def test_a_model_is_judged_by_a_line_through_all_others_and_none_of_its_own_measurements():
    several = models()
    # its own second does not bend the line that judges it
    several[2] = several[2]._replace(seconds=1.0)
    assert fit(several).unseen[2] == pytest.approx(0.001 + 1e-5 * 100 + 1e-10 * 60e6)
    again = models()[0]._replace(seconds=0.05)
    alone, twice = fit(models()), fit([*models(), again])
    assert twice.unseen[0] == pytest.approx(alone.unseen[0])
    assert twice.unseen[-1] == pytest.approx(alone.unseen[0])


def test_as_many_models_as_terms_leave_the_error_unknown():
    found = fit(models()[:3])
    assert found.terms[0].low is None
    assert (found.error(models()[:3]), found.unseen) == (None, (None, None, None))


def test_models_that_do_not_determine_a_line_have_none():
    assert regress(models()[:2] * 3) is None
    assert regress([each._replace(layers=10) for each in models()]) is None
