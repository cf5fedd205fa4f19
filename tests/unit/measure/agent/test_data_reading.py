"""What making batches reads: files counted and dropped when they are opened, and what is no data."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch.utils.data  # noqa: F401 - batches are made in processes that have it
from data_folder import FILES, PAGES

from stash.core import pagecache
from stash.measure.agent.data import reads
from stash.measure.agent.data.tally import COLD, WARM, Tally
from stash.measure.protocol import orders as the_orders
from stash.measure.protocol.orders import Orders


def read_all(folder: Path):
    for path in sorted(folder.iterdir()):
        path.read_bytes()


def a_batch(make, *arguments, maker=None):
    return reads.record_reads(maker, make, *arguments)


def test_in_a_warm_block_opened_files_are_counted(tally: Tally, tmp_path):
    read_all(tmp_path / "data")
    tally.set_mode(WARM)
    a_batch(read_all, tmp_path / "data")
    totals = tally.sum_counters()
    assert (totals["batches"], totals["files"], totals["pages"]) == (1, FILES, FILES * PAGES)
    assert totals["bytes"] == FILES * PAGES * pagecache.PAGE
    assert totals["resident"] == FILES * PAGES
    assert totals["making_ns"] > 0


def test_in_a_warm_block_only_the_first_batch_of_each_loader_is_looked_at(tally: Tally, tmp_path):
    one, other = object(), object()
    for _ in range(2):
        tally.set_mode(WARM)
        for maker in (one, one, other, one, other):
            a_batch(read_all, tmp_path / "data", maker=maker)
        totals = tally.sum_counters()
        assert (totals["batches"], totals["looked"], totals["files"]) == (5, 2, 2 * FILES)
        assert totals["called"] >= 5 * FILES * PAGES * pagecache.PAGE
        assert totals["own_ns"] > 0


def test_what_is_opened_outside_a_batch_is_not_counted(tally: Tally, tmp_path):
    tally.set_mode(WARM)
    a_batch(int)
    read_all(tmp_path / "data")
    assert tally.sum_counters()["files"] == 0


def test_with_a_data_root_only_what_lies_below_it_is_data(tally: Tally, tmp_path):
    assert reads.is_data(str(tmp_path / "data" / "0.bin"))
    assert not reads.is_data(str(tmp_path / "data" / "code.py"))
    assert not reads.is_data(str(tmp_path / "elsewhere.bin"))


def test_without_one_it_is_what_no_system_owns(tally: Tally, tmp_path, monkeypatch):
    given = Orders(str(tmp_path / "run"), ("solo",), 1.0)
    monkeypatch.setenv(the_orders.VARIABLE, str(given.write()))
    the_orders.current_orders.cache_clear()
    reads._holds_data.cache_clear()
    assert reads.is_data(str(tmp_path / "elsewhere.bin"))
    assert reads.is_data("/library/0.bin")
    assert reads.is_data(f"{sys.prefix}-data/0.bin")
    assert not reads.is_data("/lib/terminfo/0.bin")
    assert not reads.is_data("/proc/self/maps")
    assert not reads.is_data(str(tmp_path / "run" / "journal.jsonl"))
    assert not reads.is_data(os.__file__)


def test_a_folder_is_looked_at_whole_or_as_far_as_the_limit(tally: Tally, tmp_path, monkeypatch):
    read_all(tmp_path / "data")
    whole = reads.files_below(str(tmp_path / "data"))
    assert reads.examine_files(whole, cold=False) == {
        "pages": FILES * PAGES,
        "resident": FILES * PAGES,
    }
    monkeypatch.setattr(reads, "_MAX_FILES", 1)
    assert len(list(reads.files_below(str(tmp_path / "data")))) == 1


def test_what_was_removed_meanwhile_is_passed_over(tally: Tally, tmp_path):
    held = [str(tmp_path / "data" / "0.bin"), str(tmp_path / "gone.bin")]
    assert reads.examine_files(held, cold=False)["pages"] == PAGES


def test_a_file_of_many_samples_is_dropped_once_a_block_and_one_that_was_read_whole_again(
    tally: Tally, tmp_path
):
    # GIVEN a cold block in which a sample is read out of a file that holds many
    big, small = tmp_path / "data" / "0.bin", tmp_path / "data" / "1.bin"
    with big.open("r+b") as file:
        file.truncate(2000 * pagecache.PAGE)

    def read_a_page(number):
        with big.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            file.seek(number * pagecache.PAGE)
            file.read(pagecache.PAGE)
            found = pagecache.resident_pages(file.fileno(), 2000 * pagecache.PAGE)
        return found[0]

    tally.set_mode(COLD)
    first, second, third = a_batch(lambda: [read_a_page(number) for number in (3, 4, 5)])
    # WHEN it is opened again THEN what was read stays, and its size is no sample's size
    assert second > first
    assert third > first + 1
    assert (tally.sum_counters()["files"], tally.sum_counters()["bytes"]) == (3, 0)
    # but a file that was read whole is dropped whenever it is opened
    a_batch(lambda: [small.read_bytes() for _ in range(2)])
    totals = tally.sum_counters()
    assert (totals["files"], totals["bytes"], totals["resident"]) == (
        5,
        2 * PAGES * pagecache.PAGE,
        0,
    )
    # and before the next block it is to be dropped together with what is held open
    assert reads._files.shared == {str(big)}
