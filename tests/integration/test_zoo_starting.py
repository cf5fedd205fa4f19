"""Scripts that are particular about how they are started, and what is left of a profile however it ends."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from profiled import ZOO, RunProfile, Start, measured
from runs import PATIENCE, Started

from stash.analysis.step_times import step_matrix

FOREVER = 2 * PATIENCE
"""A budget that is not spent before a test has ended the run."""
PROFILE = (sys.executable, "-m", "stash", "profile")
HANGUP = """
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
said = b""
while b"round 2" not in said:
    said += os.read(terminal, 4096)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""Runs a command on a terminal of its own, which it closes once a round was measured; prints the exit code."""


@pytest.mark.slow  # test_started_as_typed has its like
def test_a_script_that_trains_alone_where_no_rank_is_set_is_one_process(run_profile: RunProfile) -> None:
    # GIVEN a script that takes RANK for a word to use CUDA, on a machine without WHEN it is profiled as it was typed
    profile = measured(run_profile("--rungs", "solo", "sets_device.py", folder=ZOO, as_typed=True))
    # THEN it runs as it does without Stash, at the first try, and the profile says how to have it on all devices
    assert profile.world_size == 1
    assert profile.settings.launches == 1
    assert any(note.startswith("started as typed: one process") for note in profile.notes)


@pytest.mark.slow
def test_one_rank_that_asks_for_its_rank_gets_it(run_profile: RunProfile) -> None:
    profile = measured(run_profile("--nproc-per-node", 1, "--rungs", "solo", "wants_rank.py", folder=ZOO))
    assert profile.world_size == 1
    assert any("started by torchrun, as 1 rank, since as a plain" in note for note in profile.notes)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["spawn", "fork"])
def test_of_independent_trainers_one_is_measured_and_nobody_goes_on(
    run_profile: RunProfile, tmp_path: Path, way: str
) -> None:
    # GIVEN processes that train without a group, and a parent that would save what they trained
    saved = tmp_path / "model.pt"
    outcome = run_profile(
        "--rungs", "solo,warm", "--", sys.executable, "hogwild.py", saved, way, folder=ZOO, budget=4
    )
    # THEN the rounds are those of one trainer, the others are mentioned, and all of them end with it
    profile = measured(outcome)
    assert profile.workload.name == "hogwild.py"
    numbers = [(block.round, block.rung) for block in profile.blocks]
    assert len(numbers) == len(set(numbers))
    assert any(note.startswith("another process trained beside the one") for note in profile.notes)
    assert not saved.exists()


def started_to(phase: str, start: Start, tmp_path: Path, **variables: str) -> Started:
    """A profile that has come to a phase: starting, importing, warm-up or measuring."""
    stepped = tmp_path / "stepped"
    pace = 1.0 if phase == "warm-up" else 0.001
    run = start("phases.py", stepped, pace, folder=ZOO, budget=FOREVER, precision=0.05, **variables)
    if phase == "starting":
        run.wait_until(lambda: len(run.processes()) > 1)
    elif phase == "importing":
        run.wait_until(lambda: len(run.ranks()) == 2)
    elif phase == "warm-up":
        run.wait_until(stepped.exists)
    else:
        run.wait_for("round 1 done")
    return run


@pytest.mark.slow  # the fault matrix has its like
@pytest.mark.parametrize("phase", ["starting", "importing", "warm-up"])
def test_nothing_outlives_a_killed_stash(start: Start, tmp_path: Path, phase: str) -> None:
    # (measuring: test_bad_input's test_ranks_do_not_outlive_a_killed_stash)
    run = started_to(phase, start, tmp_path)
    run.popen.kill()
    run.popen.wait()
    deadline = time.monotonic() + PATIENCE / 4
    while run.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [process.cmdline() for process in run.processes()] == []


@pytest.mark.slow  # the fault matrix has its like
@pytest.mark.parametrize("phase", ["starting", "warm-up"])
def test_a_hangup_before_the_first_round_leaves_nothing(start: Start, tmp_path: Path, phase: str) -> None:
    run = started_to(phase, start, tmp_path)
    run.popen.send_signal(signal.SIGHUP)
    outcome = run.end()
    assert outcome.code == 130
    assert "interrupted" in outcome.error
    assert not outcome.survivors


@pytest.mark.slow  # the fault matrix has its like
def test_a_closed_terminal_keeps_finished_rounds(start: Start, tmp_path: Path) -> None:
    # GIVEN a profile on a terminal WHEN that is closed
    output = tmp_path / "run.stash.json"
    words = ("--budget", FOREVER, "--precision", 0.05, "-o", output, "phases.py", tmp_path / "stepped", 0.001)
    run = start(program=(sys.executable, "-c", HANGUP, *PROFILE, *words), output=output, folder=ZOO)
    outcome = run.end()
    # THEN it ends as with Ctrl-C, though it can tell nobody
    assert outcome.stdout.strip() == "130", outcome.stderr
    assert outcome.profile is not None
    assert outcome.profile.ended == "interrupted"
    assert len(step_matrix(outcome.profile).rounds) >= 1
    assert not outcome.survivors


@pytest.mark.slow
def test_under_nohup_a_closed_terminal_changes_nothing(start: Start, tmp_path: Path) -> None:
    output = tmp_path / "run.stash.json"
    words = ("--budget", 1, "--precision", 50, "-o", output, "phases.py", tmp_path / "stepped", 0.001)
    run = start(program=("nohup", *PROFILE, *words), output=output, folder=ZOO)
    run.wait_until((tmp_path / "stepped").exists)
    run.popen.send_signal(signal.SIGHUP)
    assert measured(run.end()).ended in ("budget", "precision")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files with a short name, as /tmp has one: it is part of every socket's."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.slow
def test_the_temporary_folder_is_left_as_it_was(start: Start, tmp_path: Path, temporary: Path) -> None:
    theirs = {"torchinductor_root"}  # a cache of PyTorch's own, which any training script makes there

    def left() -> set[str]:
        return {path.name for path in temporary.iterdir()} - theirs

    # GIVEN a Stash that was killed, and could remove nothing
    run = started_to("measuring", start, tmp_path, TMPDIR=str(temporary))
    run.popen.kill()
    run.popen.wait()
    (folder,) = left()
    # WHEN another one runs, with loader workers, to its end
    measured(start("phases.py", tmp_path / "stepped", 0.001, folder=ZOO, TMPDIR=str(temporary)).end())
    # THEN it has swept that one's folder, and leaves none of its own, of torchrun's or of multiprocessing's
    assert folder.startswith("stash-")
    assert left() == set()
