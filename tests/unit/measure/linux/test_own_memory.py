"""What the kernel tells of a process's own memory."""

from __future__ import annotations

import builtins
import resource

import pytest

from stash.measure.linux.counters import peak_resident_bytes


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
