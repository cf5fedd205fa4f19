"""Cold, direct and warm reads of real files, and why some are unmeasured."""

import os
from pathlib import Path

import pytest

from stash.core import pagecache
from stash.core.records.host import DiskRead, Unmeasured
from stash.measure.probe import disk_reads


def test_pieces_read_ahead_of_time_count_as_whole_ones():
    # Half of each piece comes at once, because it was read ahead; what is left of the fifth was not read to its end.
    steps = [
        (n + part, 8000 * n + size) for n in range(4) for part, size in ((0.1, 4000), (1.0, 8000))
    ]
    marks = [(0.0, 0), *steps, (4.1, 36_000)]
    found = disk_reads.split_run(marks, True, 8000)
    assert found.bytes == 8000
    assert found.seconds == pytest.approx((1.0, 1.0, 1.0, 1.0))
    few = disk_reads.split_run(marks, True, 16_000)
    assert few.bytes * len(few.seconds) <= 32_000
    assert sum(few.seconds) == pytest.approx(4.0, rel=0.01)
    assert disk_reads.split_run(marks, True, 64_000) is not None  # not even one was read to its end


def test_the_disk_is_read_cold_and_warm_and_says_what_the_page_cache_held(disk):
    found = disk_reads.measure(None, disk / "scratch", 4.0, 100_000)
    records = [one for one in found if isinstance(one, DiskRead)]
    cold = [one for one in records if one.cold]
    warm = [one for one in records if not one.cold]
    assert (
        {one.pattern for one in cold} == {one.pattern for one in warm} == {"sequential", "random"}
    )
    assert all(one.resident is not None and one.resident <= disk_reads.COLD_ENOUGH for one in cold)
    assert all(one.resident is not None and one.resident > 0.9 for one in warm)
    assert {one.readers for one in cold} == {1, disk_reads.MANY}
    assert {one.reader for one in records} == {"stash"}


def test_a_file_system_in_memory_is_never_read_cold():
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        pytest.skip("there is no /dev/shm here")
    scratch = memory / f"stash-test-{os.getpid()}"
    try:
        found = disk_reads.measure(None, scratch, 1.0, 50_000)
    finally:
        disk_reads.shutil.rmtree(scratch, ignore_errors=True)
    whys = {one.link: one.why for one in found if isinstance(one, Unmeasured)}
    assert "as on a file system kept in memory" in whys["reads random cold"]
    assert not [one for one in found if isinstance(one, DiskRead) and one.cold and not one.direct]


def test_where_nothing_can_be_written_the_reads_are_unmeasured_in_one_sentence():
    found = disk_reads.measure(None, Path("/proc/stash-none"), 1.0, 50_000)
    assert [one.link for one in found if isinstance(one, Unmeasured)] == [
        "reads sequential",
        "reads random",
    ]
    assert all(
        "no file can be written in /proc" in one.why for one in found if isinstance(one, Unmeasured)
    )


def test_data_on_another_disk_is_not_replaced_by_files_elsewhere(tmp_path):
    if (
        not os.access("/dev/shm", os.W_OK)
        or Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev
    ):
        pytest.skip("there is no second file system here")
    found = disk_reads.measure(tmp_path, Path("/dev/shm/none"), 1.0, 50_000)
    assert len(found) == 2
    assert all(
        isinstance(one, Unmeasured) and "run it from the data's disk" in one.why for one in found
    )
    assert not Path("/dev/shm/none").exists()


def test_files_that_are_not_in_the_page_cache_come_first(disk):
    for number in range(20):
        (disk / f"{number:02d}").write_bytes(os.urandom(4 * pagecache.PAGE))
    unread = {f"{number:02d}" for number in range(0, 20, 2)}
    disk_reads.evict_pieces([disk_reads.Piece(disk / name, 0, 1) for name in unread])
    large, small = disk_reads.choose_from_data(disk)
    assert large is None
    assert {piece.path.name for piece in small.pieces[:10]} == unread
    assert small.file_bytes == 4 * pagecache.PAGE


def test_a_large_file_is_cut_into_pieces_from_front_to_back(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(5 * disk_reads.PIECE_BYTES // 2)
    large, small = disk_reads.choose_from_data(tmp_path)
    assert small is None
    assert [piece.offset for piece in large.pieces] == [0, disk_reads.PIECE_BYTES]


def test_what_is_written_stays_within_a_tenth_of_the_free_space(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr(disk_reads.shutil, "disk_usage", lambda path: usage)
    chosen = disk_reads.write_files(tmp_path / "scratch", 30_000, 100, 5.0)
    assert len(chosen.pieces) == 3
    assert disk_reads.write_files(tmp_path / "scratch", 30_000, 100, 5.0) is None


@pytest.mark.parametrize("readers", [1, 4])
def test_all_bytes_of_all_pieces_are_read_and_marked(tmp_path, readers):
    chosen = disk_reads.write_files(tmp_path / "scratch", 1_500_000, 6, 10.0)
    marks, done = disk_reads.read_pieces(chosen.pieces, 10.0, readers)
    assert done == len(chosen.pieces)
    assert marks[-1][1] == done * 1_500_000
    assert [mark[1] for mark in marks] == sorted(mark[1] for mark in marks)
