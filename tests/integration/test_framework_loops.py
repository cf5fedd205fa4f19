"""Training that frameworks drive, and models that are sharded or cut into stages: profiled by the real command."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from profiled import COMMUNICATION, FULL, RunProfile, blocks_of, ladder_of, measured, read_from_disk, skipped

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.pipeline_schedule import idle_share
from stash.core.records.profile import MeshAxis


def under_accelerate(free_port: int) -> tuple[object, ...]:
    """Accelerate's own launcher of two ranks; its --cpu starts one process, so its GPU way is taken."""
    accelerate = ("--", "accelerate", "launch", "--multi_gpu", "--num_processes", 2, "--num_machines", 1)
    return (*accelerate, "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", free_port)


PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"


def test_hugging_face_trainer_under_accelerates_launcher(
    run_profile: RunProfile, data: Path, tmp_path: Path, free_port: int
) -> None:
    # GIVEN Trainer, accumulating two batches, evaluating, logging and saving every five steps, for two epochs
    folder, micro = tmp_path / "out", 2
    job = ("hf_trainer.py", data, "--output_dir", folder, "--accumulate", micro)
    profile = ladder_of(run_profile(*under_accelerate(free_port), *job, PATH=PATH))
    # THEN it is measured in one launch, and nothing was saved
    assert not profile.settings.isolated
    assert profile.workload.batch == pytest.approx(8 * micro, rel=0.3)  # it reads ahead, in short blocks
    assert profile.workload.loaders[0].batches_per_step == micro
    assert profile.workload.gradients
    assert not list(folder.glob("**/*.safetensors"))
    assert "transformers" in profile.software
    read_from_disk(profile)


@pytest.mark.slow
def test_accelerate_loop(run_profile: RunProfile, data: Path, free_port: int) -> None:
    # GIVEN a loop under Accelerate that accumulates two batches and gathers the loss of each
    micro = 2
    job = ("accelerate_loop.py", data, "--accumulate", micro)
    profile = ladder_of(run_profile(*under_accelerate(free_port), *job, PATH=PATH))
    # THEN a step is of both batches, and the gathering is counted
    assert not profile.settings.isolated
    assert profile.workload.batch == pytest.approx(16 * micro, rel=0.3)  # it reads ahead, in short blocks
    assert profile.workload.loaders[0].batches_per_step == micro
    assert profile.workload.collectives_per_step["all_gather"] == pytest.approx(micro, rel=0.05)
    read_from_disk(profile)


@pytest.mark.slow
def test_lightning_with_ddp(run_profile: RunProfile, data: Path, tmp_path: Path) -> None:
    # GIVEN Lightning's DDP strategy with validation and checkpoints
    profile = ladder_of(run_profile("lightning_fit.py", data, "--output", tmp_path / "out"))
    assert not profile.settings.isolated
    assert profile.workload.batch == pytest.approx(16, rel=0.3)  # it reads ahead, in short blocks
    assert len(profile.workload.loaders) == 1
    assert not list(tmp_path.glob("**/*.ckpt"))
    read_from_disk(profile)


@pytest.mark.parametrize(
    ("api", "name", "rungs"),
    [
        (2, "fully_shard", ("solo", "node")),
        pytest.param(2, "fully_shard", FULL, marks=pytest.mark.slow),
        pytest.param(1, "FullyShardedDataParallel", FULL, marks=pytest.mark.slow),
    ],
)
def test_sharded_models_get_separate_launches(
    run_profile: RunProfile, data: Path, api: int, name: str, rungs: tuple[str, ...]
) -> None:
    # GIVEN a sharded model, whose parameters must be gathered in every step
    asked = () if rungs == FULL else ("--rungs", ",".join(rungs))
    outcome = run_profile(*asked, "sharded.py", data, "--api", api)
    profile = ladder_of(outcome) if rungs == FULL else measured(outcome)
    assert profile.settings.rungs == rungs
    # THEN every rung had launches of its own, which never switched, and the profile says why
    assert profile.settings.isolated
    assert name in profile.settings.why
    assert profile.settings.launches >= min(4, len(rungs))
    assert profile.workload.batch == 16
    launches = [{block.launch for block in blocks_of(profile, rung)} for rung in rungs if rung in COMMUNICATION]
    assert all(not one & other for one, other in pairwise(launches))
    # AND what its operators do was counted all the same, in a step with all that is gathered
    assert profile.workload.flops_per_step == sum(row.flops or 0 for row in profile.workload.operators) > 0
    assert "cannot be switched off" in profile.workload.unrecorded["ready_steps"]


