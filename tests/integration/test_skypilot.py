"""Everything that Stash gives to SkyPilot is held against a real SkyPilot: its schemas, its parser, its commands.

Runs where ``sky`` can be imported by the Python that ``STASH_SKY_PYTHON`` names, or by this one (``pip install
skypilot==0.14.1`` into an environment of its own). Nothing is launched, and no cloud is asked: SkyPilot looks up
instance types in catalogs that it downloads, so that part of a task is held against its schema alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from studies import cells_of, study

from stash.rent.study.engines import describe
from stash.rent.study.folder import of_study
from stash.rent.study.submission import Submission

PYTHON = os.environ.get("STASH_SKY_PYTHON") or (sys.executable if find_spec("sky") else "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="SkyPilot is not installed: STASH_SKY_PYTHON may name a Python that has it"
    ),
]

STUDY = """
workloads:
- zoo: resnet18
- {name: mine, command: [train.py, --batch, "{batch}"]}
batches: 32
targets:
- {engine: sky, instance: p3.8xlarge, nodes: [1, 2], spot: true, price: "$4/h"}
- {engine: sky, instance: p3.2xlarge, region: us-east-1, price: "$3/h", setup: "pip install -e ."}
- {engine: sky, instance: n1-standard-8+1xV100, price: "$3/h"}
- {engine: sky, cloud: kubernetes, accelerators: "A100:8", idle: 20s}
"""
REAL = """
import json, sys, jsonschema
from sky import Task
from sky.client.cli import command
from sky.utils import schemas

for task in json.loads(sys.argv[1]):
    jsonschema.validate(task, schemas.get_task_schema())
    resources = task.pop("resources")
    jsonschema.validate(resources, schemas.get_resources_schema())
    made = Task.from_yaml_config(dict(task))
    assert (made.num_nodes, made.run, made.setup) == (task["num_nodes"], task["run"], task["setup"])
for program, name, *words in json.loads(sys.argv[2]):
    assert program == "sky", program
    getattr(command, name).make_context(name, words)
"""


def submissions(folder: Path) -> list[Submission]:
    (folder / "train.py").write_text("")
    file = study(STUDY, folder)
    return [describe(cell, of_study(file.path)) for cell in cells_of(file)]


def real(folder: Path, tasks: list[object], commands: list[tuple[str, ...]]) -> subprocess.CompletedProcess[str]:
    """What SkyPilot says to them."""
    alone = {"PATH": os.environ["PATH"], "HOME": str(folder), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    words = [PYTHON, "-c", REAL, json.dumps(tasks), json.dumps(commands)]
    return subprocess.run(words, env=alone, cwd=folder, capture_output=True, text=True, check=False, timeout=240)


def test_every_task_and_every_command_is_one_that_skypilot_takes(tmp_path: Path) -> None:
    found = submissions(tmp_path)
    assert len(found) == 10
    tasks = [yaml.safe_load(each.files["task.yaml"]) for each in found]
    (tmp_path / "task.yaml").write_text("")
    commands = [(*each.command[:-1], "task.yaml") for each in found]
    commands += [words for each in found for words in (*each.release, each.check)]
    done = real(tmp_path, tasks, commands)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("change", "option", "why"),
    [
        ({"num_node": 2}, "--yes", "'num_node' was unexpected"),
        ({"resources": {"infras": "aws"}}, "--yes", "'infras' was unexpected"),
        ({}, "--no-such", "No such option"),
    ],
)
def test_a_slip_would_be_seen(tmp_path: Path, change: dict[str, object], option: str, why: str) -> None:
    task = yaml.safe_load(submissions(tmp_path)[0].files["task.yaml"])
    done = real(tmp_path, [{**task, **change}], [("sky", "down", option, "name")])
    assert done.returncode == 1
    assert why in done.stderr
