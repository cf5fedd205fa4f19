"""``stash recommend``: what it prints for people, programs and tickets, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import commands
import pytest
import yaml
from forecast_profiles import cpu_job, gpu_job

from stash.core.artefact import save

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
FEW = ("--gpu", "V100", "--cloud", "aws", "--max-nodes", "2")
"""Few candidates, so that a test takes no longer than it must."""
JOB = ("gpu.stash.json", "--epochs", "90", *FEW)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    save(gpu_job(), tmp_path / "gpu.stash.json")
    save(cpu_job(), tmp_path / "cpu.stash.json")
    return tmp_path


def run(monkeypatch: Patch, *words: str) -> int:
    return commands.run(monkeypatch, "recommend", *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "what is to be trained? Name a profile"),
        (("gpu.stash.json",), "how much is to be trained? Say it like --epochs 90 --samples 1281167"),
        ((*JOB, "--json", "--explain-type", "p3.2xlarge"), "--explain-type and --json are two ways to show a plan"),
        ((*JOB, "--pareto", "--explain-type", "p3.2xlarge"), "--pareto shows many choices and --explain-type one"),
        ((*JOB, "-o", "plan.docx"), "--output plan.docx: a name ends in .html"),
        ((*JOB, "-o", "nowhere/plan.html"), "there is no folder nowhere"),
        (("gpu.stash.json", "cpu.stash.json", "--epochs", "9"), "are different jobs, in workload"),
        (("gpu.stash.json", "gpu.stash.json", "--epochs", "9"), "gpu.stash.json is given twice"),
        ((*JOB, "--explain-type", "p3.17xlarge"), "--explain-type p3.17xlarge"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    monkeypatch: Patch, capsys: Capture, words: tuple[str, ...], sentence: str
) -> None:
    assert run(monkeypatch, *words) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_the_choice_is_written_as_a_task_and_nothing_is_started(
    monkeypatch: Patch, capsys: Capture, tmp_path: Path
) -> None:
    assert run(monkeypatch, *JOB, "--launch", "sky") == 0
    assert capsys.readouterr().out.endswith("nothing was started.\n")
    assert run(monkeypatch, *JOB, "--launch", "sky", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    first, second = sorted(path.name for path in tmp_path.glob("*.sky.yaml"))  # none is written over
    task = yaml.safe_load((tmp_path / second).read_text())
    assert first != second
    assert f"{task['num_nodes']} × {task['resources']['instance_type']}" == document["chosen"]


def test_only_a_choice_can_be_launched_and_only_with_sky(monkeypatch: Patch, capsys: Capture, tmp_path: Path) -> None:
    assert run(monkeypatch, *JOB, "--launch", "slurm") == 2
    assert "--launch slurm: it is sky" in capsys.readouterr().err
    assert run(monkeypatch, *JOB, "--deadline", "1h", "--launch", "sky") == 1
    assert "there is no choice to write down" in capsys.readouterr().err
    assert run(monkeypatch, *JOB, "--deadline", "1h", "--launch", "sky", "--json") == 1
    assert "there is no choice to write down" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert not list(tmp_path.glob("*.yaml"))
