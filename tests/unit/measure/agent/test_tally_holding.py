"""Files held by a training process and its workers: all let go before any is dropped."""

from __future__ import annotations

import mmap
import multiprocessing
import os
from contextlib import contextmanager
from pathlib import Path

import pytest
from data_folder import PAGES

from stash.measure.agent.data import reads
from stash.measure.agent.data.tally import COLD, WARM, Tally, _own

PATIENCE = 60


def mapped(path: Path) -> mmap.mmap:
    """A file mapped, and every page of it read."""
    with path.open("rb") as opened:
        found = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    found[:]
    return found


def counted(paths):
    """Pages of files, and how many are left in memory after eviction."""
    counts = reads.examine_files(paths, cold=True)
    return counts["pages"], counts["resident"]


def _work(tally: Tally, path: Path, answers, ends, ready):
    kept = mapped(path)
    if answers:
        reads.answer_calls(os.getpid())
    ready.set()
    ends.wait(PATIENCE)
    kept.close()


@contextmanager
def worker(tally: Tally, path: Path, answers):
    """A forked worker that maps a file, and answers calls or not."""
    forked = multiprocessing.get_context("fork")
    ends, ready = forked.Event(), forked.Event()
    process = forked.Process(target=_work, args=(tally, path, answers, ends, ready))
    process.start()
    assert ready.wait(PATIENCE)
    yield
    ends.set()
    process.join(PATIENCE)


@pytest.fixture(autouse=True)
def _of_this_process(monkeypatch):
    monkeypatch.setattr(_own, "maker", os.getpid())


@pytest.mark.parametrize("answers", [True, False])
def test_a_file_that_a_worker_maps_too_is_dropped_when_both_have_let_go(
    tally: Tally, tmp_path, answers
):
    path = tmp_path / "data" / "0.bin"
    kept = mapped(path)
    with worker(tally, path, answers):
        # GIVEN that both map it WHEN a cold block begins
        tally.set_mode(COLD)
        held = reads.let_go_everywhere(tally)
        # THEN it leaves the cache if the worker answers, and is seen to stay if not
        assert held == [str(path)]
        assert counted(held) == (PAGES, 0 if answers else PAGES)
    kept.close()


def test_a_file_that_only_a_worker_holds_is_known(tally: Tally, tmp_path):
    with worker(tally, tmp_path / "data" / "1.bin", answers=True):
        tally.set_mode(COLD)
        assert reads.let_go_everywhere(tally) == [str(tmp_path / "data" / "1.bin")]
    # and no rank waits for one that has ended
    tally.set_mode(COLD)
    assert reads.let_go_everywhere(tally) == []


def test_workers_keep_their_mappings_in_a_warm_block(tally: Tally, tmp_path):
    with worker(tally, tmp_path / "data" / "0.bin", answers=True):
        tally.set_mode(WARM)
        assert counted([str(tmp_path / "data" / "0.bin")]) == (PAGES, PAGES)


def test_no_code_and_nothing_tiny_is_dropped(tally: Tally, tmp_path):
    (tmp_path / "data" / "small.txt").write_text("a few bytes")
    (tmp_path / "data" / "code.py").write_text("#" * 10_000)
    tally.set_mode(COLD)
    with (tmp_path / "data" / "small.txt").open(), (tmp_path / "data" / "code.py").open():
        assert reads.let_go_everywhere(tally) == []
