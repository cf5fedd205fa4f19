"""``stash characterize --features`` and ``stash whatif --by-features --from``: the study of models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from big_studies import profile_of
from commands import run
from profile_builder import build

from stash.core.artefact import save
from stash.core.records.profile import Gradient
from stash.study import study_folder
from stash.study.controller import RunOutcome, StudyController
from stash.study.study_file import read_study
from stash.study.study_folder import StudyEvent, of_study
from stash.study.study_run import cells_of

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
SMALL = """
workloads: [{zoo: resnet18}, {zoo: resnet50_noskip}, {zoo: resnet34_nobn}, {zoo: vgg11}, {zoo: vgg16_bn}]
batches: 32
targets:
- {engine: emulated, instance: p3.8xlarge}
- {engine: emulated, instance: p2.8xlarge}
- {engine: emulated, instance: p3.2xlarge}
"""
LINK = {"p3.8xlarge": 3 / 60e9, "p2.8xlarge": 7 / 8e9}
"""Seconds a byte that the made-up profiles wait."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def measured(folder: Path) -> Path:
    """``small.yaml`` as if all of it were done."""
    path = folder / "small.yaml"
    path.write_text(SMALL)
    place = of_study(path)
    for cell in cells_of(read_study(path), None):
        own = place.cell(cell.id)
        own.path.mkdir(parents=True)
        save(profile_of(cell), own.profile)
        study_folder.append(
            place.journal, StudyEvent(at=1.0, what="ended", cell=cell.id, ending="done", seconds=60.0)
        )
    return path


def test_the_papers_models_are_a_study_as_any_other(folder: Path, monkeypatch: Patch, capsys: Capture) -> None:
    assert run(monkeypatch, "characterize", "--features", "--dry-run", "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    names = {cell["workload"] for cell in cells}
    depths = (10, 12, 16, 18, 34, 50, 101, 152)
    assert {f"resnet{depth}{variant}" for depth in depths for variant in ("", "_noskip", "_nobn")} <= names
    assert {f"vgg{depth}{variant}" for depth in (11, 13, 16, 19) for variant in ("", "_bn")} <= names
    assert len(cells) == len(names) == 32
    assert {(cell["batch"], cell["target"], cell["engine"]) for cell in cells} == {(32, "p3.8xlarge", "emulated")}
    assert list(folder.iterdir()) == []


def test_the_file_is_written_once_and_then_read(folder: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr("stash.study.study_run._run", lambda *_: pytest.skip("the study would begin now"))
    with pytest.raises(pytest.skip.Exception):
        run(monkeypatch, "characterize", "models.yaml", "--features", "--on", "here")
    written = folder / "models.yaml"
    assert yaml.safe_load(written.read_text())["targets"] == [{"engine": "local"}]
    written.write_text(SMALL)
    assert run(monkeypatch, "characterize", "models.yaml", "--features", "--dry-run", "--json") == 0
    assert "vgg16_bn" in capsys.readouterr().out.split('"cells"')[1]
    assert run(monkeypatch, "characterize", "models.yaml", "--features", "--on", "p3.16xlarge") == 2
    assert "models.yaml is there and has its own `targets:`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--features", "--on", "p3.9xlarge"), "unknown instance"),
        ((), "name a study file"),
        (("small.yaml", "--on", "here"), "--on says where the study of --features is run"),
    ],
)
def test_what_is_refused_writes_nothing(
    folder: Path, monkeypatch: Patch, capsys: Capture, words: tuple[str, ...], sentence: str
) -> None:
    assert run(monkeypatch, "characterize", *words) == 2
    assert sentence in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_every_place_has_its_own_line_in_the_models_own_bytes(
    measured: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    assert run(monkeypatch, "whatif", "--by-features", "--from", "small.yaml", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["study"]) == (1, "small")
    assert [(each["place"], each["nodes"], each["batch"]) for each in found["places"]] == [
        ("p3.8xlarge", 1, 32), ("p2.8xlarge", 1, 32),
    ]  # fmt: skip
    for each in found["places"]:
        terms = {term["name"]: term["estimate"]["value"] for term in each["terms"]}
        assert terms["gradients"] == pytest.approx(LINK[each["place"]], rel=0.02)
        sizes = {model["name"]: model["gradient_bytes"] for model in each["models"]}
        assert sizes["vgg11"] == pytest.approx(4 * 132_863_336, rel=0.001)
        assert {model["name"]: (model["residual"], model["batch_norm"]) for model in each["models"]} == {
            "resnet18": (True, True), "resnet50_noskip": (False, True), "resnet34_nobn": (True, False),
            "vgg11": (False, False), "vgg16_bn": (False, True),
        }  # fmt: skip


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


def test_a_job_of_another_machine_is_told_by_the_line(measured: Path, monkeypatch: Patch, capsys: Capture) -> None:
    gradients = tuple(Gradient(name=f"g{n}", bytes=4_000_000) for n in range(100))
    mine = build({"solo": [0.1, 0.1]}, ranks=1, workload={"name": "mine", "gradients": gradients})
    save(mine, measured.with_name("mine.stash.json"))
    assert (
        run(monkeypatch, "whatif", "--by-features", "--from", "small.yaml", "--job", "mine.stash.json", "--json") == 0
    )
    for each in json.loads(capsys.readouterr().out)["places"]:
        (model,) = each["zoo"]
        terms = {term["name"]: term["estimate"]["value"] for term in each["terms"]}
        assert (model["name"], model["layers"]) == ("mine", 100)
        by_hand = terms["constant"] + 100 * terms["layers"] + 4e8 * terms["gradients"]
        assert model["seconds"] == pytest.approx(by_hand, rel=1e-6)
    assert run(monkeypatch, "whatif", "--by-features", "--from", "small.yaml", "--job", "mine.stash.json") == 0
    text = capsys.readouterr().out
    assert "layers and gradients, p3.8xlarge at batch 32" in text
    assert "mine" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_study_that_has_not_run_and_files_beside_it_are_refused(
    folder: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    (folder / "small.yaml").write_text(SMALL)
    assert run(monkeypatch, "whatif", "--by-features", "--from", "small.yaml") == 2
    assert "run it first, like `stash characterize small.yaml`" in capsys.readouterr().err
    assert run(monkeypatch, "whatif", "--by-features", "a.stash.json", "--from", "small.yaml") == 2
    assert "--from takes the profiles of a study" in capsys.readouterr().err
