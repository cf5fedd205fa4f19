"""Where a GPU is on the bus, and how wide its link to it is."""

from __future__ import annotations

from pathlib import Path

from recorded_tree import known, machine, sources

from stash.measure.host.describe import describe


def test_addresses_are_not_given_to_silent_gpus_when_there_are_more_than_those(tmp_path: Path) -> None:
    description = machine("dell-lost-gpu")
    description["pci"]["0000:b0:00.0"] = {"class": "0x030200", "vendor": "0x10de", "device": "0x1db4"}
    lost = describe(Path("/"), sources=sources(tmp_path, description)).gpus[2]
    assert (lost.bus, lost.name, lost.fault) == (None, "unknown", "GPU is lost")


def test_sysfs_states_the_pci_link_where_the_driver_does_not_and_a_slot_limits_its_card(tmp_path: Path) -> None:
    gpus = known(tmp_path, "dell-lost-gpu").gpus
    assert (gpus[0].pcie, gpus[0].pcie_max) == ("gen1 x8", "gen3 x8")
    assert (gpus[3].pcie, gpus[3].pcie_max) == ("gen3 x16", "gen3 x16")


def test_a_link_trained_down_differs_from_the_most_it_can_do(tmp_path: Path) -> None:
    gpu = known(tmp_path, "aws-g4dn.xlarge").gpus[0]
    assert (gpu.pcie, gpu.pcie_max, gpu.numa_node, gpu.nvlinks) == ("gen1 x8", "gen3 x16", None, None)


def test_gpus_with_pci_domains_of_their_own_are_found_in_sysfs(tmp_path: Path) -> None:
    host = known(tmp_path, "azure-nc24s-v3")
    assert [(gpu.bus, gpu.numa_node) for gpu in host.gpus] == [
        ("0001:00:00.0", 0),
        ("0002:00:00.0", 0),
        ("0003:00:00.0", 1),
        ("0004:00:00.0", 1),
    ]
