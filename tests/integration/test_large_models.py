"""Forecasts of pipelines held against the pipelines they are of, loads of experts, tables on ranks, named phases."""

from __future__ import annotations

import pytest
from profiled import RunProfile, measured

from stash.analysis.attribution import attribute
from stash.analysis.bubble import typical_step
from stash.analysis.pipeline_changes import layers_of
from stash.analysis.seen import expert_loads, phases
from stash.core.records.profile import Profile
from stash.predict.changes import changes
from stash.predict.forecasting import base_of, what_if

pytestmark = pytest.mark.slow


def pipeline(run_profile: RunProfile, *job: object) -> Profile:
    return measured(run_profile("--budget", 12, "scheduled_pipeline.py", *job))


def forecast(profile: Profile, **typed: object) -> float:
    return what_if(
        base_of(profile), changes({name: str(text) for name, text in typed.items()})
    ).breakdown.step_seconds


def test_another_number_of_microbatches_takes_what_was_forecast(run_profile: RunProfile) -> None:
    # GIVEN four microbatches of 30 ms a pass and stage, and the same batch cut into eight
    four = pipeline(run_profile, "--microbatches", 4, "--seconds", 0.010)
    eight = pipeline(run_profile, "--microbatches", 8, "--seconds", 0.005)
    # THEN the forecast from the first is what the second takes: by hand 120 ms, 15 of bubble, and what is beside them
    took = attribute(eight).step_seconds
    assert took > 0.135
    assert forecast(four, microbatches=8) == pytest.approx(took, rel=0.05)


def test_the_step_that_a_report_draws_is_as_long_as_the_measured_one_and_idles_as_long(
    run_profile: RunProfile,
) -> None:
    profile = pipeline(run_profile, "--microbatches", 4, "--seconds", 0.010, "--slow", 1)
    breakdown = attribute(profile)
    drawn, found = typical_step(profile, breakdown.rungs[0]), breakdown.seen.bubble
    lost = 0.0 if breakdown.disturbed is None else breakdown.disturbed.time.value  # passes contain it
    took = breakdown.step_seconds
    assert drawn.seconds + found.late == pytest.approx(took + lost, rel=0.03)
    worked = [sum(each.ends - each.begins for each in own) for own in drawn.ranks.values()]
    assert drawn.seconds - sum(worked) / len(worked) == pytest.approx(found.seconds, abs=0.02 * took)


def test_a_balanced_split_takes_what_was_forecast(run_profile: RunProfile) -> None:
    # GIVEN stages of six and two layers of 4 ms
    uneven = pipeline(run_profile, "--microbatches", 4, "--seconds", 0.004, "--layers", "6,2")
    assert layers_of(uneven.passes) == (6, 2)
    # THEN four and four are most even, and the forecast is what they take
    even = pipeline(run_profile, "--microbatches", 4, "--seconds", 0.004, "--layers", "4,4")
    assert forecast(uneven, split="balanced") == pytest.approx(attribute(even).step_seconds, rel=0.03)
    assert forecast(uneven, split="balanced") == pytest.approx(forecast(uneven, split="4,4"))


def test_tables_on_ranks_are_exchanged_and_looked_up(run_profile: RunProfile) -> None:
    profile = measured(run_profile("--nproc-per-node", 2, "--budget", 12, "sharded_tables.py", as_typed=True))
    assert "all_to_all_single" in {use.kind for use in profile.workload.groups}
    # rank 0 looks up its own tables only, for the samples of both
    assert 0 < len(profile.workload.embeddings) < 26
    assert {table.lookups for table in profile.workload.embeddings} == {2 * 128}
    assert all(load.ratio >= 1.0 for load in expert_loads(profile))


def test_phases_that_a_script_names_have_their_time(run_profile: RunProfile) -> None:
    profile = measured(run_profile("--budget", 6, "two_phases.py", as_typed=True))
    breakdown = attribute(profile)
    found = phases(profile, breakdown.rungs[-1])
    assert found == {
        "rollout": pytest.approx(0.03, abs=0.002),
        "train": pytest.approx(0.022, abs=0.004),
    }  # it trains, too
    assert breakdown.step_seconds - sum(found.values()) == pytest.approx(0.01, abs=0.002)
