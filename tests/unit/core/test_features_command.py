"""``stash whatif --by-features``: what it prints, what its JSON holds, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import run
from profile_builder import build

from stash.core.artefact import save
from stash.core.records.profile import Collective, Gradient

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
MODELS = {"resnet18": (60, 47e6), "resnet34": (110, 87e6), "vgg16": (32, 553e6), "resnet50_noskip": (150, 91e6)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Four models whose stalls are 2 ms, 20 µs a layer and 0.1 ns a byte."""
    monkeypatch.chdir(tmp_path)
    steps = [0.1, 0.101, 0.099]
    for name, (layers, size) in MODELS.items():
        stall = 0.002 + 2e-5 * layers + 1e-10 * size
        gradients = tuple(
            Gradient(name=str(i), bytes=int(size / layers), ready_seconds=0.05 * i / layers) for i in range(layers)
        )
        run = Collective(scope="node", ranks=2, bytes=int(size), seconds=1.2e-10 * size)
        made = build(
            {"solo": steps, "crowd": steps, "node": [step + stall for step in steps]},
            collectives=(run, run),
            workload={"name": name, "gradients": gradients, "bucket_bytes": (int(size),)},
        )
        save(made, tmp_path / f"{name}.stash.json")
    return tmp_path


def test_without_words_all_profiles_of_the_folder_are_taken(monkeypatch: Patch, capsys: Capture) -> None:
    assert run(monkeypatch, "whatif", "--by-features") == 0
    text = capsys.readouterr().out
    assert "4 models: the line explains 100% of the stalls" in text
    assert "20.0" in text
    assert "per layer" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_json_holds_coefficients_and_errors_out_of_sample(monkeypatch: Patch, capsys: Capture) -> None:
    assert run(monkeypatch, "whatif", "--by-features", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    assert [term["name"] for term in found["terms"]] == ["constant", "layers", "gradients"]
    assert found["terms"][2]["estimate"]["value"] == pytest.approx(1e-10, rel=1e-3)
    assert found["error"] == pytest.approx(0.0, abs=1e-4)
    assert found["timeline_error"] > 0
    assert found["models"][0]["residual"] is True
    assert found["zoo"] == []


def test_zoo_models_are_told_by_the_line(monkeypatch: Patch, capsys: Capture) -> None:
    assert run(monkeypatch, "whatif", "--by-features", "--zoo", "--json") == 0
    zoo = {each["name"]: each for each in json.loads(capsys.readouterr().out)["zoo"]}
    assert "resnet18" not in zoo
    assert zoo["vgg19"]["layers"] == 38
    assert zoo["vgg19"]["seconds"] == pytest.approx(0.002 + 2e-5 * 38 + 1e-10 * 4 * 143_667_240, rel=1e-3)


def test_an_empty_folder_is_an_error_that_says_what_to_type(
    monkeypatch: Patch, capsys: Capture, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert run(monkeypatch, "whatif", "--by-features") == 2
    assert "name some, like `stash whatif --by-features runs/*.stash.json`" in capsys.readouterr().err


def test_machines_that_differ_are_refused(monkeypatch: Patch, capsys: Capture, tmp_path: Path) -> None:
    save(build({"solo": [0.1, 0.1], "crowd": [0.1, 0.1], "node": [0.2, 0.2]}, ranks=4), tmp_path / "z.stash.json")
    assert run(monkeypatch, "whatif", "--by-features") == 2
    printed = capsys.readouterr().err
    assert "is of 2 ranks on 1 node of CPUs and z.stash.json of 4 ranks" in printed
    assert "name those of one" in printed


def test_of_a_folder_profiles_that_exchange_nothing_are_left_out(monkeypatch: Patch, tmp_path: Path) -> None:
    save(build({"solo": [0.1, 0.1]}, ranks=1), tmp_path / "alone.stash.json")
    assert run(monkeypatch, "whatif", "--by-features") == 0


def test_too_few_models_are_refused(monkeypatch: Patch, capsys: Capture) -> None:
    assert run(monkeypatch, "whatif", "--by-features", "vgg16.stash.json") == 2
    assert "1 different model cannot determine 3 coefficients" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("vgg16.stash.json", "--zoo"), "--zoo belongs to --by-features"),
        (("--from", "features.yaml"), "--from belongs to --by-features"),
        (("--by-features", "--nodes", "4"), "--nodes is about the step of one profile, --by-features about many"),
        (("--by-features", "--sweep", "nodes=1..4"), "--sweep is about the step of one profile"),
        (("--by-features", "vgg16.stash.json", "--from", "features.yaml"), "leave out the files, or --from"),
        ((), "no profile is given; type `stash whatif RUN --nodes 8`"),
        (("a.stash.json", "b.stash.json"), "b.stash.json: a step is predicted from one profile"),
    ],
)
def test_one_profile_and_many_are_kept_apart(
    monkeypatch: Patch, capsys: Capture, words: tuple[str, ...], sentence: str
) -> None:
    assert run(monkeypatch, "whatif", *words) == 2
    assert sentence in capsys.readouterr().err
