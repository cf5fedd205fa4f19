"""A disk whose pages can be dropped."""

import os

import pytest

from stash.measure.probe import disk_reads


@pytest.fixture
def disk(tmp_path):
    """A folder on a real disk; skips where pages cannot be dropped."""
    path = tmp_path / "try"
    path.write_bytes(os.urandom(1 << 20))
    piece = disk_reads.Piece(path, 0, 1 << 20)
    disk_reads.evict_pieces([piece])
    if disk_reads.resident_fraction([piece]) != 0.0:
        pytest.skip("this file system keeps its pages in memory")
    path.unlink()
    return tmp_path
