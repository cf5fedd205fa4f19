"""``stash recommend``: what it writes and starts; what it refuses is in ``test_refused_commands``."""

import json

import commands
import pytest
import yaml
from forecast_profiles import gpu_job

from stash.core.artefact import save

FEW = ("--gpu", "V100", "--cloud", "aws", "--max-nodes", "2")
"""Few candidates, so that a test takes no longer than it must."""
JOB = ("gpu.stash.json", "--epochs", "90", *FEW)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    save(gpu_job(), tmp_path / "gpu.stash.json")
    return tmp_path


def run(monkeypatch, *words):
    return commands.run(monkeypatch, "recommend", *words)


def test_the_choice_is_written_as_a_task_and_nothing_is_started(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, *JOB, "--launch", "sky") == 0
    assert capsys.readouterr().out.endswith("nothing was started.\n")
    assert run(monkeypatch, *JOB, "--launch", "sky", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    # none is written over
    first, second = sorted(path.name for path in tmp_path.glob("*.sky.yaml"))
    task = yaml.safe_load((tmp_path / second).read_text())
    assert first != second
    assert f"{task['num_nodes']} × {task['resources']['instance_type']}" == document["chosen"]


def test_only_a_choice_can_be_launched(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, *JOB, "--deadline", "1h", "--launch", "sky") == 1
    assert "there is no choice to write down" in capsys.readouterr().err
    assert run(monkeypatch, *JOB, "--deadline", "1h", "--launch", "sky", "--json") == 1
    assert (
        "there is no choice to write down"
        in json.loads(capsys.readouterr().out)["error"]["message"]
    )
    assert not list(tmp_path.glob("*.yaml"))
