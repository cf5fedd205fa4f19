"""Forecasts of pipelines held against the pipelines they are of."""

import pytest
from profiled import profile_of

from stash.analysis.attribution import attribute
from stash.analysis.pipeline_changes import layers_of
from stash.predict.changes import Alteration
from stash.predict.forecasting import base_of, what_if

pytestmark = pytest.mark.slow


def pipeline(run_profile, *job):
    return profile_of(run_profile("--budget", 12, "scheduled_pipeline.py", *job))


def forecast(profile, **typed):
    return what_if(
        base_of(profile), Alteration(**{name: str(text) for name, text in typed.items()})
    ).breakdown.step_seconds


def test_another_number_of_microbatches_takes_what_was_forecast(run_profile):
    # GIVEN four microbatches of 30 ms a pass and stage, and the same batch cut into eight
    four = pipeline(run_profile, "--microbatches", 4, "--seconds", 0.010)
    eight = pipeline(run_profile, "--microbatches", 8, "--seconds", 0.005)
    # THEN the forecast from the first is what the second takes: by hand 120 ms, 15 of bubble, and what is beside them
    took = attribute(eight).step_seconds
    assert took > 0.135
    assert forecast(four, microbatches=8) == pytest.approx(took, rel=0.05)


def test_a_balanced_split_takes_what_was_forecast(run_profile):
    # GIVEN stages of six and two layers of 4 ms
    uneven = pipeline(run_profile, "--microbatches", 4, "--seconds", 0.004, "--layers", "6,2")
    assert layers_of(uneven.passes) == (6, 2)
    # THEN four and four are most even, and the forecast is what they take
    even = pipeline(run_profile, "--microbatches", 4, "--seconds", 0.004, "--layers", "4,4")
    assert forecast(uneven, split="balanced") == pytest.approx(
        attribute(even).step_seconds, rel=0.03
    )
    assert forecast(uneven, split="balanced") == pytest.approx(forecast(uneven, split="4,4"))
