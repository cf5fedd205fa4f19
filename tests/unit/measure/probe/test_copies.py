"""Caches that are not to be measured instead of memory, and machines without devices."""

from stash.measure.probe import copies


def _cache(root, cpu, level, sharers, size):
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{level}"
    folder.mkdir(parents=True)
    for name, text in (("level", str(level)), ("shared_cpu_list", sharers), ("size", size)):
        (folder / name).write_text(text + "\n")


def test_the_last_cache_level_is_counted_once_for_all_that_share_it(tmp_path):
    for cpu, sharers in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        _cache(tmp_path, cpu, 2, str(cpu), "512K")
        _cache(tmp_path, cpu, 3, sharers, "32M")
    assert copies.cache_bytes(tmp_path) == 64 << 20


def test_without_a_device_there_is_nothing_to_copy_to():
    (found,) = copies.measure(0.01, 8 << 20, 0)
    assert "no CUDA device" in found.why
