"""The page cache: emptied file by file, with the kernel's count as proof."""

import os

import pytest

from stash.core import pagecache
from stash.measure.agent.data import reads


@pytest.fixture
def cached_file(tmp_path):
    """A file of 64 pages on a real disk, in the page cache and not dirty."""
    path = tmp_path / "data.bin"
    with path.open("wb") as file:
        file.write(os.urandom(64 * pagecache.PAGE))
        file.flush()
        os.fsync(file.fileno())
    path.read_bytes()
    return path


def examined(descriptor, cold):
    counts = reads.examine_file(descriptor, os.readlink(f"/proc/self/fd/{descriptor}"), cold)
    return counts["pages"], counts["resident"]


def test_eviction_empties_the_page_cache_and_the_count_proves_it(cached_file):
    descriptor = os.open(cached_file, os.O_RDONLY)
    try:
        assert examined(descriptor, cold=False) == (64, 64)
        if examined(descriptor, cold=True)[1] == 64:
            pytest.skip("the temporary folder is a RAM disk")
        assert examined(descriptor, cold=True) == (64, 0)
        os.pread(descriptor, pagecache.PAGE, 0)
        assert examined(descriptor, cold=False)[1] > 0
    finally:
        os.close(descriptor)


def test_mincore_and_cachestat_agree(cached_file):
    descriptor = os.open(cached_file, os.O_RDONLY)
    size = cached_file.stat().st_size
    try:
        assert pagecache._mincore(descriptor, size) == pagecache.resident_pages(descriptor, size)
    finally:
        os.close(descriptor)


def test_a_dirty_file_is_written_before_it_is_dropped(tmp_path):
    path = tmp_path / "fresh.bin"
    path.write_bytes(os.urandom(16 * pagecache.PAGE))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pages, resident = examined(descriptor, cold=True)
    finally:
        os.close(descriptor)
    if resident == pages:
        pytest.skip("the temporary folder is a RAM disk")
    assert resident == 0


def test_a_file_of_another_owner_hides_what_is_in_memory(cached_file, monkeypatch):
    """``mincore`` says *resident* of it whatever is true, and ``cachestat`` says nothing."""
    cached_file.chmod(0o444)
    descriptor = os.open(cached_file, os.O_RDONLY)
    owner = cached_file.stat().st_uid
    monkeypatch.setattr(pagecache, "_CACHESTAT", None)
    monkeypatch.setattr(os, "access", lambda path, mode, effective_ids: False)
    try:
        monkeypatch.setattr(os, "geteuid", lambda: owner)
        assert pagecache.resident_pages(descriptor, 64 * pagecache.PAGE) == (64, 0)
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1000)
        assert pagecache.resident_pages(descriptor, 64 * pagecache.PAGE) is None
        assert "pages" not in reads.examine_file(descriptor, str(cached_file), cold=True)
    finally:
        os.close(descriptor)
