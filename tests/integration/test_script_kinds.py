"""Every kind of training script people write, unmodified, profiled by the real command on two gloo ranks.

A launch takes most of a test's time, so each script combines what scripts have in common with few others.
"""

import json
import signal
import time
from collections import Counter

import pytest
import torch
from profiled import (
    COMMUNICATION,
    FILES,
    FULL,
    blocks_of,
    ladder_of,
    profile_of,
    read_from_disk,
    skipped_rungs,
)
from runs import PATIENCE

from stash.analysis.attribution import attribute


def test_a_plain_ddp_loop_in_a_package_whose_options_others_have_too(start, data, tmp_path):
    # GIVEN a package's module with relative imports and options of the same names as Stash's, and as torchrun's begin
    theirs = tmp_path / "theirs.json"
    options = ("--lr", "0.1", "-o", theirs, "--budget", "77", "--isolate")
    for_torchrun = ("--log", "x", "--max", "9", "--no", "--local", "y")
    run = start("--nproc-per-node", 2, "-m", "pack.training", data, *options, *for_torchrun)
    listening = set()
    while run.popen.poll() is None:
        listening.update(run.list_sockets())
        time.sleep(0.5)
    profile = ladder_of(run.end())
    # THEN the job got its own, and Stash kept its own
    got = json.loads(theirs.read_text())
    assert got == {
        "data": str(data),
        "lr": 0.1,
        "output": str(theirs),
        "budget": 77,
        "isolate": True,
        "log": "x",
        "max": 9,
        "no": True,
        "local": "y",
    }
    assert profile.settings.budget_seconds == 1
    # both files lie elsewhere
    kept = (
        "…",
        "--lr",
        "0.1",
        "-o",
        "…",
        "--budget",
        "77",
        "--isolate",
    )
    kept += ("--log", "…", "--max", "9", "--no", "--local", "…")
    assert profile.workload.command == ("-m", "pack.training", *kept)
    # AND nobody else could speak to it, at any time
    assert len(listening) >= 3, listening
    assert {address for address, _, _ in listening} <= {"127.0.0.1", "::1"}, listening
    # AND all rungs that can differ on one machine are measured in one launch, and the workload is known
    assert profile.settings.launches == 1
    assert not profile.settings.isolated
    workload = profile.workload
    assert workload.batch == 16
    assert workload.parameter_bytes == workload.parameters * 4
    assert len(workload.gradients) == 8
    assert sum(gradient.bytes for gradient in workload.gradients) == workload.parameter_bytes
    assert sum(workload.bucket_bytes) == workload.parameter_bytes
    assert workload.precision == "float32"
    assert workload.flops_per_step > 1e6
    assert workload.sample_bytes == pytest.approx(3 * 32 * 32 * 4, rel=0.01)
    # the page that a file of 3200 bytes lies in
    assert workload.sample_disk_bytes == pytest.approx(4096, rel=0.25)
    assert workload.dataset_bytes == pytest.approx(FILES * 3 * 32 * 32, rel=0.1)
    assert workload.collectives_per_step == {}
    (loader,) = workload.loaders
    assert (loader.kind, loader.workers, loader.batches_per_step, loader.samples) == (
        "map",
        0,
        1,
        FILES,
    )
    read_from_disk(profile)
    assert all(block.samples == block.steps * 16 for block in profile.blocks)
    assert {rate.feed for rate in profile.rates} == {"warm", "cold"}
    assert {collective.scope for collective in profile.collectives} == {"node"}
    # AND the facts that predictions need
    assert sum(row.flops or 0 for row in workload.operators) == workload.flops_per_step
    assert {"aten.convolution", "aten.convolution_backward"} <= {
        row.operator for row in workload.operators
    }
    assert tuple(bucket.bytes for bucket in workload.buckets) == workload.bucket_bytes
    assert {name for bucket in workload.buckets for name in bucket.gradients} == {
        g.name for g in workload.gradients
    }
    assert workload.optimizer_bytes == 0  # plain SGD keeps nothing
    assert {times.feed for times in profile.workers} == {"warm", "cold"}
    assert all(seconds > 0 for times in profile.workers for seconds in times.seconds)
    assert [held.rank for held in profile.memory] == [0, 1]
    assert all(held.resident_bytes > 2**20 for held in profile.memory)


