"""``stash spot run --sync``: what it refuses, and real scripts under torchrun that lose nodes (slow)."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from commands import run
from fleet_pools import PUBLISHED
from runs import Started

from stash.spot.commands.spot_options import checkpoint_interval
from stash.spot.records.risks import CheckpointInterval, FleetRisk
from stash.spot.spot_files import read_plan

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="emulated hosts need root")
SCRIPT = """
import datetime, sys, time, torch, torch.distributed as dist, stash.spot
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
model = torch.nn.Linear(4, 1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
kept = stash.spot.checkpoint(model=model, optimizer=optimizer)
first = kept.state.get("step", 0)
print("from", first, "on", dist.get_world_size(), *sys.argv[1:])
for step in range(first, int(sys.argv[1])):
    optimizer.zero_grad()
    ddp(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.1)
    kept.step(step=step + 1)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sync")
    (made / "train.py").write_text(SCRIPT)
    (made / "bad.py").write_text("raise ValueError('no data')\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(made)
        words = ("plan", "--pool", str(PUBLISHED), "--loss", "0.8", "--deadline")
        assert run(patched, "spot", *words, "2400s", "-o", "job.plan.json") == 0
        assert run(patched, "spot", *words, "100s", "-o", "none.plan.json") == 1  # no fleet keeps it
    plan = json.loads((made / "job.plan.json").read_text())
    plan["chosen"]["workers"] = {"p3.2xlarge": 1, "g3.8xlarge": 1}
    (made / "two.plan.json").write_text(json.dumps(plan))
    return made


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("two.plan.json", "--sync", "train.py"), "name the cloud and its region with --infra"),
        (
            ("two.plan.json", "--on", "local", "--checkpoint-url", "s3://b", "--sync", "train.py"),
            "--checkpoint-url is of rented",
        ),
        (
            ("two.plan.json", "--on", "local", "--time-scale", "2", "--sync", "train.py"),
            "--time-scale is of emulated hosts",
        ),
        (
            ("two.plan.json", "--on", "testbed", "--time-scale", "1e5", "--sync", "train.py"),
            "less than what keeps machines together; give --time-scale",
        ),
        (("two.plan.json", "--on", "local", "--sync", "gone.py"), "there is no script gone.py"),
        (("two.plan.json", "--on", "local", "--sync"), "missing argument"),
        (("none.plan.json", "--on", "local", "--sync", "train.py"), "the plan chose no fleet"),
        (
            ("two.plan.json", "--on", "local", "--staleness", "0", "--sync", "train.py"),
            "--staleness means nothing with --sync",
        ),
        (
            ("two.plan.json", "--on", "local", "--min-nodes", "3", "--sync", "train.py"),
            "--min-nodes 3: the plan has 2 workers",
        ),
        (
            ("two.plan.json", "--on", "local", "--revoke", "worker7@3s", "--sync", "train.py"),
            "has no such one; it has worker1, worker2, g3.8xlarge, p3.2xlarge",
        ),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_in_a_sentence(
    words: tuple[str, ...], sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    assert run(monkeypatch, "spot", "run", *words) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert sentence in printed
    assert "Traceback" not in printed


def test_the_plans_risk_says_how_often_to_save_unless_the_user_does(folder: Path) -> None:
    plan = read_plan(folder / "two.plan.json")
    assert checkpoint_interval(plan, None)[0] == 20
    checkpoint = CheckpointInterval(
        write_seconds=2, mtbf_seconds=900, young=60, daly=58.7, best=58.6, how="exact", just_in_time=True
    )
    risky = plan.model_copy(update={"risk": FleetRisk.model_construct(checkpoint=checkpoint)})
    assert checkpoint_interval(risky, None) == (58.6, "as the plan's risk says, exact")
    assert checkpoint_interval(risky, 7) == (7, "as --checkpoint-every says")


def _started(folder: Path, tmp_path: Path, *words: str, on: str = "local") -> Started:
    command = (sys.executable, "-m", "stash", "spot", "run", "two.plan.json", "--on", on, "--json", *words)
    return Started(command, tmp_path / "none", tmp_path / "log", folder, {"OMP_NUM_THREADS": "1"}, False)


@pytest.mark.slow
@pytest.mark.parametrize("on", ["local", pytest.param("testbed", marks=NEEDS_ROOT)])
def test_both_ways_of_leaving_are_survived(on: str, folder: Path, tmp_path: Path) -> None:
    taken = ("--revoke", "worker1@8s,notice=8s", "--revoke", "worker2@40s", "--checkpoint-every", "1h")
    words = (*taken, "--seconds", "90s", "--sync", "train.py", "100000", "--seconds", "3")
    outcome = _started(folder, tmp_path, *words, on=on).end()
    assert outcome.survivors == []
    assert outcome.code == 0, outcome.stderr
    document = json.loads(outcome.stdout)
    assert document["on"] == on
    noticed, missed = document["setbacks"]
    assert (noticed["gone"], noticed["notice"], noticed["successor"]) == ("worker1", 8.0, "worker3")
    assert (missed["gone"], missed["notice"], missed["successor"]) == ("worker2", None, "worker4")
    assert all(each["whole_seconds"] is not None for each in (noticed, missed)), outcome.stderr
    assert noticed["checkpoint"]["seconds"] < 6, outcome.stderr
    assert noticed["lost_seconds"] < noticed["at"]
    assert "from 0 on 2 100000 --seconds 3" in outcome.stderr
    went_on = [line for line in outcome.stderr.splitlines() if "worker4 | from" in line]
    assert went_on
    assert "from 0 on" not in went_on[-1]  # the only checkpoint is that of the notice


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_running(folder: Path, tmp_path: Path) -> None:
    started = _started(folder, tmp_path, "--sync", "train.py", "100000")
    started.wait_for("from 0 on 2")
    started.popen.send_signal(signal.SIGINT)
    outcome = started.end()
    assert outcome.code == 130
    assert outcome.survivors == []
    assert json.loads(outcome.stdout)["reason"] == "interrupted"


@pytest.mark.slow
def test_a_script_ends_or_fails_as_it_says(folder: Path, tmp_path: Path) -> None:
    ended = _started(folder, tmp_path, "--sync", "train.py", "3").end()
    assert ended.code == 0
    assert json.loads(ended.stdout)["reason"] == "the script ended"
    failed = _started(folder, tmp_path, "--sync", "bad.py").end()
    assert failed.code == 1
    assert "the script failed on worker" in failed.error
    assert "ValueError: no data" in failed.error
    assert (ended.survivors, failed.survivors) == ([], [])
