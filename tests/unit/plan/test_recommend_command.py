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
PREMISE = ("gpu.stash.json", "--epochs", "9", "--cloud", "on-premise", "--instances")
JOB = ("gpu.stash.json", "--epochs", "90", *FEW)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    save(gpu_job(), tmp_path / "gpu.stash.json")
    save(cpu_job(), tmp_path / "cpu.stash.json")
    own, box = tmp_path / "own", "instances:\n  - {name: box, gpu: %s, price: %s}\n"
    own.mkdir()
    one, two = "gpus:\n  - {name: X1, memory: 24GB}\n", "  - {name: X1, memory: 80GB}\n"
    (own / "twice.yaml").write_text(one + two + box % ("X1", "$2/h"))
    (own / "hole.yaml").write_text(one + box % ("X1", "$2/h"))
    (own / "free.yaml").write_text(box % ("T4", "-$2/h"))
    (own / "part.yaml").write_text(box % ("A100-SXM4-80GB, gpu_memory: 24GB", "$2/h"))
    return tmp_path


def run(monkeypatch: Patch, *words: str) -> int:
    return commands.run(monkeypatch, "recommend", *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "what is to be trained? Name a profile"),
        (
            ("gpu.stash.json",),
            "how much is to be trained? Say it like --epochs 90 --samples 1281167",
        ),
        (
            (*JOB, "--json", "--explain-type", "p3.2xlarge"),
            "--explain-type and --json are different ways",
        ),
        (
            (*JOB, "--pareto", "--explain-type", "p3.2xlarge"),
            "--pareto and --explain-type are different",
        ),
        (
            (*JOB, "--explain", "--explain-type", "p3.2xlarge"),
            "--explain and --explain-type are different ways",
        ),
        ((*JOB, "--late-costs", "5"), "--late-costs says what missing a deadline costs; give one"),
        ((*JOB, "--max-price", "0"), "--max-price 0: it must be more than 0"),
        ((*JOB, "--max-dollars", "€50"), "--max-dollars €50: '€50' is not in US dollars"),
        (
            (*JOB, "--instances", "own/twice.yaml"),
            "twice.yaml:3: gpus[1].name: there are two GPUs called 'X1'",
        ),
        ((*PREMISE, "own/hole.yaml"), "or add memory_bandwidth, fp32_tflops and"),
        (
            (*JOB, "--instances", "own/free.yaml"),
            "free.yaml:2: instances[0].price: '-$2/h' is negative",
        ),
        ((*PREMISE, "own/part.yaml"), "box is left out: it has 0.33 of one A100"),
        (
            ("cpu.stash.json", "--epochs", "9", "--gpu", "V100"),
            "run `stash profile train.py` (about 40 s) on a machine",
        ),
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
    # none is written over
    first, second = sorted(path.name for path in tmp_path.glob("*.sky.yaml"))
    task = yaml.safe_load((tmp_path / second).read_text())
    assert first != second
    assert f"{task['num_nodes']} × {task['resources']['instance_type']}" == document["chosen"]


def test_only_a_choice_can_be_launched_and_only_with_sky(
    monkeypatch: Patch, capsys: Capture, tmp_path: Path
) -> None:
    assert run(monkeypatch, *JOB, "--launch", "slurm") == 2
    assert "--launch slurm: it must be sky" in capsys.readouterr().err
    assert run(monkeypatch, *JOB, "--deadline", "1h", "--launch", "sky") == 1
    assert "there is no choice to write down" in capsys.readouterr().err
    assert run(monkeypatch, *JOB, "--deadline", "1h", "--launch", "sky", "--json") == 1
    assert (
        "there is no choice to write down"
        in json.loads(capsys.readouterr().out)["error"]["message"]
    )
    assert not list(tmp_path.glob("*.yaml"))
