"""A study's file as it comes with Stash, and instances of the user's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import run

from stash.study.controller import RunOutcome, StudyController

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
EXAMPLE = Path(__file__).parents[3] / "examples/features.yaml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_papers_models_are_a_study_as_any_other(folder: Path, monkeypatch: Patch, capsys: Capture) -> None:
    shutil.copy(EXAMPLE, folder)
    assert run(monkeypatch, "characterize", "features.yaml", "--dry-run", "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    names = {cell["workload"] for cell in cells}
    depths = (10, 12, 16, 18, 34, 50, 101, 152)
    assert {f"resnet{depth}{variant}" for depth in depths for variant in ("", "_noskip", "_nobn")} <= names
    assert {f"vgg{depth}{variant}" for depth in (11, 13, 16, 19) for variant in ("", "_bn")} <= names
    assert len(cells) == len(names) == 32
    assert {(cell["batch"], cell["target"], cell["engine"]) for cell in cells} == {(32, "p3.8xlarge", "emulated")}


def test_instances_of_the_user_s_own_are_kept_for_whoever_reads_the_study(
    folder: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    path, own = folder / "own.yaml", folder / "lab.yaml"
    path.write_text("workloads: [{zoo: resnet18}]\nbatches: 32\ntargets: [{engine: emulated, instance: lab-box}]\n")
    own.write_text("instances: [{name: lab-box, gpu: V100-SXM2-16GB, gpu_count: 1}]\n")
    monkeypatch.setattr(StudyController, "run", lambda *_: RunOutcome((), (), 0.0))
    assert run(monkeypatch, "characterize", "own.yaml", "--instances", "lab.yaml") == 1  # no cell was measured
    own.unlink()
    for command in ("report own.yaml -o own.html", "characterize own.yaml --dry-run"):
        assert run(monkeypatch, *command.split()) == 0, capsys.readouterr().err
