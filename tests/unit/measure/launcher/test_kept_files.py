"""Sentences about the files a job wrote to."""

from __future__ import annotations

from pathlib import Path

from stash.measure.launcher.guarded import sentences
from stash.measure.protocol.put_back import RestoreReport


def test_a_job_that_changed_nothing_gets_no_word():
    assert sentences(RestoreReport()) == []


def test_files_are_counted_and_the_first_few_are_named_as_seen_from_here():
    here = Path.cwd()
    paths = tuple(str(here / name) for name in ("a.pt", "b.pt", "c.pt", "d.pt", "e.pt"))
    put_back, look, new = sentences(RestoreReport(paths, ("/elsewhere/big (too large to keep)",), paths[:1]))
    assert put_back.endswith("the job wrote to or removed 5 files: a.pt, b.pt, c.pt and 2 more")
    assert look.endswith("/elsewhere/big (too large to keep)")
    assert ", 1 file; remove" in new
