"""``stash whatif``: what it prints for people and for programs, its curves and pictures, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import commands
import probe_builder
import pytest
from forecast_profiles import cpu_job, gpu_job

from stash.core.artefact import save

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    save(gpu_job(), tmp_path / "gpu.stash.json")
    save(cpu_job(), tmp_path / "cpu.stash.json")
    return tmp_path


def run(monkeypatch: Patch, *words: str) -> int:
    return commands.run(monkeypatch, "whatif", *words)


def test_the_document_adds_up(monkeypatch: Patch, capsys: Capture):
    assert run(monkeypatch, "gpu.stash.json", "--nodes", "8", "--network", "100gbit", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    forecast = found["forecast"]
    parts = [stall["seconds"]["value"] for stall in forecast["stalls"]]
    assert sum(parts) == pytest.approx(forecast["step_seconds"]["value"], rel=1e-4)
    assert found["changes"] == {"nodes": "8", "network": "100gbit"}
    assert (
        forecast["step_seconds"]["low"]
        < forecast["step_seconds"]["value"]
        < forecast["step_seconds"]["high"]
    )
    assert {fact["origin"] for stall in forecast["stalls"] for fact in stall["facts"]} >= {
        "measured",
        "data sheet",
    }
    assert "1,024 samples instead of 256" in found["training"][0]


def test_the_document_has_names_of_its_own(monkeypatch: Patch, capsys: Capture):
    assert run(monkeypatch, "gpu.stash.json", "--dtype", "amp", "--workers", "4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["changes"] == {
        "workers": "4",
        "precision-of-training": "amp",
    }
    assert run(monkeypatch, "gpu.stash.json", "--sweep", "dtype=fp32,amp", "--json") == 0
    assert json.loads(capsys.readouterr().out)["over"] == ["precision-of-training"]


def test_what_cannot_be_predicted_is_named_and_there_is_no_step(
    monkeypatch: Patch, capsys: Capture
):
    assert run(monkeypatch, "cpu.stash.json", "--nodes", "4") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "The step cannot be predicted, because network cannot" in out
    assert "say it with --network" in out


def test_a_sweep_for_programs_has_a_forecast_a_point(monkeypatch: Patch, capsys: Capture):
    assert run(monkeypatch, "cpu.stash.json", "--sweep", "nodes=1..2", "--json") == 0
    one, two = json.loads(capsys.readouterr().out)["points"]
    assert one["values"] == {"nodes": "1"}
    assert one["forecast"]["step_seconds"]["value"] == pytest.approx(0.2)
    assert two["forecast"] is None
    assert "network" in two["why"]


def test_a_curve_is_drawn_into_a_file(monkeypatch: Patch, files: Path):
    for ending in ("svg", "html"):
        assert (
            run(
                monkeypatch,
                "gpu.stash.json",
                "--sweep",
                "network=1gbit..100gbit",
                "-o",
                f"curve.{ending}",
            )
            == 0
        )
        drawn = (files / f"curve.{ending}").read_text()
        assert "100gbit" in drawn
        assert drawn.count("<circle") >= 7
    assert (files / "curve.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("words", "notes"),
    [
        (["--nodes", "2", "-o", "x.png"], "say over what"),
        (["--sweep", "nodes=1..4", "-o", "x.gif"], "pictures end in"),
        (["--sweep", "nodes=1..4", "--nodes", "2"], "both set and swept"),
        (
            ["--sweep", "instance=p3.8xlarge,p3.9xlarge"],
            "unknown instance 'p3.9xlarge'; did you mean",
        ),
        (["--sweep", "gpu=T4,T5"], "unknown GPU 'T5'; did you mean"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    monkeypatch: Patch, capsys: Capture, words: list[str], notes: str
):
    assert run(monkeypatch, "gpu.stash.json", *words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert notes in error
    assert "Traceback" not in error


def test_machines_may_be_probed(files: Path, monkeypatch: Patch, capsys: Capture):
    save(probe_builder.probe(probe_builder.p3_8xlarge()), files / "vm.host.json")
    assert run(monkeypatch, "gpu.stash.json", "--cluster", "vm.host.json", "--json") == 0
    assert json.loads(capsys.readouterr().out)["target"]["devices"] == 4


@pytest.mark.parametrize(
    ("file", "more", "sentence"),
    [
        ("nowhere.host.json", (), "there is no file nowhere.host.json"),
        ("cpu.stash.json", (), "is no *.host.json; `stash probe` writes one"),
        ("vm.host.json", ("--cpus", "3"), "says already what --cpus"),
        ("vm.host.json", ("--instance", "p3.8xlarge"), "says already what"),
    ],
)
def test_a_file_that_describes_no_cluster(
    monkeypatch: Patch, capsys: Capture, file: str, more: tuple[str, ...], sentence: str
):
    assert run(monkeypatch, "cpu.stash.json", "--cluster", file, *more) == 2
    assert sentence in capsys.readouterr().err
