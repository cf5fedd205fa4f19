"""The most memory that a rank held: handed in when it grew, of an accelerator from each block's begin on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from stash.measure.agent.runner.timed_steps import MemoryWatch
from stash.measure.linux import counters


def watch(device: str) -> MemoryWatch:
    kept = SimpleNamespace(batches=[torch.zeros(8), torch.zeros(2)])
    place = SimpleNamespace(rank=3)
    return MemoryWatch(
        SimpleNamespace(
            device=torch.device(device), place=place, feeds=[SimpleNamespace(ring=kept)]
        )
    )


def test_a_cpus_memory_is_the_hosts_and_is_handed_in_when_it_grew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = iter([1000, 1000, 1005, 1100])
    monkeypatch.setattr(counters, "peak_resident_bytes", lambda: next(readings))
    watched = watch("cpu")
    watched.begin()
    first = watched.end()
    assert (first.rank, first.resident_bytes, first.allocated_bytes, first.replayed_bytes) == (
        3,
        1000,
        None,
        40,
    )
    assert watched.end() == first  # whose block did not count
    watched.written_down()
    assert watched.end() is None  # by half a percent
    last = watched.end()
    assert last.resident_bytes == 1100


def test_an_accelerators_peaks_begin_again_with_every_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resets: list[object] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", resets.append)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 70)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 90)
    watched = watch("cuda:1")
    watched.begin()
    seen = watched.end()
    assert resets == [torch.device("cuda:1")]
    assert (seen.allocated_bytes, seen.reserved_bytes) == (70, 90)


def test_an_allocator_that_does_not_count_leaves_its_peaks_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(device: object) -> int:
        raise RuntimeError("pluggable allocators do not support this")

    for name in ("reset_peak_memory_stats", "max_memory_allocated", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    watched = watch("cuda:0")
    watched.begin()
    seen = watched.end()
    assert seen.allocated_bytes is None
    assert seen.resident_bytes is not None
