"""What the kernel counts of a process: its own reading, also in a fork of one that has looked already."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stash.measure.linux.counters import bytes_read

SIZE = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")


def called_by_reading(file: Path) -> int:
    before = bytes_read()
    file.read_bytes()
    after = bytes_read()
    assert before is not None
    assert after is not None
    return after.called - before.called


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(bytes(SIZE))
    return path


def test_what_a_process_reads_is_counted(file: Path) -> None:
    assert SIZE <= called_by_reading(file) < SIZE + 100_000


def test_a_fork_counts_its_own_reading(file: Path) -> None:
    bytes_read()  # which keeps the counters of this process open
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(called_by_reading(file)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert SIZE <= int(os.read(reading, 100)) < SIZE + 100_000
    os.close(reading)
    os.close(writing)
