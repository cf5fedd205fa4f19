"""What is measured is the job that was typed: its processes, environment, threads, input and pace."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from profiled import SCRIPTS, profile_of
from runs import PATIENCE

BIN = Path(sys.executable).parent
ADDED = {
    *("PYTHONPATH", "PYTHONUNBUFFERED", "PET_LOG_DIR"),
    *(
        "WANDB_MODE",
        "NEPTUNE_MODE",
        "COMET_AUTO_LOG_DISABLE",
        "MLFLOW_TRACKING_URI",
        "MLFLOW_ALLOW_FILE_STORE",
    ),
}
"""All that Stash adds besides STASH_*: where its agent is and torchrun logs, output at once, trackers kept quiet."""
OF_A_RUN = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_ADDR", "MASTER_PORT", "_"}
"""What differs between two runs without Stash."""
ON_LOOPBACK = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}
"""What Stash's torchrun adds for ranks on one machine."""
RATIO = 8
"""By how much the CPU time of two jobs' steps may differ; that of a machine's clock depends on what else it does."""
LAUNCH = (
    "launch",
    "--cpu",
    "--num_processes",
    "1",
    "--num_machines",
    "1",
    "--mixed_precision",
    "no",
    "--dynamo_backend",
    "no",
)
CALL = "from reports import train; train(0, {folder!r})"
PROFILED = "import stash; from reports import train; stash.profile(train, 0, {folder!r}, noise=0.5, budget=1)"


def reported(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def untouched(folder, *words):
    """What the processes of a command say of themselves."""
    folder.mkdir()
    (folder / "short").touch()
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    with (SCRIPTS / "parts.py").open() as given:
        run = subprocess.Popen(
            [str(word) for word in words], cwd=SCRIPTS, env=environment, stdin=given
        )
    try:
        assert run.wait(PATIENCE) == 0
    finally:
        run.terminate()  # a launcher ends its ranks
        run.wait()
    return reported(folder)


def alike(before, under):
    """As many processes, of the same environment, threads, words and pace."""
    assert len(before) == len(under) >= 1
    for one, other in zip(before, under, strict=True):
        then, now = one["environment"], other["environment"]
        changed = {name for name in then.keys() | now.keys() if then.get(name) != now.get(name)}
        assert {name for name in changed if not name.startswith("STASH_")} <= ADDED | OF_A_RUN
        assert one["threads"] == other["threads"]
        assert one["words"][1:] == other["words"][1:]
        assert one["input"] == other["input"]
        assert 1 / RATIO < one["step"] / other["step"] < RATIO


@pytest.mark.parametrize("way", ["script", pytest.param("module", marks=pytest.mark.slow)])
def test_one_process_is_started_as_python_would(start, tmp_path, way):
    # GIVEN a script that speaks of RANK and never forms a group, and reads standard input from a file
    words = ("reports.py",) if way == "script" else ("-m", "reports")
    before = untouched(tmp_path / "before", sys.executable, *words, tmp_path / "before")
    # WHEN it is profiled
    (under := tmp_path / "under").mkdir()
    run = start(*words, under, as_typed=True, standard_input=SCRIPTS / "parts.py")
    profile = profile_of(run.end())
    # THEN that is what was measured, in one launch, and the profile says how to have it on every device
    alike(before, reported(under))
    assert before[0]["input"] == (SCRIPTS / "parts.py").read_text()
    assert (profile.world_size, profile.settings.launches) == (1, 1)
    assert any(note.startswith("one process was started, as typed") for note in profile.notes)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["function", "torchrun", "accelerate", "spawn"])
def test_any_other_way_starts_what_it_starts_without_stash(start, tmp_path, way):
    folders = [tmp_path / name for name in ("before", "under")]
    ways = {
        "function": (sys.executable, "-c", CALL),
        "torchrun": (BIN / "torchrun", "--standalone", "--nproc-per-node", 1, "reports.py"),
        "accelerate": (BIN / "accelerate", *LAUNCH, "reports.py"),
        "spawn": (sys.executable, "reports.py"),
    }
    more = {"spawn": ("--spawn",)}.get(way, ())
    words = [str(word).format(folder=str(folders[0])) for word in ways[way]]
    before = untouched(folders[0], *words, *(() if way == "function" else (folders[0], *more)))
    folders[1].mkdir()
    if way == "function":
        program = (sys.executable, "-c", PROFILED.format(folder=str(folders[1])))
        assert start(program=program, standard_input=SCRIPTS / "parts.py").end().code == 0
    else:
        mine = words[1:] if way == "spawn" else ["--", *words]
        profile_of(
            start(
                *mine, folders[1], *more, as_typed=True, standard_input=SCRIPTS / "parts.py"
            ).end()
        )
    alike(before, reported(folders[1]))


@pytest.mark.slow
def test_ranks_that_are_asked_for_have_what_torchrun_gives_them(start, tmp_path):
    folders = [tmp_path / name for name in ("before", "under")]
    torchrun = (BIN / "torchrun", "--standalone", "--nproc-per-node", 2)
    before = untouched(folders[0], *torchrun, "reports.py", folders[0], "--form-group")
    folders[1].mkdir()
    ranks = start("--nproc-per-node", 2, "reports.py", folders[1], "--form-group")
    assert profile_of(ranks.end()).world_size == 2
    under = reported(folders[1])
    assert [each["threads"] for each in under] == [each["threads"] for each in before]
    names = [set(each[0]["environment"]) for each in (before, under)]
    assert {
        name for name in names[1] - names[0] if not name.startswith("STASH_")
    } <= ADDED | OF_A_RUN | ON_LOOPBACK


def test_a_pipe_and_a_prompt_reach_the_script(start, tmp_path):
    # GIVEN a script that asks, and somebody who answers through a pipe
    script, answer = tmp_path / "asks.py", tmp_path / "answer"
    script.write_text(f"open({str(answer)!r}, 'w').write(input('name? ')); raise SystemExit(3)\n")
    reading, writing = os.pipe()
    os.write(writing, b"resnet\n")
    os.close(writing)
    ended = start(script, standard_input=Path(f"/proc/self/fd/{reading}")).end()
    os.close(reading)
    assert answer.read_text() == "resnet"
    # AND its exit code is told
    assert (ended.code, ended.survivors) == (1, [])
    assert "asks.py ended with exit code 3" in ended.error
