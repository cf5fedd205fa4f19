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


def test_what_is_read_comes_from_the_disk(tmp_path):
    if os.major(os.stat(tmp_path).st_dev) == 0:
        pytest.skip("this folder lies on no block device")
    before = psutil.Process().io_counters().read_bytes
    rate = read_rate.measure_read_rate(str(tmp_path), 20e6, 0.2)
    fetched = psutil.Process().io_counters().read_bytes - before
    assert rate > 0
    assert fetched >= rate * 0.2 * 0.9
    assert not list(tmp_path.iterdir())
