"""What is asked of SkyPilot for a synchronous script, and what is wrong with one before anything is."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from gang_fleets import BUCKET, gang, gang_plan
from spot_fleets import TODAY

from stash import catalog
from stash.core.errors import UserError
from stash.spot.rented import rent_request


def _task(text: str) -> dict:  # type: ignore[type-arg]
    return yaml.safe_load(text)  # type: ignore[no-any-return]


def test_the_head_is_one_machine_on_demand_that_takes_itself_down(tmp_path: Path) -> None:
    task = _task(gang(tmp_path).server_task().files["task.yaml"])
    assert task["resources"]["use_spot"] is False
    assert task["resources"]["autostop"] == {"idle_minutes": 10, "down": True}
    assert task["resources"]["max_hourly_cost"] == 0.22
    assert "num_nodes" not in task
    assert [path.split("/")[1] for path in task["file_mounts"]] == ["stash-wheel"]
    assert 'stash.spot.sync.rendezvous "$HEAD" 29400 ~/stash-spot 1 3' in task["run"]


def test_a_node_runs_torchrun_under_the_guard_with_a_process_for_each_gpu(tmp_path: Path) -> None:
    of = gang(tmp_path, least=2)
    found = of.worker_task(7, of.kind("g3.8xlarge"), "10.0.0.5")
    task = _task(found.files["task.yaml"])
    assert task["resources"] == {
        "infra": "aws/us-east-1", "instance_type": "g3.8xlarge", "use_spot": True, "max_hourly_cost": 0.7524
    }  # fmt: skip
    assert task["envs"] == {
        "STASH_HEAD": "10.0.0.5", "STASH_TYPE": "g3.8xlarge", "STASH_SPOT_CHECKPOINT_SECONDS": "60",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }  # fmt: skip
    assert task["secrets"] == {"STASH_RUN_TOKEN": None}
    assert task["file_mounts"]["~/stash-spot-checkpoints"] == {"source": "s3://mine", "mode": "MOUNT"}
    assert found.command[:3] == ("sky", "jobs", "launch")
    assert task["run"] == (
        'python -m stash spot guard ~/stash-spot-checkpoints/run1 --head "$STASH_HEAD":29400 --name worker7 '
        '-- torchrun --local-addr="$SKYPILOT_NODE_IPS" --nnodes=2:3 --nproc-per-node=2 --max-restarts=3 '
        '--rdzv-backend=c10d --rdzv-endpoint="$STASH_HEAD":29400 '
        "--rdzv-conf=is_host=0,keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=5 "
        "train.py --epochs 3"
    )


def test_arguments_of_the_script_reach_it_as_they_were_typed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    typed = ("train.py", "--name", "a b", "--x=HEAD:29400", "$HOME", "=ADDRESS")
    folder = rent_request.run_folder(tmp_path / "job.plan.json", tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)
        of = rent_request.gang(gang_plan(), typed, "aws/r", folder, catalog.load(), TODAY, BUCKET, 1, 60.0)
    run = _task(of.worker_task(1, of.kind("p3.2xlarge"), "10.0.0.5").files["task.yaml"])["run"]
    shell = run.replace("python -m stash spot guard", "printf '%s\\n'")
    variables = {
        "STASH_HEAD": "10.0.0.5",
        "SKYPILOT_NODE_IPS": "10.0.0.7",
        "HOME": "/home/me",
        "PATH": "/usr/bin:/bin",
    }
    words = subprocess.run(["bash", "-c", shell], env=variables, capture_output=True, text=True, check=True)
    lines = words.stdout.splitlines()
    assert lines[lines.index("train.py") :] == list(typed)
    assert "--local-addr=10.0.0.7" in lines
    assert "--rdzv-endpoint=10.0.0.5:29400" in lines
    assert lines[0] == "/home/me/stash-spot-checkpoints/run1"


@pytest.mark.parametrize(
    ("url", "source", "folder"),
    [
        ("s3://mine", "s3://mine", "stash-spot-checkpoints"),
        ("gs://mine/a/b/", "gs://mine", "stash-spot-checkpoints/a/b"),
        (
            "https://me.blob.net/box/a",
            "https://me.blob.net/box",
            "stash-spot-checkpoints/a",
        ),
        ("cos://us-east/mine/a", "cos://us-east/mine", "stash-spot-checkpoints/a"),
    ],
)
def test_a_bucket_is_mounted_whole_and_its_folder_used(tmp_path: Path, url: str, source: str, folder: str) -> None:
    of = replace(gang(tmp_path), checkpoints=url)
    found = _task(of.worker_task(1, of.kind("p3.2xlarge"), "10.0.0.5").files["task.yaml"])
    assert found["file_mounts"]["~/stash-spot-checkpoints"] == {"source": source, "mode": "MOUNT"}
    assert f"guard ~/{folder} --head" in found["run"]


@pytest.mark.parametrize("infra", ["aws/us-east-1", "kubernetes"])
def test_every_script_is_one_that_a_shell_reads(tmp_path: Path, infra: str) -> None:
    of = gang(tmp_path, infra=infra)
    for submission in (of.server_task(), of.worker_task(1, of.kind("p3.2xlarge"), "10.0.0.5")):
        task = _task(submission.files["task.yaml"])
        for script in (task["setup"], task["run"]):
            assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("script", "bucket", "least", "sentence"),
    [
        ("train.py", None, 1, r"name a bucket for them, like --checkpoint-url s3://"),
        ("train.py", "/shared", 1, r"--checkpoint-url '/shared': write it like s3://"),
        ("train.py", "s3://mine/a b", 1, r"--checkpoint-url 's3://mine/a b': write it like s3://"),
        ("gone.py", BUCKET, 1, "there is no script gone.py; after --sync comes a Python file"),
        ("../out.py", BUCKET, 1, r"lies outside .*the folder that is copied to the machines"),
        ("train.py", BUCKET, 4, "--min-nodes 4: the plan has 3 workers; ask for no more than that"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_rented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, bucket: str | None, least: int, sentence: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name in ("train.py", "../out.py"):
        Path(name).write_text("")
    folder = rent_request.run_folder(work / "job.plan.json", work)
    with pytest.raises(UserError, match=sentence):
        rent_request.gang(gang_plan(), (script,), "aws/r", folder, catalog.load(), TODAY, bucket, least, 60.0)
