"""Short scripts in the style of what public projects do with their loops, loaders and files, profiled as they are."""

import hashlib
import os
import signal

import pytest
from profiled import ZOO, profile_of
from runs import PATIENCE


def checksums(folder):
    """Content and time of every file under ``folder``."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime,
        )
        for path in files
    }


@pytest.fixture
def theirs(tmp_path):
    """What an earlier, good run has left."""
    folder = tmp_path / "theirs"
    names = (
        "last.pt",
        "plain.pt",
        "best.pt",
        "weights.npy",
        "state.pkl",
        "metrics.json",
        "log.csv",
        "metrics.txt",
    )
    for name in (*names, "checkpoint-1/model.bin", "checkpoint-2/model.bin"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 100)
        os.utime(path, (1e9, 1e9))
    return folder


def test_no_file_that_was_there_before_is_another_one_afterwards(start, theirs):
    # GIVEN a script that saves in every way, over the files of a good run, after every epoch
    before = checksums(theirs)
    # WHEN it is profiled for some epochs
    run = start("saves.py", "--out", theirs, folder=ZOO, budget=PATIENCE, noise=0.1)
    run.wait_for("round 1 done")
    saved = len(list(theirs.glob("epoch-*.pt")))
    run.wait_until(lambda: len(list(theirs.glob("epoch-*.pt"))) > saved)
    run.popen.send_signal(signal.SIGINT)
    outcome = run.end()
    # THEN every file is as it was, those that were removed too, and the report names them and the new ones
    after = checksums(theirs)
    assert {name: after.get(name) for name in before} == before
    assert outcome.profile is not None, outcome.stderr
    notes = outcome.profile.notes
    (restored,) = [note for note in notes if "put back as before" in note]
    assert "wrote to or removed 9 files" in restored, (
        "all but metrics.txt: plain.pt was written in the first epoch"
    )
    assert any("epoch-" in name for name in outcome.profile.left_files)
    assert not list(theirs.parent.rglob(".kept-by-stash-*"))


@pytest.mark.slow  # evaluations over the training loader end as many short epochs
@pytest.mark.parametrize(
    ("script", "epoch", "budget"),
    [
        ("epochs.py", 20, 2),
        ("dropped_iterator.py", 10, 2),
        ("remade_loader.py", 20, 2),
        ("remade_loader.py", 20, 20),  # first steps as typed pass an epoch's end
        ("infinite_loader.py", 20, 2),
    ],
)
def test_one_launch_runs_the_ladder_through_many_short_epochs(
    run_profile, theirs, script, epoch, budget
):
    # GIVEN epochs shorter than a round, counted by the script, with validation, saving and waiting between them
    arguments = ("--out", theirs, "--epochs", 5000) if script == "epochs.py" else ()
    # WHEN it is profiled
    profile = profile_of(run_profile(script, *arguments, folder=ZOO, budget=budget, noise=0.1))
    # THEN they are one training, of one loader, started once
    assert profile.settings.launches == 1
    assert len(profile.workload.loaders) == 1
    assert {block.rung for block in profile.blocks} >= {"solo", "warm"}
    assert sum(block.steps for block in profile.blocks) > epoch
