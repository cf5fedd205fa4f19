"""``stash probe``: what it refuses, prints, and saves under which name."""

import json
import re

import pytest
from probe_builder import host, links, p3_8xlarge, probe
from typer.testing import CliRunner

from stash.cli.main import app
from stash.core.artefact import load_probe, save
from stash.core.errors import UserError
from stash.measure.launcher import probe_launch as probing


def stash(*words):
    """The command as a shell would run it, its errors included."""
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, list(words))


def test_a_profile_takes_no_probe_of_another_machine(tmp_path):
    save(probe(host("somewhere-else", links())), tmp_path / "x.host.json")
    result = stash("profile", "--workload", "resnet18", "--probe", str(tmp_path / "x.host.json"))
    assert isinstance(result.exception, UserError)
    assert "not of this machine" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--expect", "p3.9xlarge"], r"unknown instance 'p3\.9xlarge'; did you mean"),
        (["--instance", "nope"], r"unknown instance 'nope'"),
        (["/no/such/folder"], r"there is no data folder /no/such/folder"),
        (["old.host.json"], r"shown with `stash show old\.host\.json`"),
        (["--only", "disks"], r"'disks'.*choose from .*reads"),
        (["--only", "copies", "--no-measure"], r"exclude each other"),
        (["--budget", "0"], r"--budget"),
        (["--budget", "nan"], r"--budget"),
        (["-o", "/no/such/folder/x.host.json"], r"there is no folder /no/such/folder"),
        (["--nnodes", "2"], r"needs --rdzv-endpoint"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence_before_anything_is_measured(
    words, says, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = stash("probe", *words)
    assert isinstance(result.exception, UserError), result.output
    assert result.exception.exit_code == 2
    assert re.search(says, str(result.exception))
    assert "\n" not in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_no_measure_says_what_the_machine_is_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = stash("probe", "--no-measure")
    assert result.exit_code == 0, result.exception
    assert "no link was measured" in result.output
    assert list(tmp_path.iterdir()) == []
    made = json.loads(stash("probe", "--no-measure", "--json", "--instance", "p3.8xlarge").stdout)
    assert made["probe"]["hosts"][0]["instance"] == "p3.8xlarge"
    assert made["comparisons"][0]["instance"] == "p3.8xlarge"


def test_what_is_measured_is_shown_and_saved_under_the_machines_name(tmp_path, monkeypatch):
    asked = {}

    def measured(where, **wishes):
        asked.update(wishes)
        wishes["say"]("copies")
        return probe(p3_8xlarge())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probing, "run_probe", measured)
    monkeypatch.setattr("socket.gethostname", lambda: "box.example.org")
    result = stash("probe", str(tmp_path), "--only", "copies, reads", "--budget", "20")
    assert result.exit_code == 0, result.exception
    assert (asked["data"], asked["what"], asked["budget"]) == (
        tmp_path,
        frozenset({"copies", "reads"}),
        20.0,
    )
    assert load_probe(tmp_path / "box.host.json") == probe(p3_8xlarge())
    assert "`stash profile --probe box.host.json train.py`" in " ".join(result.stdout.split())
    assert "copying in memory" in result.stderr
    stash("probe")
    assert (tmp_path / "box-2.host.json").exists()  # never over an earlier one
