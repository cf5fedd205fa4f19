"""Network interfaces: speeds that are claimed, RDMA devices, places on the bus."""

from __future__ import annotations

from pathlib import Path

from recorded_tree import known, machine, sources

from stash.measure.host.describe import describe


def test_interfaces_have_speeds_only_where_they_claim_one(tmp_path: Path) -> None:
    ena = known(tmp_path / "aws", "aws-g4dn.xlarge").nics
    assert [(nic.name, nic.bytes_per_second, nic.driver, nic.mtu) for nic in ena] == [("ens5", None, "ena", 9001)]
    google = known(tmp_path / "gcp", "gcp-a2-highgpu-8g").nics
    assert [(nic.name, nic.bytes_per_second, nic.driver) for nic in google] == [
        ("docker0", None, None),
        ("ens12", None, "virtio_net"),
    ]


def test_interfaces_know_their_rdma_devices_and_those_alone_are_listed(tmp_path: Path) -> None:
    description = machine("dell-lost-gpu")
    description["pci"]["0000:10:1b.0"] = {"driver": "efa", "numa_node": 1}
    description["rdma"]["rdmap16s27"] = {"at": "0000:10:1b.0", "rate": "100 Gb/sec (4X EDR)"}
    nics = describe(Path("/"), sources=sources(tmp_path, description)).nics
    assert [(nic.name, nic.rdma, nic.bytes_per_second, nic.driver, nic.numa_node) for nic in nics] == [
        ("eno1", "mlx5_0", 25e9 / 8, "mlx5_core", 0),
        ("ib0", "mlx5_1", 100e9 / 8, "mlx5_core", 0),
        ("rdmap16s27", "rdmap16s27", 100e9 / 8, "efa", 1),
    ]


def test_a_virtio_interface_is_where_its_pci_device_is(tmp_path: Path) -> None:
    assert known(tmp_path, "vm-cgroup-v2").nics[0].numa_node == 0
