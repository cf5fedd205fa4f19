"""Processes that make samples: how many, and why none."""

from __future__ import annotations

from pathlib import Path

from stash.core.records.host import Unmeasured
from stash.measure.probe import preparation


def test_processes_double_up_to_the_cores():
    assert [preparation.process_counts(cores) for cores in (1, 2, 6, 8)] == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]
    assert preparation.process_counts(200)[-1] == 64


def test_without_a_kind_and_without_samples_preparation_is_unmeasured(tmp_path: Path):
    unnamed = preparation.measure(None, None, tmp_path, 1, 1.0)
    assert next(one.why for one in unnamed if isinstance(one, Unmeasured)).startswith("no kind of data set")
    (tmp_path / "empty").mkdir()
    empty = preparation.measure("clicks", tmp_path / "empty", tmp_path, 1, 1.0)
    assert "holds no clicks" in next(one.why for one in empty if isinstance(one, Unmeasured))
