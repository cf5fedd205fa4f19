"""The end of a run of tests: skips by what is missing, and files that were left in the repository."""

from __future__ import annotations

import subprocess

from session_end import describe_skips, list_strays


def test_skips_are_one_line_that_says_what_to_install():
    reasons = ["Skipped: Chromium is not installed"] * 2
    reasons += [
        "Skipped: there is no zsh",
        "Skipped: could not import 'mlflow': No module named 'mlflow'",
    ]
    reasons += ["Skipped: root may write everywhere"]
    assert describe_skips(reasons) == (
        "5 skipped: 2 no browser (apt install chromium), 1 no zsh (apt install zsh), "
        "1 no mlflow (pip install mlflow), 1 not for this machine"
    )
    assert describe_skips([]) == ""


def test_what_git_does_not_have_is_a_stray_even_if_it_is_ignored(tmp_path):
    assert list_strays(tmp_path) is None
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("*.pt\n__pycache__/\n")
    before = list_strays(tmp_path)
    (tmp_path / "model.pt").write_text("weights")
    (tmp_path / ".kept-by-stash-job").mkdir()
    (tmp_path / ".kept-by-stash-job/mine.db").write_text("rows")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/a.pyc").write_text("code")
    assert (list_strays(tmp_path) or frozenset()) - before == {"model.pt", ".kept-by-stash-job/"}