def test_batches_and_flags_that_one_rank_sends_are_never_switched_off(run_profile):
    # GIVEN batches that rank 0 makes in 32 ms and broadcasts
    profile = profile_of(run_profile("sent_batches.py", budget=3))
    # THEN all ranks train without exchanging gradients, none by itself, and what batches take is known
    assert {block.rung for block in profile.blocks} >= {"crowd", "node", "warm"}
    assert "(broadcast, broadcast_object_list)" in skipped_rungs(profile)["solo"]
    assert attribute(profile).stall("prep").seconds == pytest.approx(0.035, abs=0.012)


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["fp16", "powersgd"])
def test_accumulation_hooks_collectives_validation_and_checkpoints(
    run_profile, data, tmp_path, hook
):
    # GIVEN four backward passes per step, of which three exchange nothing, a communication hook of the user's,
    # collectives that fail where ranks are not at the same step, a sanity check before the first step, a validation
    # loop after every twenty, and a good checkpoint of an earlier run, which the script replaces in every fifth
    good = tmp_path / "checkpoint.pt"
    torch.save({"step": -1, "model": {}}, good)
    profile = ladder_of(run_profile("trimmings.py", data, tmp_path, "--hook", hook, budget=2))
    # THEN a step is an optimizer step, of four batches of the training loader, and scope was switched in one launch
    assert not profile.settings.isolated
    (loader,) = profile.workload.loaders
    assert loader.batches_per_step == 4
    assert profile.workload.batch == 16
    assert all(block.samples == block.steps * 16 for block in profile.blocks)
    # AND the hook is known by name, and what the exchange would take without its bytes
    assert profile.workload.exchange_hook.lower().startswith(hook)
    assert all(run.latency_seconds > 0 for run in profile.collectives)
    # AND only parameters that got a gradient are listed; PowerSGD's model has no branch of its own
    assert len(profile.workload.gradients) == (10 if hook == "fp16" else 8)
    assert not any("unused" in gradient.name for gradient in profile.workload.gradients)
    # AND the collectives of script and hook are counted
    counts = profile.workload.collectives_per_step
    assert counts["all_gather"] == 1.0
    assert counts["all_reduce"] >= 2.0
    assert 0 < counts["barrier"] < 1  # in every second step
    # AND validation, 0.2 s in every twentieth step, is no part of a step
    steps = [seconds for block in profile.blocks for seconds in block.step_seconds]
    assert sum(seconds > 0.2 for seconds in steps) < len(steps) / 40
    # AND the profile says that it kept the script from saving, and no drifted model is on disk
    assert any("checkpoint" in note for note in profile.notes)
    assert not (tmp_path / "final.pt").exists()
    assert not list(tmp_path.glob("*.tmp"))
    assert torch.load(good)["step"] <= 30, (
        "only warm-up steps, taken while replicas were equal, may be saved"
    )


@pytest.mark.slow
def test_two_loaders_of_emptied_dictionaries_and_of_a_stream_with_workers(run_profile, data):
    # GIVEN batches of 12 labelled pictures (by a batch sampler without a length) and 16 unlabelled ones in every step
    profile = ladder_of(run_profile("odd_loaders.py", data))
    # THEN both are replayed, as they were before the script emptied and scaled them
    stream, mapped = sorted(profile.workload.loaders, key=lambda loader: loader.kind)
    assert (stream.kind, stream.workers, stream.samples) == ("iterable", 2, None)
    assert (stream.prefetch_factor, stream.persistent_workers) == (2, True)
    assert stream.startup_seconds > 0
    assert (mapped.kind, mapped.workers) == ("map", 0)
    # an epoch of few steps ends after one more of the labelled
    assert 28 <= profile.workload.batch <= 28 + 12
    assert all(block.fetch_seconds > 0 for block in blocks_of(profile, "warm"))
    read_from_disk(profile)


@pytest.mark.slow
def test_update_by_hand_of_a_watched_loader(run_profile, data):
    # GIVEN a hand-written loader in stash.loader(…), no optimizer at all, and two backward passes for each update
    profile = ladder_of(run_profile("by_hand.py", data))
    # THEN a step is an update, said to be judged by the backward passes, and ranks could step alone
    assert not profile.settings.isolated
    assert profile.workload.batch == 8 * 2
    assert profile.workload.parameters > 0
    assert any("2 backward passes" in note and "stash.step()" in note for note in profile.notes)
    # AND the loader gets data rungs
    assert [loader.kind for loader in profile.workload.loaders] == ["watched"]
    assert all(
        block.resident is not None and block.resident < 0.1 for block in blocks_of(profile, "cold")
    )


