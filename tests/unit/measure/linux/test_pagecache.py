"""The page cache: emptied file by file, with the kernel's count as proof."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stash.measure.agent.data import reading
from stash.measure.linux import pagecache


@pytest.fixture
def cached_file(tmp_path: Path) -> Path:
    """A file of 64 pages on a real disk, in the page cache and not dirty."""
    path = tmp_path / "data.bin"
    with path.open("wb") as file:
        file.write(os.urandom(64 * pagecache.PAGE))
        file.flush()
        os.fsync(file.fileno())
    path.read_bytes()
    return path


def test_eviction_empties_the_page_cache_and_the_count_proves_it(cached_file: Path):
    descriptor, size = os.open(cached_file, os.O_RDONLY), cached_file.stat().st_size
    try:
        assert reading.examine(descriptor, size, cold=False) == (64, 64)
        if reading.examine(descriptor, size, cold=True)[1] == 64:
            pytest.skip("the temporary folder is a RAM disk")
        assert reading.examine(descriptor, size, cold=True) == (64, 0)
        os.pread(descriptor, pagecache.PAGE, 0)
        assert reading.examine(descriptor, size, cold=False)[1] > 0
    finally:
        os.close(descriptor)


def test_mincore_and_cachestat_agree(cached_file: Path):
    descriptor, size = os.open(cached_file, os.O_RDONLY), cached_file.stat().st_size
    try:
        assert pagecache._mincore(descriptor, size) == pagecache.resident_pages(descriptor, size)
    finally:
        os.close(descriptor)


def test_a_dirty_file_is_written_before_it_is_dropped(tmp_path: Path):
    path = tmp_path / "fresh.bin"
    path.write_bytes(os.urandom(16 * pagecache.PAGE))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pages, resident = reading.examine(descriptor, 16 * pagecache.PAGE, cold=True)
    finally:
        os.close(descriptor)
    if resident == pages:
        pytest.skip("the temporary folder is a RAM disk")
    assert resident == 0
