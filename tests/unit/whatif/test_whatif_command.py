"""``stash whatif``: what it prints for people and for programs, its curves and pictures."""

import json

import commands
import probe_builder
import pytest
from forecast_profiles import cpu_job, gpu_job

from stash.core.artefact import save


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    save(gpu_job(), tmp_path / "gpu.stash.json")
    save(cpu_job(), tmp_path / "cpu.stash.json")
    return tmp_path


def run(monkeypatch, *words):
    return commands.run(monkeypatch, "whatif", *words)


@pytest.mark.parametrize("option", ["--network", "--disk"])
def test_a_multiple_of_what_was_profiled_is_a_change(monkeypatch, capsys, option):
    assert run(monkeypatch, "gpu.stash.json", option, "2x", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["changes"] == {option.removeprefix("--"): "2x"}
    assert found["forecast"]["step_seconds"]["value"] < found["measured"]["step_seconds"]["value"]


def test_the_document_adds_up(monkeypatch, capsys):
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


def test_the_document_has_names_of_its_own(monkeypatch, capsys):
    assert run(monkeypatch, "gpu.stash.json", "--dtype", "amp", "--workers", "4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["changes"] == {
        "workers": "4",
        "precision-of-training": "amp",
    }
    assert run(monkeypatch, "gpu.stash.json", "--sweep", "dtype=fp32,amp", "--json") == 0
    assert json.loads(capsys.readouterr().out)["over"] == ["precision-of-training"]


def test_what_cannot_be_predicted_is_named_and_there_is_no_step(monkeypatch, capsys):
    assert run(monkeypatch, "cpu.stash.json", "--nodes", "4") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "The step cannot be predicted, because network cannot" in out
    assert "say it with --network" in out


def test_a_curve_is_drawn_into_a_file(monkeypatch, files):
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


def test_machines_may_be_probed(files, monkeypatch, capsys):
    save(probe_builder.probe(probe_builder.p3_8xlarge()), files / "vm.host.json")
    assert run(monkeypatch, "gpu.stash.json", "--cluster", "vm.host.json", "--json") == 0
    assert json.loads(capsys.readouterr().out)["target"]["devices"] == 4
