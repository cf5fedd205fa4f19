"""Machines described from recorded trees of /proc and /sys."""

import os
import platform
import socket
import sys
from pathlib import Path

import psutil
import pytest
from recorded_nvml import RecordedNvml
from recorded_tree import MACHINES, known, machine, sources

from stash.measure.host.describe import Sources, describe
from stash.measure.host.gpus import count_gpus


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 8),
        ("0,1", 2),
        ("", 0),
        ("-1", 0),
        ("GPU-1,GPU-2,GPU-3", 3),
        (",".join("0" * 20), 8),
        ("NoDevFiles", 0),
        ("1,-1,2", 1),  # Slurm's word for none, and where CUDA stops to read
    ],
)
def test_cuda_visible_devices_narrows_the_count(monkeypatch, visible, count):
    monkeypatch.setitem(sys.modules, "pynvml", RecordedNvml(machine("aws-p3.16xlarge")["nvml"]))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_gpus() == count


def test_a_machine_without_any_files_is_unknown_and_no_error(tmp_path):
    host = describe(Path("/nowhere"), sources=Sources(root=tmp_path, nvml=RecordedNvml(None)))
    fields = host.model_dump(exclude_defaults=True)
    assert fields.pop("hostname") == socket.gethostname()
    assert fields == {"disks": ({"path": "/nowhere"},)}


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\xff\xfe\x00 : \n -1 max x=y\n", b"-1", b"7" * 30, b": - - :"]
)
@pytest.mark.parametrize("name", MACHINES)
def test_files_full_of_nonsense_are_unknown_and_no_error(tmp_path, name, content):
    source = sources(tmp_path, machine(name))
    files = [file for file in tmp_path.rglob("*") if file.is_file() and not file.is_symlink()]
    assert files
    for file in files:
        file.write_bytes(content)
    host = describe(Path("/"), sources=source)
    assert (host.cpu, host.memory_bytes, host.limits, host.cloud) == (None, None, None, None)


def test_this_machine_is_described_as_the_system_library_does():
    host = describe()
    assert host.cores == len(os.sched_getaffinity(0))
    assert host.memory_bytes == psutil.virtual_memory().total
    assert (host.kernel, host.hostname) == (platform.release(), socket.gethostname())
    assert {nic.name for nic in host.nics} >= set(os.listdir("/sys/class/net")) - {
        "lo",
        "bonding_masters",
    }
    free = host.disks[0].free_bytes
    assert free is None or free <= psutil.disk_usage(os.getcwd()).total


def test_interfaces_know_their_rdma_devices_and_those_alone_are_listed(tmp_path):
    description = machine("dell-lost-gpu")
    description["pci"]["0000:10:1b.0"] = {"driver": "efa", "numa_node": 1}
    description["rdma"]["rdmap16s27"] = {"at": "0000:10:1b.0", "rate": "100 Gb/sec (4X EDR)"}
    nics = describe(Path("/"), sources=sources(tmp_path, description)).nics
    assert [
        (nic.name, nic.rdma, nic.bytes_per_second, nic.driver, nic.numa_node) for nic in nics
    ] == [
        ("eno1", "mlx5_0", 25e9 / 8, "mlx5_core", 0),
        ("ib0", "mlx5_1", 100e9 / 8, "mlx5_core", 0),
        ("rdmap16s27", "rdmap16s27", 100e9 / 8, "efa", 1),
    ]


def test_a_virtio_interface_is_where_its_pci_device_is(tmp_path):
    assert known(tmp_path, "vm-cgroup-v2").nics[0].numa_node == 0


def test_cores_memory_kernel_and_nodes_are_read(tmp_path):
    host = known(tmp_path, "aws-p3.16xlarge")
    assert (host.hostname, host.kernel) == ("ip-10-0-0-16", "4.14.281-212.502.amzn2.x86_64")
    assert host.cpu == "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz"
    assert host.cores == 64  # 128 are allowed, 64 exist
    assert (host.memory_bytes, host.numa_nodes) == (503847420 * 1024, 2)


def test_an_arm_processor_is_named_by_its_numbers_and_affinity_counts(tmp_path):
    host = known(tmp_path, "vm-cgroup-v2")
    assert host.cpu == "ARM implementer 0x41 part 0xd40"
    assert host.cores == 3
