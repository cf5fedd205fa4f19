"""``stash compare --markdown`` and ``stash check --markdown``: tables for a pull request."""

from __future__ import annotations

from pathlib import Path

import pytest
from breakdowns import CALM
from commands import run
from profile_builder import build

from stash.core.artefact import save

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, batch in (("a", 8), ("b", 16)):
        save(build(CALM, batch=batch), tmp_path / f"{name}.stash.json")


def test_a_check_is_a_table_with_a_row_for_every_limit(monkeypatch: Patch, capsys: Capture) -> None:
    words = ("--max", "step=1s", "--require", "ranks=8")
    assert run(monkeypatch, "check", "a.stash.json", *words, "--markdown") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "## Stash check: fails"
    assert "| fails | \\--require ranks=8 | ranks is 2; asked for is 8 |" in lines
    assert sum(line.startswith("| passes |") for line in lines) == 1


def test_a_comparison_is_a_table_of_stalls(monkeypatch: Patch, capsys: Capture) -> None:
    assert run(monkeypatch, "compare", "a.stash.json", "b.stash.json", "--markdown") == 0
    text = capsys.readouterr().out
    assert "**Compared per sample; the sides differ in batch per device 8 → 16.**" in text
    assert "\n| compute | " in text


@pytest.mark.parametrize(
    "words",
    [("compare", "a.stash.json", "b.stash.json"), ("check", "a.stash.json", "--max", "step=1s")],
)
def test_an_answer_has_one_format(
    monkeypatch: Patch, capsys: Capture, words: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *words, "--json", "--markdown") == 2
    assert "--json and --markdown are two formats of one answer" in capsys.readouterr().err