@pytest.mark.slow
def test_sharded_model_whose_batch_is_divided_by_the_ranks_is_not_compared_with_itself_alone(
    run_profile: RunProfile, data: Path
) -> None:
    # GIVEN a script that divides a global batch: alone it trains twice as many samples as a rank of the whole job
    profile = measured(run_profile("--rungs", "solo,node", "sharded.py", data, "--global-batch", 32))
    # THEN no stall is computed from steps that are not alike, and the report says why
    assert {(each.ranks, each.batch) for each in profile.launches} == {(1, 32), (2, 16)}
    assert profile.settings.rungs == ("node",)
    assert skipped(profile)["solo"].startswith("alone the script trains 32 samples in a step, and 16 on each rank")


@pytest.mark.slow
def test_pipeline_bubbles_are_not_called_interconnect(run_profile: RunProfile, data: Path) -> None:
    # GIVEN two stages of 20 ms that take turns: a step waits 20 ms, and nothing of that is exchange
    profile = measured(run_profile("--rungs", "solo,crowd,node", "pipeline.py", data))
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


@pytest.mark.slow
def test_a_pipelines_schedule_is_found(run_profile: RunProfile, data: Path) -> None:
    # GIVEN two stages of torch.distributed.pipelining with eight microbatches
    profile = measured(run_profile("scheduled_pipeline.py", data))
    # THEN its schedule is known, and what it must leave idle
    found = profile.workload.pipeline
    assert found is not None
    assert (found.name, found.stages, found.ranks, found.microbatches) == ("Schedule1F1B", 2, 2, 8)
    assert idle_share(found) == pytest.approx(1 / 9)
    assert profile.workload.whole_parameters is None


@pytest.mark.slow  # test_replica and test_discovery have such tensors, the stages above one replica of two ranks
@pytest.mark.parametrize("read", ["files", "nothing"])
def test_tensor_parallelism_by_dtensor_gets_no_verdict_about_ranks(
    run_profile: RunProfile, data: Path, read: str
) -> None:
    # GIVEN layers divided between two ranks by parallelize_module; one of them alone would train whole ones
    profile = measured(run_profile("dtensor.py", *([data] if read == "files" else [])))
    # THEN what stands is the step of the whole job and what its loader adds, in one launch
    assert profile.settings.launches == 1
    assert not profile.settings.isolated
    assert profile.settings.rungs == (("node", "warm", "cold") if read == "files" else ("node",))
    assert all("the model is divided among ranks" in skipped(profile)[name] for name in ("solo", "crowd"))
    # AND samples are those of one replica
    assert profile.workload.replicas == 1
    breakdown = attribute(profile)
    assert {stall.name for stall in breakdown.stalls} <= {"compute", "prep", "fetch"}
    assert breakdown.samples_per_step == (16 if read == "files" else None)
    # AND the mesh that divides it is named
    assert profile.workload.mesh == (MeshAxis(name="tp", ranks=2, across_nodes=False),)
    assert profile.workload.whole_parameters == 2 * 3072 * 256 + 256 + 3072
    decided = verdict(breakdown, profile)
    assert not any("fewer ranks" in text for text in (decided.text, *decided.next_steps))
