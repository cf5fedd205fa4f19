"""Everything that Stash gives to SkyPilot is held against a real SkyPilot: its schemas, its parser, its commands.

Nothing is launched, and no cloud is asked.
"""

import pytest
import real_skypilot
import yaml
from studies import cells_of, study

from stash.study.backend import check_command, release_command
from stash.study.cell_engines import describe
from stash.study.study_folder import folder_of_study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not real_skypilot.PYTHON,
        reason="SkyPilot is not installed: see tests/integration/real_skypilot.py",
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
- {engine: sky, cloud: kubernetes, accelerators: "A100:8"}
"""


def submissions(folder):
    (folder / "train.py").write_text("")
    file = study(STUDY, folder)
    whole = folder_of_study(file.path)
    found = [describe(cell, whole) for cell in cells_of(file)]
    for each in found:
        each.write_files(whole.cell("1"))
    return found


def test_every_task_and_every_command_is_one_that_skypilot_takes(tmp_path):
    found = submissions(tmp_path)
    assert len(found) == 10
    tasks = [yaml.safe_load(each.files["task.yaml"]) for each in found]
    (tmp_path / "task.yaml").write_text("")
    commands = [(*each.command[:-1], "task.yaml") for each in found]
    commands += [
        words("sky", each.lease) for each in found for words in (release_command, check_command)
    ]
    done = real_skypilot.ask_skypilot(tmp_path, tasks, commands)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("change", "option", "why"),
    [
        ({"num_node": 2}, "--yes", "'num_node' was unexpected"),
        ({"resources": {"infras": "aws"}}, "--yes", "'infras' was unexpected"),
        ({}, "--no-such", "no such option"),
    ],
)
def test_a_slip_would_be_seen(tmp_path, change, option, why):
    task = yaml.safe_load(submissions(tmp_path)[0].files["task.yaml"])
    done = real_skypilot.ask_skypilot(
        tmp_path, [{**task, **change}], [("sky", "down", option, "name")]
    )
    assert done.returncode == 1
    assert why in done.stderr
