"""Cold, direct and warm reads of real files, and why some are unmeasured."""

import os
from pathlib import Path

import pytest

from stash.core.records.host import DiskRead, Unmeasured
from stash.measure.probe import disk_pieces, disk_reads


def test_pieces_read_ahead_of_time_count_as_whole_ones():
    # Half of each piece comes at once, because it was read ahead; what is left of the fifth was not read to its end.
    steps = [
        (n + part, 8000 * n + size) for n in range(4) for part, size in ((0.1, 4000), (1.0, 8000))
    ]
    marks = [(0.0, 0), *steps, (4.1, 36_000)]
    found = disk_reads._split_by_piece(marks, 8000)
    assert found.bytes == 8000
    assert found.seconds == pytest.approx((1.0, 1.0, 1.0, 1.0))
    few = disk_reads._split_by_piece(marks, 16_000)
    assert few.bytes * len(few.seconds) <= 32_000
    assert sum(few.seconds) == pytest.approx(4.0, rel=0.01)
    assert disk_reads._split_by_piece(marks, 64_000) is not None  # not even one was read to its end


def test_the_disk_is_read_cold_and_warm_and_says_what_the_page_cache_held(disk):
    found = disk_reads.measure(disk_reads.Folders(None, disk / "scratch", 100_000), 4.0)
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
        found = disk_reads.measure(disk_reads.Folders(None, scratch, 50_000), 1.0)
    finally:
        disk_pieces.shutil.rmtree(scratch, ignore_errors=True)
    whys = {one.link: one.why for one in found if isinstance(one, Unmeasured)}
    assert "as on a file system kept in memory" in whys["reads random cold"]
    assert not [one for one in found if isinstance(one, DiskRead) and one.cold and not one.direct]


def test_where_nothing_can_be_written_the_reads_are_unmeasured_in_one_sentence():
    found = disk_reads.measure(disk_reads.Folders(None, Path("/proc/stash-none"), 50_000), 1.0)
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
    found = disk_reads.measure(disk_reads.Folders(tmp_path, Path("/dev/shm/none"), 50_000), 1.0)
    assert len(found) == 2
    assert all(
        isinstance(one, Unmeasured) and "run it from the data's disk" in one.why for one in found
    )
    assert not Path("/dev/shm/none").exists()
