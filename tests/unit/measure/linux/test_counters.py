"""What the kernel counts of this process and what it holds in memory."""

import builtins
import io
import os
import resource
import sys

import pytest

from stash.measure.linux import counters
from stash.measure.linux.counters import (
    CoreTimes,
    activity_since,
    bytes_read,
    peak_resident_bytes,
    read_totals,
)

SIZE = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")


def called_by_reading(file):
    before = bytes_read()
    file.read_bytes()
    after = bytes_read()
    return after.called - before.called


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(SIZE))
    return path


def test_a_fork_counts_its_own_reading(file):
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


def test_the_peak_is_above_what_is_resident_now_and_no_more_than_the_kernels_other_count():
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    peak = peak_resident_bytes()
    # the kernel counts pages per thread, and adds them up now and then
    assert resident <= 1.01 * peak
    assert peak <= 1.01 * 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_where_the_kernel_does_not_tell_it_is_unknown(monkeypatch):
    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr(builtins, "open", refuse)
    found = peak_resident_bytes()
    monkeypatch.undo()
    assert found is None


def stand_in(monkeypatch, path, text):
    opened = builtins.open
    monkeypatch.setattr(
        builtins,
        "open",
        lambda name, *a, **k: io.StringIO(text) if name == path else opened(name, *a, **k),
    )


def test_cores_are_busy_for_what_is_left_of_the_clock_beside_idle_time():
    # Who is found running at each tick says 4 of 10 ticks; idle time and the clock 0.03 s of 0.1.
    first = CoreTimes.sum_rows(
        [["cpu0", *["0", "0", "0", "100", "20", "0", "0", "7", "0", "0"]]], 1, 50.0
    )
    last = CoreTimes.sum_rows(
        [["cpu0", *["4", "0", "0", "105", "21", "0", "0", "8", "0", "0"]]], 1, 50.1
    )
    assert last.busy_since(first) == pytest.approx(0.03)


def test_only_cores_that_this_thread_may_run_on_are_its_own(monkeypatch):
    rows = [
        "cpu 30 0 0 300 0 0 0 0 0 0",
        *(f"cpu{core} 10 0 0 {90 + core} 0 0 0 0 0 0" for core in range(3)),
        "intr 5",
    ]
    stand_in(monkeypatch, "/proc/stat", "\n".join(rows))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2})
    found = read_totals()
    assert (found.cores.number, found.cores.idle) == (3, 3.0)
    assert (found.allowed.number, found.allowed.idle) == (2, 1.83)


def test_a_sandbox_whose_file_is_all_zeros_counts_nothing(monkeypatch):
    stand_in(monkeypatch, "/proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    found = activity_since(read_totals())
    assert (found.cpu, found.steal, found.cpu_seconds) == (None, None, None)


def test_an_interface_that_lies_on_others_sends_nothing_twice(monkeypatch):
    table = "\n\n" + "".join(
        f"{name}: {'0 ' * 8}{sent}{' 0' * 7}\n"
        for name, sent in (("bond0", 70), ("eth0", 40), ("eth1", 30), ("lo", 5))
    )
    stand_in(monkeypatch, "/proc/net/dev", table)
    monkeypatch.setattr(
        counters, "glob", lambda path: [path] if path.endswith("/bond0/lower_*") else []
    )
    assert read_totals().sent == 75
