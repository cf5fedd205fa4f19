"""The commands around a verdict: probe --for, watch --accept, compare and export of probes; what they refuse."""

import json
import re

import pytest
from forecast_profiles import cpu_job, gpu_job
from typer.testing import CliRunner

from bench.probe import ScriptedGpu, scripted_machine
from stash.cli.main import app
from stash.core.artefact import save
from stash.core.errors import UserError
from stash.measure.launcher import probe_launch

HEALTHY = scripted_machine(ScriptedGpu())
SLOW = scripted_machine(ScriptedGpu(ClockInfo=1185, CurrentClocksEventReasons=0x80), slow=0.89)
SLOW = SLOW.model_copy(update={"created": "2026-11-30T00:00:00"})


def stash(*words):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, list(words))


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """What was asked of the measurement, which finds GPU 3 slow."""
    asked = {}

    def found(where, **wishes):
        asked.update(wishes, where=where)
        return SLOW

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probe_launch, "run_probe", found)
    return asked


def test_a_probe_for_a_job_says_what_its_step_loses(measured, tmp_path, monkeypatch):
    monkeypatch.setattr("stash.measure.host.gpus.count_gpus", lambda: 8)
    save(gpu_job(), tmp_path / "train.stash.json")
    result = stash(
        "probe", "--quick", "--for", "train.stash.json", "--expect", "p4d.24xlarge", "--json"
    )
    assert result.exit_code == 0, result.exception
    verdict = json.loads(result.stdout)["verdict"]
    assert verdict["answer"] == "fine for this job"  # its steps wait for storage, whatever GPUs do
    assert verdict["lost_share"] < 0.02
    assert verdict["dollars_per_hour"] > 10
    assert (measured["budget"], measured["what"], measured["force"]) == (
        6.0,
        {"compute", "copies", "streams", "exchanges"},
        False,
    )
    shown = stash("probe", "--quick", "--force").stdout
    assert "Give it back: GPU 3 ran at 84% of its highest clock" in " ".join(shown.split())
    assert measured["force"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["probe", "--for", "gpu.stash.json"],
            "trains on Tesla V100-SXM2-16GB, and this machine has no GPU",
        ),
        (["probe", "--for", "a.host.json"], "is a probe of a machine; give the"),
        (["probe", "--for", "none.stash.json"], "none.stash.json"),
        (["probe", "--quick", "--budget", "20"], "leave --budget out"),
        (["probe", "--quick", "--no-measure"], "leave --no-measure out"),
        (["watch", "--json", "train.py"], "--json is of the verdict that --accept makes"),
        (["watch", "--accept", "--baseline", "gpu.stash.json"], "has no GPU that NVML knows"),
        (["compare", "a.host.json", "b.host.json", "vs", "c.host.json"], "compared two by two"),
        (["compare", "a.host.json", "gpu.stash.json"], "is a probe of a machine"),
        (
            ["export", "a.host.json", "--to", "tensorboard", "-o", "tb"],
            "a probe goes to openmetrics only",
        ),
    ],
)
def test_a_mistake_is_one_sentence(words, says, measured, tmp_path):
    save(gpu_job(), tmp_path / "gpu.stash.json")
    for name in "abc":
        save(SLOW.model_copy(update={"stash_version": name}), tmp_path / f"{name}.host.json")
    result = stash(*words)
    assert isinstance(result.exception, UserError), result.output
    assert result.exception.exit_code == 2
    assert re.search(re.escape(says), str(result.exception))
    assert "\n" not in str(result.exception)


def test_a_machine_is_refused_by_its_exit_code_before_anything_is_started(measured, tmp_path):
    # there is no such script: nothing gets that far
    result = stash("watch", "--accept", "--json", "train.py")
    assert result.exit_code == 3
    assert "Give it back" in result.stderr
    assert len(result.stdout) <= 2049
    assert json.loads(result.stdout)["answer"] == "give back"
    assert measured["where"].nnodes == 1
    assert measured["budget"] <= 15


def test_a_sound_machine_is_accepted_and_without_a_job_that_is_all(measured, tmp_path, monkeypatch):
    monkeypatch.setattr(probe_launch, "run_probe", lambda where, **wishes: HEALTHY)
    save(cpu_job(), tmp_path / "cpu.stash.json")
    result = stash("watch", "--accept", "--baseline", "cpu.stash.json", "--store", "kept")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "Keep it" in result.stderr
    assert len(list((tmp_path / "kept").glob("*.host.json"))) == 1


def test_two_probes_are_compared_figure_by_figure(measured, tmp_path):
    save(HEALTHY, tmp_path / "monday.host.json")
    save(SLOW, tmp_path / "today.host.json")
    shown = " ".join(stash("compare", "monday.host.json", "today.host.json").stdout.split())
    assert "GPU 3 -11.0%" in shown
    (found,) = json.loads(stash("compare", "monday.host.json", "today.host.json", "--json").stdout)
    assert [each["member"] for each in found["figures"] if each["differs"]] == ["GPU 3"]
