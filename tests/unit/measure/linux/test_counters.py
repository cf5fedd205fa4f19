"""What the kernel counts of this process and what it holds in memory."""

from __future__ import annotations

import builtins
import io
import os
import resource
import sys
from pathlib import Path

import pytest

from stash.measure.linux.counters import bytes_read, peak_resident_bytes, totals

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


def test_the_peak_is_above_what_is_resident_now_and_no_more_than_the_kernels_other_count() -> None:
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    peak = peak_resident_bytes()
    assert peak is not None
    assert resident <= 1.01 * peak  # the kernel counts pages per thread, and adds them up now and then
    assert peak <= 1.01 * 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_where_the_kernel_does_not_tell_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(builtins, "open", refuse)
    found = peak_resident_bytes()
    monkeypatch.undo()
    assert found is None


def test_an_interface_that_lies_on_others_sends_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "\n\n" + "".join(f"{name}: {'0 ' * 8}{sent}{' 0' * 7}\n" for name, sent in
                             (("bond0", 70), ("eth0", 40), ("eth1", 30), ("lo", 5)))  # fmt: skip
    opened, listed = builtins.open, os.listdir
    monkeypatch.setattr(
        builtins,
        "open",
        lambda path, *a, **k: io.StringIO(table) if path == "/proc/net/dev" else opened(path, *a, **k),
    )
    monkeypatch.setattr(
        os, "listdir",
        lambda path: (["lower_eth0", "lower_eth1"] if path.endswith("bond0") else ["mtu"])
        if path.startswith("/sys/class/net/") else listed(path),
    )  # fmt: skip
    assert totals().sent == 75
