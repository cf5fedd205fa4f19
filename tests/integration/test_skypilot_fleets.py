"""Every task and every command of the script that rents a fleet is one that a real SkyPilot takes."""

import re
import shlex
from pathlib import Path

import pytest
import real_skypilot
import yaml
from fleet_pools import JOB, dated_plan

from stash import catalog
from stash.spot.sky_tasks import job_in, rent_script, rented_place

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not real_skypilot.PYTHON,
        reason="SkyPilot is not installed: see tests/integration/real_skypilot.py",
    ),
]


def script(folder, infra, bucket=None):
    (folder / "job.py").write_text(JOB)
    plan = dated_plan()
    place = rented_place(plan, infra, bucket, catalog.load())
    return rent_script(plan, place, job_in(folder, f"{folder}/job.py:job"), folder)


def tasks(text):  # type: ignore[type-arg]
    return [yaml.safe_load(task) for task in re.findall(r"<<'TASK'\n(.*?)TASK\n", text, re.DOTALL)]


@pytest.mark.parametrize(
    ("infra", "bucket"), [("aws/us-east-1", "s3://mine/run1"), ("kubernetes", None)]
)
def test_servers_and_workers_of_every_type_are_taken(tmp_path, infra, bucket):
    text = script(tmp_path, infra, bucket)
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("sky ")]
    for words in commands:  # of files that are there
        Path(tmp_path / words[-1]).write_text("")
        Path(tmp_path / words[words.index("--secret-file") + 1]).write_text("")
    envs = {"STASH_HEAD": "10.0.0.5", "STASH_WORKER": "worker1"}
    given = [
        {**task, "envs": {name: value or envs[name] for name, value in task["envs"].items()}}
        for task in tasks(text)
    ]
    done = real_skypilot.ask_skypilot(tmp_path, given, commands)
    assert done.returncode == 0, done.stderr


def test_what_is_special_to_fleets_would_be_seen(tmp_path):
    right = tasks(script(tmp_path, "aws/us-east-1"))[0]
    folder = {**right, "file_mounts": {"~/kept": {"source": "s3://mine/run1", "mode": "MOUNT"}}}
    assert real_skypilot.ask_skypilot(tmp_path, [folder], []).returncode == 1
    assert (
        real_skypilot.ask_skypilot(
            tmp_path, [], [("sky", "jobs", "cancel", "--named", "x")]
        ).returncode
        == 1
    )
