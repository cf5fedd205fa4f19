"""``stash compare --markdown`` and ``stash check --markdown``: tables for a pull request."""

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.core.artefact import save


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, batch in (("a", 8), ("b", 16)):
        save(build(CALM, batch=batch), tmp_path / f"{name}.stash.json")


def test_a_check_is_a_table_with_a_row_for_every_limit(run_stash):
    words = ("--max", "step=1s", "--require", "ranks=8")
    lines = run_stash("check", "a.stash.json", *words, "--markdown", code=1).out.splitlines()
    assert lines[0] == "## Stash check: fails"
    assert "| fails | \\--require ranks=8 | ranks is 2; asked for is 8 |" in lines
    assert sum(line.startswith("| passes |") for line in lines) == 1


def test_a_comparison_is_a_table_of_stalls(run_stash):
    text = run_stash("compare", "a.stash.json", "b.stash.json", "--markdown").out
    assert "**Compared per sample; the sides differ in batch per device 8 → 16.**" in text
    assert "\n| compute | " in text
