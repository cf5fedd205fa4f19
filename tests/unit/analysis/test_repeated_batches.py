"""Rounds of a stream all train on its first batches, which may not stand for the rest."""

from __future__ import annotations

import numpy as np
import pytest
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.analysis.repeated_batches import place_error
from stash.core.intervals import student_half_width
from stash.core.records.profile import Loader

LENGTHS = [0.01, 0.03, 0.05, 0.07, 0.01]


def test_places_that_differ_are_a_sample_of_batches():
    assert place_error(np.array([LENGTHS] * 3)) == pytest.approx(
        student_half_width(5, float(np.std(LENGTHS, ddof=1)))
    )


def test_rounds_that_differ_alike_in_all_places_are_no_batches():
    assert place_error(np.outer([1.0, 2.0, 3.0], np.ones(5))) == 0
    noise = np.random.default_rng(0).normal(1.0, 0.1, (200, 5))
    assert place_error(noise) < 0.02  # of places that are alike


@pytest.mark.parametrize("few", [np.ones((1, 5)), np.ones((5, 2))])
def test_too_little_tells_nothing(few):
    assert place_error(few) == 0


@pytest.mark.parametrize(("kind", "wider"), [("iterable", True), ("map", False)])
def test_computes_interval_has_what_other_batches_of_a_stream_may_take(kind, wider):
    steps = (0.034, *LENGTHS)
    found = build(
        {"solo": [0.034] * 4, "warm": [0.034] * 4},
        ranks=1,
        block_extra={"solo": {"step_seconds": steps}, "warm": {"step_seconds": steps}},
        workload={"loaders": (Loader(kind=kind, workers=0),)},
    )
    compute, prep = attribute(found).stalls
    least = student_half_width(5, float(np.std(LENGTHS, ddof=1)))
    assert (compute.time.half_width > least) is wider
    assert prep.time.half_width < least  # on the same batches
