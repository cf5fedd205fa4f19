"""Loops that are more than one training loop: evaluations over the training loader, optimizers that are replaced."""

import pytest
from profiled import profile_of

from stash.analysis.attribution import attribute


@pytest.mark.parametrize(
    "how",
    [
        "no_grad",
        *(
            pytest.param(how, marks=pytest.mark.slow)
            for how in ("inference", "gradients", "within", "update_bn")
        ),
    ],
)
def test_an_evaluation_over_the_training_loader_is_no_part_of_a_step(run_profile, how):
    # GIVEN five steps of 3 ms an epoch, and then 15 ms of evaluation over the same loader
    profile = profile_of(
        run_profile("evaluates_training_data.py", "--how", how, "--seconds", 0.003, budget=2)
    )
    # THEN steps are of 16 samples each
    assert profile.workload.batch == 16
    assert profile.workload.loaders[0].batches_per_step == 1
    assert {samples for block in profile.blocks for samples in block.step_samples} == {16}
    # and what remains of evaluations (they get one batch each) is shown apart
    assert all(block.interrupted_seconds > 0 for block in profile.blocks if block.steps > 5)
    # and the prep stall is what steps waited, which is next to nothing of a step
    breakdown = attribute(profile)
    assert breakdown.by_waits
    assert abs(breakdown.stall("prep").share) < 0.2


@pytest.mark.parametrize("when", ["epoch", pytest.param("fold", marks=pytest.mark.slow)])
def test_a_replaced_optimizer_goes_on_with_the_steps_of_the_job(run_profile, when):
    # GIVEN a new optimizer (and model) every 20 steps WHEN it is profiled THEN it ends well, in one launch
    profile = profile_of(run_profile("replaces_optimizer.py", "--when", when))
    assert profile.settings.launches == 1
    assert {samples for block in profile.blocks for samples in block.step_samples} == {16}