@pytest.mark.slow
def test_script_that_spawns_ranks_which_average_gradients_of_random_batches_by_hand(
    run_profile, tmp_path, free_port
):
    # GIVEN mp.spawn in the script, without any loader, and without DDP
    marker = tmp_path / "went-on"
    profile = ladder_of(run_profile("spawn.py", marker, free_port), COMMUNICATION)
    # THEN every rank was reached and the parent did not go on as if the model were trained
    assert {rank.local_rank for rank in profile.ranks} == {0, 1}
    assert not marker.exists()
    # AND the data rungs are skipped with what to do about it
    assert "stash.loader" in skipped_rungs(profile)["warm"]
    assert "stash.loader" in skipped_rungs(profile)["cold"]
    assert profile.workload.loaders == ()
    assert profile.workload.batch is None
    # AND each parameter's all_reduce is seen, and gradients are known
    assert profile.workload.collectives_per_step == {"all_reduce": 8.0}
    assert len(profile.workload.gradients) == 8


def test_usual_recipe_of_mixed_precision_normalisation_and_a_schedule(run_profile, data):
    # GIVEN a scaler whose first steps overflow, buffers that DDP broadcasts before every forward, epochs of one
    # batch, and OneCycleLR for 12 steps in all, in a profile that takes more
    profile = ladder_of(run_profile("recipe.py", data, budget=4))
    # THEN a second launch measures them, whose loader does not end
    assert profile.settings.launches == 2
    assert profile.workload.batch == 4
    assert profile.workload.precision == "float32"
    assert sum(block.steps for block in profile.blocks if block.rank == 0) > 12
    # AND blocks go on from epoch to epoch
    assert max(block.steps for block in profile.blocks) > 1
    read_from_disk(profile)


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param("break", marks=pytest.mark.slow), "range"])
def test_loop_that_stops_by_itself_is_started_again(start, data, tmp_path, how):
    # GIVEN what many scripts do in a quick trial, a hundred steps of some 10 ms, and then the model is saved
    model = tmp_path / "final.pt"
    run = start(
        "stops_early.py", data, model, "--steps", 100, "--how", how, noise=0.05, budget=PATIENCE
    )
    # WHEN it was measured until after it had to be started again
    run.wait_for("round 1 done")
    before = {rank.pid for rank in run.ranks().values()}
    run.wait_until(
        lambda: (now := {rank.pid for rank in run.ranks().values()}) and not now & before
    )
    rounds = run.stderr_text().count(" done (")
    run.wait_until(lambda: run.stderr_text().count(" done (") > rounds)
    run.popen.send_signal(signal.SIGINT)
    outcome = run.end()
    # THEN the rounds of all launches are kept, and the model is not saved
    profile = outcome.profile
    assert profile is not None, outcome.stderr
    assert profile.settings.rungs == FULL
    assert any("started again" in note for note in profile.notes)
    assert len({block.launch for block in profile.blocks}) > 1
    blocks = Counter((block.round, block.rung, block.rank) for block in profile.blocks)
    assert max(blocks.values()) == 1, "rounds of different launches must not share a number"
    # (on a machine so slow that an epoch is over while the first launch still warms up, that one was plain training)
    measured_from_the_first = min(block.launch for block in profile.blocks) == 0
    assert not (model.exists() and measured_from_the_first)


def test_checkpoints_of_the_warm_up_are_gone_afterwards(run_profile, tmp_path):
    # GIVEN a script that saves after each short epoch, by a library and by itself, and resumes from what it finds
    resuming = (
        "import os, pickle, torch\n"
        "os.makedirs('runs', exist_ok=True)\n"
        "data = torch.utils.data.TensorDataset(torch.randn(80, 8))\n"
        "model = torch.nn.Linear(8, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "assert not os.path.exists('runs/last.pt'), 'resumed'\n"
        "for epoch in range(10_000):\n"
        "    for (batch,) in torch.utils.data.DataLoader(data, batch_size=16):\n"
        "        model(batch).mean().backward()\n"
        "        optimizer.step()\n"
        "    torch.save(model.state_dict(), 'runs/draft.pt')\n"
        "    os.replace('runs/draft.pt', 'runs/last.pt')\n"
        "    with open('metrics.pkl', 'wb') as file:\n"
        "        pickle.dump(epoch, file)\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    (work / "resume.py").write_text(resuming)
    profile = profile_of(run_profile("resume.py", folder=work, as_typed=True))
    # THEN what the library saved is gone, the rest is named, and both are said
    assert sorted(path.name for path in work.iterdir()) == ["metrics.pkl", "resume.py"]
    assert any(note.startswith("no checkpoint is kept") for note in profile.notes)
    assert "metrics.pkl" in profile.left_files
