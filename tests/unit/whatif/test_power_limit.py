"""``stash whatif --power-limit``: its answer, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import commands
import pytest
from forecast_profiles import cpu_job, gpu_job

from stash.core.artefact import save
from stash.core.records.circumstances import EnergyUse

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
USE = EnergyUse(
    rung="cold",
    seconds=(2.0, 2.0),
    joules={"gpus": (1000.0, 1000.0)},
    counts={"gpus": 2},
)
"""250 W each of two V100s, whose default limit is 300 W."""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    job = gpu_job()
    strange = [
        host.model_copy(
            update={"gpus": tuple(g.model_copy(update={"name": "X1"}) for g in host.gpus)}
        )
        for host in job.hosts
    ]
    save(job, tmp_path / "old.stash.json")
    save(job.model_copy(update={"energy": USE}), tmp_path / "gpu.stash.json")
    save(job.model_copy(update={"hosts": tuple(strange)}), tmp_path / "strange.stash.json")
    save(cpu_job(), tmp_path / "cpu.stash.json")


def answer(monkeypatch: Patch, capsys: Capture, *words: str) -> dict:
    assert commands.run(monkeypatch, "whatif", *words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_the_step_and_its_energy_under_a_limit(monkeypatch: Patch, capsys: Capture) -> None:
    found = answer(monkeypatch, capsys, "gpu.stash.json", "--power-limit", "200W")
    assert (found["limit_watts"], found["default_watts"], found["draw_watts"]) == (200, 300, 250)
    times, joules = found["times_seconds"], found["times_gpu_joules"]
    assert 1.0 < times["value"] < 1.2
    assert 0.7 < joules["value"] < 0.9
    step = found["limited_step_seconds"]
    assert step["value"] == pytest.approx(0.3 * times["value"], rel=1e-3)
    assert step["low"] < step["value"] < step["high"]
    # 500 W for 0.3 s
    assert found["gpu_joules"] == pytest.approx(150, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("cpu.stash.json --power-limit 200", "profiled on CPUs"),
        (
            "old.stash.json --power-limit 0.2kW",
            "energy of its GPUs was not counted; run `stash profile",
        ),
        ("gpu.stash.json --power-limit 60", "give 115 to 300"),
        ("gpu.stash.json --power-limit 400", "give 115 to 300"),
        ("strange.stash.json --power-limit 200", "default limit of X1 is unknown"),
        ("gpu.stash.json --power-limit 200 --nodes 4", "leave --nodes out"),
        ("gpu.stash.json --power-limit 200 --sweep nodes=1..4", "leave --sweep out"),
        ("gpu.stash.json --power-limit much", "cannot read the power 'much'"),
        ("gpu.stash.json --power-limit -5", "it must be more than 0"),
    ],
)
def test_what_no_curve_answers_is_refused_in_a_sentence(
    monkeypatch: Patch, capsys: Capture, words: str, says: str
) -> None:
    assert commands.run(monkeypatch, "whatif", *words.split()) == 2
    error = capsys.readouterr().err
    assert says in " ".join(error.split())
    assert "Traceback" not in error
