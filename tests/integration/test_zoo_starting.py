"""Scripts that are particular about how they are started, and what is left of a profile however it ends."""

import signal
import sys

import pytest
from profiled import ZOO, profile_of
from runs import PATIENCE

pytestmark = pytest.mark.slow
PROFILE = (sys.executable, "-m", "stash", "profile")


@pytest.mark.parametrize("way", ["spawn", "fork"])
def test_of_independent_trainers_one_is_measured_and_none_goes_on(run_profile, tmp_path, way):
    # GIVEN processes that train without a group, and a parent that would save what they trained
    saved = tmp_path / "model.pt"
    outcome = run_profile(
        "--rungs", "solo,warm", "--", sys.executable, "hogwild.py", saved, way, folder=ZOO, budget=4
    )
    # THEN the rounds are those of one trainer, the others are mentioned, and all of them end with it
    profile = profile_of(outcome)
    assert profile.workload.name == "hogwild.py"
    numbers = [(block.round, block.rung) for block in profile.blocks]
    assert len(numbers) == len(set(numbers))
    assert any(note.startswith("another process trained besides the one") for note in profile.notes)
    assert not saved.exists()


def test_under_nohup_a_closed_terminal_changes_nothing(start, tmp_path):
    output = tmp_path / "run.stash.json"
    words = ("--budget", 1, "--noise", 50, "-o", output, "phases.py", tmp_path / "stepped", 0.001)
    run = start(program=("nohup", *PROFILE, *words), output=output, folder=ZOO)
    run.wait_until((tmp_path / "stepped").exists)
    run.popen.send_signal(signal.SIGHUP)
    assert profile_of(run.end()).ended in ("budget", "precision")


def test_the_temporary_folder_is_left_as_it_was(start, tmp_path, tmp_path_factory):
    # its name is part of every socket's, which may not be long
    temporary = tmp_path_factory.mktemp("t")
    # a cache of PyTorch's own, which any training script makes there
    theirs = {"torchinductor_root"}

    def left():
        return {path.name for path in temporary.iterdir()} - theirs

    # GIVEN a Stash that was killed, and could remove nothing
    training = ("phases.py", tmp_path / "stepped", 0.001)
    run = start(*training, folder=ZOO, budget=2 * PATIENCE, noise=0.05, TMPDIR=str(temporary))
    run.wait_for("round 1 done")
    run.popen.kill()
    run.popen.wait()
    (folder,) = left()
    # WHEN another one runs, with loader workers, to its end
    profile_of(start(*training, folder=ZOO, TMPDIR=str(temporary)).end())
    # THEN it has swept that one's folder, and leaves none of its own, of torchrun's or of multiprocessing's
    assert folder.startswith("stash-")
    assert left() == set()
