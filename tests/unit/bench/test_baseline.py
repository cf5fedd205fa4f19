"""The freeze: what counts as the same line, and that its file holds the signatures of today."""

from __future__ import annotations

import json

from bench import baseline


def test_lines_are_the_same_to_nine_digits():
    assert baseline.is_same("step 0.004148661050914219 s", "step 0.004148661050914216 s")
    assert not baseline.is_same("step 0.0041486611 s", "step 0.0041486622 s")
    assert not baseline.is_same("step 1 s", "steps 1 s")
    assert baseline.list_differences(["a 1", "b"], ["a 1"]) == ["- b", "+ "]


def test_the_file_has_figures_of_every_bench():
    found = json.loads(baseline.FILE.read_text())
    assert set(found) == {"signatures", *baseline.COMMANDS}
    assert all(found.values())
