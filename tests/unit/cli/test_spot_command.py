"""``stash spot``: what fit, predict and plan print, what their JSON holds, and what they refuse."""

import json
import re
import shutil

import pytest
from commands import run
from fleet_pools import PUBLISHED
from golden_profiles import GOLDEN

RUNS = """servers,workers,updates_per_second
1,v100=1,16.2
1,k80=1,4.7
1,v100=2+k80=1,33.5
1,v100=4,44.1
1,k80=6,27.2
1,v100=3,40.5
"""
PLAN = ("plan", "--pool", str(PUBLISHED))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "runs.csv").write_text(RUNS)
    return tmp_path


def spot(monkeypatch, capsys, *words, code=0):
    """What was printed, or of a command that ends with ``code`` 2 its error."""
    assert run(monkeypatch, "spot", *words) == code
    printed = capsys.readouterr()
    return printed.err if code == 2 else printed.out


def test_a_fit_is_saved_and_asked(monkeypatch, capsys):
    text = spot(monkeypatch, capsys, "fit", "runs.csv")
    assert "6 runs, 4 of several workers" in text
    assert "Wrote runs.fleet.json" in text
    assert max(map(len, text.splitlines())) <= 80
    found = json.loads(
        spot(
            monkeypatch,
            capsys,
            "predict",
            "runs.fleet.json",
            "--fleet-workers",
            "v100=1,k80=2",
            "--json",
        )
    )
    assert {"updates_per_second", "low", "high", "servers", "workers", "beyond"} <= set(found)
    assert found["low"] < found["updates_per_second"] < found["high"]
    assert found["updates_per_second"] == pytest.approx(16.2 + 2 * 4.7, rel=0.1)
    text = spot(monkeypatch, capsys, "predict", "runs.fleet.json", "--fleet-workers", "k80=20")
    assert "20 x k80, 1 server" in text
    assert "! 20 workers are more than the 6 of the largest run" in text


def _a_fifth_more(price):
    return f"{price[0]}, on_demand_dollars_per_hour: {1.2 * float(price[1]):.4f}"


def test_a_plan_rents_on_demand_what_revocations_would_make_late(monkeypatch, capsys, folder):
    cheap = re.sub(r"dollars_per_hour: ([\d.]+)", _a_fifth_more, PUBLISHED.read_text())
    (folder / "pool.yaml").write_text(f"start_seconds: 60\n{cheap}")
    words = ("plan", "--pool", "pool.yaml", "--deadline", "2400s", "--loss", "0.8")
    found = json.loads(spot(monkeypatch, capsys, *words, "--interruptions", "12/h", "--json"))
    assert set(found["on_demand"]) == set(found["workers"])
    assert found["risk"]["lives"] == []
    assert found["advice"].startswith("refuse spot: on-demand costs $")


RISKY = (*PLAN, "--deadline", "1h", "--loss", "0.8")


def test_a_run_s_log_is_shown_reported_and_drawn(monkeypatch, capsys, folder):
    shutil.copy(GOLDEN / "schema-1.spotlog.json", folder / "job.spotlog.json")
    assert run(monkeypatch, "show", "job.spotlog.json", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["takeovers"]) == 3
    assert run(monkeypatch, "report", "job.spotlog.json", "--format", "svg", "-o", "figures") == 0
    assert {path.name for path in (folder / "figures").iterdir()} == {"losses.svg"}
    assert run(monkeypatch, "show", "job.spotlog.json", "--redact") == 2
    assert "is about profiles, and job.spotlog.json is a log of a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--interruptions", "often"), "--interruptions: cannot read the interruptions 'often'"),
        (
            ("--interruptions", "g9.huge=1/h"),
            "--interruptions g9.huge: the plan's pool has no such type; it has",
        ),
        (("--interruptions", "1/h", "--interruptions", "2/h"), "is given 2 times for all types"),
        (("--interruptions", "g3.8xlarge=1/h"), "how often p3.2xlarge is revoked is unknown"),
    ],
)
def test_dangers_that_cannot_be_read_are_one_sentence(monkeypatch, capsys, words, sentence):
    assert sentence in spot(monkeypatch, capsys, *RISKY, "--quota", "g3.8xlarge=2", *words, code=2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("fit", "none.csv"), "cannot read the runs none.csv"),
        (("predict", "runs.csv", "--fleet-workers", "k80=1"), "runs.csv is not a fitted model"),
        (("predict", "m.json", "--fleet-workers", "p100=1"), "no run has a single p100"),
        (("predict", "m.json", "--fleet-workers", "k80"), "write it like v100=2,k80=1"),
        (
            (*PLAN, "--deadline", "1h", "--loss", "0.8", "--quota", "g3.8xlage=2"),
            "did you mean g3.8xlarge?",
        ),
        ((*PLAN, "--deadline", "soon", "--loss", "0.8"), "cannot read the duration 'soon'"),
        (
            (*PLAN, "--deadline", "1h", "--loss", "1e400"),
            "--loss 1e400: it must be more than 0, and finite",
        ),
        (
            (*PLAN, "--deadline", "1h", "--loss", "0.8", "-o", "no/where.json"),
            "there is no folder no",
        ),
    ],
)
def test_mistakes_are_one_sentence_that_says_what_to_type(
    monkeypatch, capsys, folder, words, sentence
):
    if "m.json" in words:
        spot(monkeypatch, capsys, "fit", "runs.csv", "-o", "m.json")
    assert sentence in spot(monkeypatch, capsys, *words, code=2)
