"""A file read past the page cache: how much at once, and that it comes from the disk."""

import os

import psutil
import pytest

from stash.lab.testbed import read_rate, verify


def test_sizes_of_requests_and_of_the_file_fit_the_rate():
    for rate in (1e3, 1e6, 20e6, 1e9, 1e12):
        chunk = read_rate.chunk_bytes(rate)
        assert 4096 <= chunk <= 2**20
        assert chunk % 4096 == 0
        size = read_rate.file_bytes(rate, verify.read_seconds(rate), chunk)
        assert size % chunk == 0
        assert size <= 256 * 2**20
    assert verify.read_seconds(20e6) == 1.0
    assert verify.read_seconds(1e3) == 10.0


@pytest.mark.parametrize("direct", [True, False])
def test_what_is_read_comes_from_the_disk_with_and_without_direct_io(tmp_path, monkeypatch, direct):
    if os.major(os.stat(tmp_path).st_dev) == 0:
        pytest.skip("this folder lies on no block device")
    if not direct:
        monkeypatch.setattr(os, "O_DIRECT", 0o777777777)  # flags no file system takes
    before = psutil.Process().io_counters().read_bytes
    rate, way = read_rate.measure_read_rate(str(tmp_path), 20e6, 0.2)
    fetched = psutil.Process().io_counters().read_bytes - before
    assert way == ("direct" if direct else "evicted")
    assert rate > 0
    assert fetched >= rate * 0.2 * 0.9
    assert not list(tmp_path.iterdir())
