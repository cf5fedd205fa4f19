"""Training that frameworks drive, and models that are sharded or cut into stages: profiled by the real command."""

import sys

import pytest
from profiled import FULL, profile_of, skipped_rungs

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.core.records.profile import MeshAxis


@pytest.mark.parametrize(
    ("api", "name", "rungs"),
    [
        (2, "fully_shard", ("solo", "node")),
        pytest.param(2, "fully_shard", FULL, marks=pytest.mark.slow),
        pytest.param(1, "FullyShardedDataParallel", FULL, marks=pytest.mark.slow),
    ],
)
def test_sharded_models_are_measured_in_one_launch(run_profile, data, api, name, rungs):
    # GIVEN a sharded model, whose parameters must be gathered in every step
    asked = () if rungs == FULL else ("--rungs", ",".join(rungs))
    profile = profile_of(run_profile(*asked, "sharded.py", data, "--api", api))
    # THEN rungs of the whole job alone are measured, and the profile says why
    assert not profile.settings.isolated
    assert profile.settings.launches == 1
    assert f"{name} shards the model" in skipped_rungs(profile)["solo"]
    assert profile.workload.batch == 16
    # AND every gather and scatter was seen, with the bytes of the whole model, and is a stall
    assert sum("all_gather" in each.kind for each in profile.workload.groups) >= 1
    assert sum("reduce_scatter" in each.kind for each in profile.workload.groups) >= 1
    breakdown = attribute(profile)
    assert breakdown.seen is not None
    assert {"compute", "contention", "interconnect"} <= {stall.name for stall in breakdown.stalls}
    # AND what its operators do was counted all the same, in a step with all that is gathered
    assert (
        profile.workload.flops_per_step
        == sum(row.flops or 0 for row in profile.workload.operators)
        > 0
    )
    assert "cannot be switched off" in profile.workload.unrecorded["ready_steps"]


@pytest.mark.slow
@pytest.mark.parametrize("api", [1, 2])
def test_a_model_sharded_among_one_rank_has_the_rungs_of_any_other(run_profile, data, api):
    # GIVEN a script that shards its model, tried on one device first: it gathers from nobody
    launcher = (
        "--",
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        1,
    )
    profile = profile_of(
        run_profile("--rungs", "solo,warm", *launcher, "sharded.py", data, "--api", api)
    )
    # THEN its stalls are known like those of a model that is whole
    assert {"compute", "prep"} <= {stall.name for stall in attribute(profile).stalls}


@pytest.mark.slow
def test_pipeline_bubbles_are_not_called_interconnect(run_profile, data):
    # GIVEN two stages of 20 ms that take turns: a step waits 20 ms, and nothing of that is exchange
    profile = profile_of(run_profile("--rungs", "solo,crowd,node", "pipeline.py", data))
    # THEN no stall is made of it, and what could not be measured is said to be part of compute
    breakdown = attribute(profile)
    assert [stall.name for stall in breakdown.stalls] == ["compute"]
    missing = {each.name: each for each in breakdown.skipped}
    assert missing["interconnect"].contained_in == "compute"
    assert "recv, send" in missing["contention"].why
    assert "wait for each other's turn" in missing["interconnect"].why
    # AND both stages are one replica
    assert profile.workload.replicas == 1
    assert breakdown.samples_per_step == pytest.approx(4)
    assert profile.workload.collectives_per_step == pytest.approx({"send": 1, "recv": 1}, rel=0.2)


@pytest.mark.slow  # test_replica and test_discovery have such tensors, the stages above one replica of two ranks
@pytest.mark.parametrize("read", ["files", "nothing"])
def test_tensor_parallelism_by_dtensor_gets_no_verdict_about_ranks(run_profile, data, read):
    # GIVEN layers divided between two ranks by parallelize_module; one of them alone would train whole ones
    profile = profile_of(run_profile("dtensor.py", *([data] if read == "files" else [])))
    # THEN what stands is the step of the whole job and what its loader adds, in one launch
    assert profile.settings.launches == 1
    assert not profile.settings.isolated
    assert profile.settings.rungs == (("node", "warm", "cold") if read == "files" else ("node",))
    assert all(
        "the model is divided among ranks" in skipped_rungs(profile)[name]
        for name in ("solo", "crowd")
    )
    # AND samples are those of one replica
    assert profile.workload.replicas == 1
    breakdown = attribute(profile)
    assert {"compute", "interconnect"} <= {stall.name for stall in breakdown.stalls}
    # AND what its functional collectives made ranks wait was seen
    assert {(each.name, each.kind) for each in breakdown.seen.waits} == {("tp", "all_reduce")}
    assert breakdown.samples_per_step == (16 if read == "files" else None)
    # AND the mesh that divides it is named
    assert profile.workload.mesh == (MeshAxis(name="tp", ranks=2, across_nodes=False),)
    assert profile.workload.whole_parameters == 2 * 3072 * 256 + 256 + 3072
    decided = verdict(breakdown, profile)
    assert not any("fewer ranks" in text for text in (decided.text, *decided.next_steps))
