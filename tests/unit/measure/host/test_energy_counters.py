"""Energy counters from trees as Linux shows them: wrapped, unreadable, missing; and what NVML answers."""

import pytest

from stash.measure.host.energy_counters import (
    EnergyCount,
    read_gpus,
    read_packages,
    subtract_energy,
)

TWO_SOCKETS = {
    "intel-rapl": {"enabled": "1"},
    "intel-rapl:0": {
        "name": "package-0",
        "energy_uj": "262143000000",
        "max_energy_range_uj": "262143328850",
    },
    "intel-rapl:0:0": {"name": "dram", "energy_uj": "5000000"},
    "intel-rapl:1": {
        "name": "package-1",
        "energy_uj": "1000000",
        "max_energy_range_uj": "262143328850",
    },
    "intel-rapl:2": {"name": "psys", "energy_uj": "7000000"},
    "intel-rapl-mmio:0": {"name": "package-0", "energy_uj": "262143000000"},
}
"""Of two Xeons, as powercap lists them: parts, the whole board, and the same package once more beside them."""


def tree(root, **changes):
    """The two sockets, with other ``energy_uj`` (``package_0="…"``); ``None``: it cannot be read."""
    for zone, files in TWO_SOCKETS.items():
        folder = root / "sys/class/powercap" / zone
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text + "\n")
        part = files.get("name", "").replace("-", "_")
        if part in changes and not zone.startswith("intel-rapl-mmio"):
            (folder / "energy_uj").unlink()
            if changes[part] is not None:
                (folder / "energy_uj").write_text(changes[part])
    return root


def test_packages_are_counted_whole_and_once(tmp_path):
    found = read_packages(3.0, tree(tmp_path))
    assert found.joules == pytest.approx({"package-0": 262143.0, "package-1": 1.0})
    assert found.wraps_at == pytest.approx({"package-0": 262143.32885, "package-1": 262143.32885})


def test_a_counter_that_begins_again_at_zero_is_followed(tmp_path):
    before = read_packages(3.0, tree(tmp_path / "a"))
    after = read_packages(5.0, tree(tmp_path / "b", package_0="99671150", package_1="41000000"))
    # 0.32885 J to the end, 99.67115 after it, and 40 of the other package
    assert subtract_energy(after, before) == pytest.approx(140.0)


def test_one_that_may_have_wrapped_twice_is_unknown(tmp_path):
    before = read_packages(0.0, tree(tmp_path))
    assert subtract_energy(read_packages(262.0, tmp_path), before) == 0.0
    assert subtract_energy(read_packages(263.0, tmp_path), before) is None


def test_what_only_root_may_read_is_unknown_as_a_whole(tmp_path):
    found = read_packages(0.0, tree(tmp_path, package_1=None))
    assert found.joules == {}
    assert "package-1" in found.unknown
    assert "chmod a+r" in found.unknown
    assert subtract_energy(found, found) is None


def test_a_machine_without_counters_says_so(tmp_path):
    found = read_packages(0.0, tmp_path)
    assert found.joules == {}
    assert found.unknown.startswith("Linux shows no energy counters")


def test_gpus_are_counted_all_or_none():
    asks = {0: {"TotalEnergyConsumption": 5000}.get, 3: {"TotalEnergyConsumption": 250}.get}
    assert read_gpus(asks, 1.0) == EnergyCount(1.0, {"gpu-0": 5.0, "gpu-3": 0.25})
    old = read_gpus({**asks, 1: {}.get}, 1.0)
    assert (old.joules, "Volta" in old.unknown) == ({}, True)
    assert "no process" in read_gpus({}, 1.0).unknown


@pytest.mark.parametrize("before", [{"gpu-0": 9.0}, {"gpu-1": 1.0}, {}])
def test_a_counter_that_was_reset_or_is_another_is_unknown(before):
    """A driver that is loaded again begins at zero; a GPU that the job has left is no longer read."""
    after = EnergyCount(2.0, {"gpu-0": 5.0})
    assert subtract_energy(after, EnergyCount(1.0, before)) is None
