"""Copies in memory, and caches that are not to be measured instead."""

from __future__ import annotations

from pathlib import Path

import torch

from stash.core.records.host import Copy, Unmeasured
from stash.measure.probe import copies


def _cache(root: Path, cpu: int, level: int, sharers: str, size: str) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{level}"
    folder.mkdir(parents=True)
    for name, text in (("level", str(level)), ("shared_cpu_list", sharers), ("size", size)):
        (folder / name).write_text(text + "\n")


def test_the_last_cache_level_is_counted_once_for_all_that_share_it(tmp_path: Path):
    for cpu, sharers in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        _cache(tmp_path, cpu, 2, str(cpu), "512K")
        _cache(tmp_path, cpu, 3, sharers, "32M")
    assert copies.cache_bytes(tmp_path) == 64 << 20


def test_a_copy_through_memory_counts_what_is_read_and_what_is_written():
    found = copies.host_memory(0.01, threads=1, free_bytes=8 << 20, cache=1 << 20)
    assert isinstance(found, Copy)
    assert found.timings[0].bytes == 2 * (1 << 20)
    assert len(found.timings[0].seconds) >= 3
    assert torch.get_num_threads() > 0


def test_without_a_device_the_copies_to_it_are_unmeasured():
    found = copies.measure(0.01, 1, 8 << 20, devices=0)
    assert [type(one) for one in found] == [Copy, Unmeasured]
