"""What a machine is, found out from described machines: their files, their NVML, a metadata service that answers."""

from __future__ import annotations

import http.server
import inspect
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest
from recorded_nvml import RecordedNvml
from recorded_tree import MACHINES, machine, sources

from stash.base.records import Host, Limits, Route
from stash.measure.host import metadata, system
from stash.measure.host.cloud import cloud_of
from stash.measure.host.describe import Sources, count_gpus, describe

AZURE_CHASSIS = "7783-7084-3265-9085-8269-3286-77"


def known(tmp_path: Path, name: str, data: str = "/", fetch: Any = None, **wishes: Any) -> Host:
    arguments = (tmp_path, machine(name)) if fetch is None else (tmp_path, machine(name), fetch)
    return describe(Path(data), sources=sources(*arguments), **wishes)


def changed(tmp_path: Path, name: str, **nvml: Any) -> Host:
    """A machine whose driver says something else."""
    description = machine(name)
    description["nvml"] |= nvml
    return describe(Path("/"), sources=sources(tmp_path, description))


def route(host: Host, a: int, b: int) -> Route:
    return next(route for route in host.routes if (route.a, route.b) == (a, b))


# ---- GPUs


def test_eight_v100_are_a_mesh_of_one_and_two_lanes(tmp_path: Path) -> None:
    host = known(tmp_path, "aws-p3.16xlarge")
    assert [gpu.index for gpu in host.gpus] == list(range(8))
    first = host.gpus[0]
    assert (first.name, first.memory_bytes, first.driver) == ("Tesla V100-SXM2-16GB", 16945512448, "450.80.02")
    assert (first.bus, first.numa_node, first.pcie, first.pcie_max) == ("0000:00:17.0", 0, "gen3 x16", "gen3 x16")
    assert {gpu.nvlinks for gpu in host.gpus} == {6}
    assert first.nvlink_bytes_per_second == pytest.approx(6 * 25.781e9)
    assert len(host.routes) == 28
    assert route(host, 0, 3) == Route(a=0, b=3, kind="node", nvlinks=2)
    assert route(host, 0, 4) == Route(a=0, b=4, kind="system", nvlinks=2)
    assert route(host, 0, 5) == Route(a=0, b=5, kind="system", nvlinks=0)
    assert sum(route.nvlinks or 0 for route in host.routes) == 8 * 6 / 2  # every lane has two ends
    assert host.topology is not None
    assert host.topology.startswith("0-1 node + 1 NVLink, 0-2 node + 1 NVLink, 0-3 node + 2 NVLink")


def test_sixteen_k80_share_pci_express_and_have_no_nvlink(tmp_path: Path) -> None:
    host = known(tmp_path, "aws-p2.16xlarge")
    assert len(host.gpus) == 16
    assert len(host.routes) == 120
    assert {gpu.nvlinks for gpu in host.gpus} == {None}
    assert {route.kind for route in host.routes} == {"host bridge", "system"}
    assert (route(host, 0, 7).kind, route(host, 7, 8).kind) == ("host bridge", "system")


def test_lanes_to_switches_that_a_virtual_machine_does_not_see_lead_nobody_knows_where(tmp_path: Path) -> None:
    host = known(tmp_path, "gcp-a2-highgpu-8g")
    assert {gpu.nvlinks for gpu in host.gpus} == {12}
    assert {gpu.nvlink_bytes_per_second for gpu in host.gpus} == {300e9}
    assert {route.nvlinks for route in host.routes} == {None}
    assert (host.topology or "").startswith("0-1 host bridge + NVLink switch, ")


def test_lanes_to_a_switch_that_is_seen_lead_to_no_gpu_directly(tmp_path: Path) -> None:
    host = changed(tmp_path, "gcp-a2-highgpu-8g", switch={"lanes": 12, "bus": "00000000:C4:00.0"})
    assert {gpu.nvlinks for gpu in host.gpus} == {12}
    assert {route.nvlinks for route in host.routes} == {0}
    assert (host.topology or "").startswith("0-1 host bridge + NVLink switch, ")


def test_lanes_that_are_down_are_not_counted(tmp_path: Path) -> None:
    host = changed(tmp_path, "aws-p3.16xlarge", down={0: [0], 1: [0]})
    assert [gpu.nvlinks for gpu in host.gpus[:3]] == [5, 5, 6]
    assert (route(host, 0, 1).nvlinks, route(host, 0, 2).nvlinks) == (0, 1)
    assert host.gpus[0].nvlink_bytes_per_second == pytest.approx(5 * 25.781e9)


@pytest.mark.parametrize(("version", "speed"), [(2, 6 * 25e9), (1, 6 * 20e9), (7, 6 * 50e9), (5, None), (99, None)])
def test_a_driver_that_states_no_speed_states_a_version_that_may_imply_one(
    tmp_path: Path, version: int, speed: float | None
) -> None:
    host = changed(tmp_path, "aws-p3.16xlarge", nvlink_megabytes_per_second=None, nvlink_version=version)
    assert host.gpus[0].nvlink_bytes_per_second == speed


def test_a_gpu_that_fell_off_the_bus_keeps_the_drivers_words_and_the_others_are_described(tmp_path: Path) -> None:
    host = known(tmp_path, "dell-lost-gpu")
    lost = host.gpus[2]
    assert (lost.fault, lost.bus, lost.name, lost.numa_node) == ("GPU is lost", "0000:af:00.0", "PCI 10de:1db4", 1)
    assert (lost.memory_bytes, lost.pcie, lost.pcie_max, lost.nvlinks) == (None, None, None, None)
    assert [gpu.fault for gpu in host.gpus if gpu.index != 2] == [None, None, None]
    assert [(route.a, route.b) for route in host.routes] == [(0, 1), (0, 3), (1, 3)]


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_gpu_that_may_not_be_asked_or_does_not_say_why_is_listed_too(tmp_path: Path, code: int) -> None:
    host = changed(tmp_path, "dell-lost-gpu", faults={0: code})
    assert [gpu.fault for gpu in host.gpus] == [str(pynvml.NVMLError(code)), None, None, None]


@pytest.mark.parametrize(
    ("question", "code", "fault"),
    [
        ("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
        ("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_NOT_SUPPORTED, None),  # memory shared with the processor
        ("nvmlDeviceGetCurrPcieLinkWidth", pynvml.NVML_ERROR_UNKNOWN, None),
        ("nvmlDeviceGetCurrPcieLinkWidth", pynvml.NVML_ERROR_GPU_IS_LOST, "GPU is lost"),
        ("nvmlDeviceGetPciInfo", pynvml.NVML_ERROR_RESET_REQUIRED, "GPU requires restart"),
    ],
)
def test_only_some_refusals_mean_that_a_gpu_does_not_work_and_what_it_said_before_is_kept(
    tmp_path: Path, question: str, code: int, fault: str | None
) -> None:
    source = sources(tmp_path, machine("aws-p3.16xlarge"))
    answer = getattr(source.nvml, question)

    def refusing(handle: int) -> Any:
        if handle == 1:
            raise pynvml.NVMLError(code)
        return answer(handle)

    setattr(source.nvml, question, refusing)
    host = describe(Path("/"), sources=source)
    assert (host.gpus[1].name, host.gpus[1].fault) == ("Tesla V100-SXM2-16GB", fault)
    assert {gpu.fault for gpu in host.gpus if gpu.index != 1} == {None}
    assert len(host.routes) == (28 if fault is None else 21)


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


def test_the_driver_is_let_go(tmp_path: Path) -> None:
    source = sources(tmp_path, machine("dell-lost-gpu"))
    describe(Path("/"), sources=source)
    assert source.nvml.started == 0


def test_the_stand_in_has_only_functions_of_the_real_bindings_with_their_parameters() -> None:
    for name, function in inspect.getmembers(RecordedNvml, inspect.isfunction):
        if name.startswith("nvml"):
            real = inspect.signature(getattr(pynvml, name)).parameters.values()
            needed = [parameter.name for parameter in real if parameter.default is parameter.empty]
            assert list(inspect.signature(function).parameters)[1:] == needed, name


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 8), ("0,1", 2), ("", 0), ("-1", 0), ("GPU-1,GPU-2,GPU-3", 3), (",".join("0" * 20), 8)],
)
def test_cuda_visible_devices_narrows_the_count(monkeypatch: Any, visible: str | None, count: int) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", RecordedNvml(machine("aws-p3.16xlarge")["nvml"]))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_gpus() == count


def test_without_a_driver_there_are_no_gpus(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", RecordedNvml(None))
    assert count_gpus() == 0


# ---- the machine around them


def test_cores_memory_kernel_and_nodes_are_read(tmp_path: Path) -> None:
    host = known(tmp_path, "aws-p3.16xlarge")
    assert (host.hostname, host.kernel) == ("ip-10-0-0-16", "4.14.281-212.502.amzn2.x86_64")
    assert host.cpu == "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz"
    assert host.cores == 64  # 128 are allowed, 64 exist
    assert (host.memory_bytes, host.numa_nodes) == (503847420 * 1024, 2)


def test_an_arm_processor_is_named_by_its_numbers_and_affinity_counts(tmp_path: Path) -> None:
    host = known(tmp_path, "vm-cgroup-v2")
    assert host.cpu == "ARM implementer 0x41 part 0xd40"
    assert host.cores == 3


@pytest.mark.parametrize(("listed", "numbers"), [("0-2,8", {0, 1, 2, 8}), ("5", {5}), ("", None), ("a-b", None)])
def test_the_kernels_lists_of_numbers(listed: str, numbers: set[int] | None) -> None:
    assert system.ranges(listed) == numbers


def test_version_2_limits_are_the_tightest_of_the_groups_above(tmp_path: Path) -> None:
    host = known(tmp_path, "vm-cgroup-v2")
    assert host.limits == Limits(cpus=1.5, memory_bytes=4 * 2**30, read_bytes_per_second=50 * 2**20)


def test_version_1_limits_are_those_of_the_container(tmp_path: Path) -> None:
    host = known(tmp_path, "container-cgroup-v1", "/data/train")
    assert host.limits == Limits(cpus=2.5, memory_bytes=2 * 2**30, read_bytes_per_second=100 * 2**20)
    elsewhere = known(tmp_path / "again", "container-cgroup-v1", "/tmp")
    assert elsewhere.limits == Limits(cpus=2.5, memory_bytes=2 * 2**30)  # another disk than the limited one


@pytest.mark.parametrize("giant", [9223372036854771712, 9223372036854710272])
def test_the_giant_of_version_1_is_no_limit(tmp_path: Path, giant: int) -> None:
    description = machine("container-cgroup-v1")
    description["files"]["sys/fs/cgroup/memory/job/memory.limit_in_bytes"] = giant
    description["files"]["sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"] = -1
    limits = describe(Path("/"), sources=sources(tmp_path, description)).limits
    assert limits == Limits()


def test_a_group_outside_of_what_is_mounted_is_not_looked_for(tmp_path: Path) -> None:
    description = machine("vm-cgroup-v2")
    description["files"] |= {
        "proc/self/cgroup": "0::/../other\n",
        "sys/fs/cgroup/cpu.max": "300000 100000",
        "sys/fs/other/cpu.max": "100000 100000",
    }
    assert describe(Path("/"), sources=sources(tmp_path, description)).limits == Limits(cpus=3.0)


def test_no_limit_and_no_control_group_differ(tmp_path: Path) -> None:
    description = machine("vm-cgroup-v2")
    for path in [path for path in description["files"] if path.startswith("sys/fs/cgroup")]:
        del description["files"][path]
    assert describe(Path("/"), sources=sources(tmp_path / "none", description)).limits == Limits()
    assert known(tmp_path / "unseen", "aws-g4dn.xlarge").limits is None


# ---- disks and network


def test_a_disk_is_the_whole_device_under_the_partition_of_the_data(tmp_path: Path) -> None:
    host = known(tmp_path, "aws-g4dn.xlarge", "/home/train")
    disk = host.disks[0]
    assert (disk.path, disk.filesystem, disk.device) == ("/home/train", "ext4", "/dev/nvme0n1")
    assert (disk.model, disk.rotational, disk.size_bytes) == ("Amazon Elastic Block Store", False, None)
    assert host.disk == "ext4 on /dev/root"


def test_a_mount_with_a_blank_in_its_name_has_sizes(tmp_path: Path) -> None:
    disk = known(tmp_path, "aws-g4dn.xlarge", "/scratch disk").disks[0]
    assert (disk.device, disk.filesystem, disk.model) == ("/dev/nvme1n1", "xfs", "Amazon EC2 NVMe Instance Storage")
    assert (disk.size_bytes, disk.free_bytes) == (30517578 * 4096, 30000000 * 4096)


def test_a_logical_volume_is_followed_to_its_disk_and_a_raid_keeps_its_name(tmp_path: Path) -> None:
    root = known(tmp_path / "root", "dell-lost-gpu").disks[0]
    assert (root.device, root.model, root.rotational) == ("/dev/sda", "PERC H740P Mini", True)
    raid = known(tmp_path / "raid", "dell-lost-gpu", "/data").disks[0]
    assert (raid.device, raid.model) == ("/dev/md127", "2 x Dell Express Flash PM1725b")
    assert raid.rotational is False


def test_without_a_block_device_there_is_a_server_or_nothing(tmp_path: Path) -> None:
    home = known(tmp_path / "home", "dell-lost-gpu", "/home/me").disks[0]
    assert (home.filesystem, home.device, home.rotational) == ("nfs4", "store:/export/home", None)
    overlay = known(tmp_path / "overlay", "container-cgroup-v1").disks[0]
    assert (overlay.filesystem, overlay.device) == ("overlay", None)


def test_a_virtual_disk_that_claims_to_spin_is_not_believed(tmp_path: Path) -> None:
    disk = known(tmp_path, "vm-cgroup-v2").disks[0]
    assert (disk.device, disk.rotational) == ("/dev/vda", None)


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


# ---- the cloud


class Service:
    """A metadata service: answers by address, and remembers what it was asked."""

    def __init__(self, **answers: str | Exception) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, str], str, float]] = []

    def __call__(self, url: str, headers: Mapping[str, str], method: str, timeout_seconds: float) -> str:
        self.asked.append((url, dict(headers), method, timeout_seconds))
        answer = self.answers["token" if url.endswith("/token") else "instance"]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("name", "cloud", "instance", "source"),
    [
        ("aws-g4dn.xlarge", "aws", "g4dn.xlarge", "dmi"),
        ("aws-p3.16xlarge", "aws", None, None),
        ("aws-p2.16xlarge", "aws", None, None),
        ("gcp-a2-highgpu-8g", "gcp", None, None),
        ("azure-nc24s-v3", "azure", None, None),
        ("dell-lost-gpu", None, None, None),
        ("vm-cgroup-v2", None, None, None),
        ("container-cgroup-v1", None, None, None),
    ],
)
def test_the_firmware_names_the_cloud_and_nobody_is_asked(
    tmp_path: Path, name: str, cloud: str | None, instance: str | None, source: str | None
) -> None:
    host = known(tmp_path, name)  # asking fails the test
    assert (host.cloud, host.instance, host.instance_source) == (cloud, instance, source)


def test_only_amazons_product_names_are_instance_types(tmp_path: Path) -> None:
    description = machine("dell-lost-gpu")
    description["dmi"]["product_name"] = "node.large"
    assert describe(Path("/"), sources=sources(tmp_path, description)).instance is None


def test_what_the_user_says_is_believed_and_nobody_is_asked(tmp_path: Path) -> None:
    host = known(tmp_path, "gcp-a2-highgpu-8g", instance="a2-highgpu-8g", ask_metadata=True)
    assert (host.cloud, host.instance, host.instance_source) == ("gcp", "a2-highgpu-8g", "given")
    assert known(tmp_path / "own", "dell-lost-gpu", instance="my-box").instance == "my-box"


@pytest.mark.parametrize(
    ("name", "answer", "instance", "header", "path"),
    [
        (
            "gcp-a2-highgpu-8g",
            "projects/1234/machineTypes/a2-highgpu-8g\n",
            "a2-highgpu-8g",
            {"Metadata-Flavor": "Google"},
            "/computeMetadata/v1/instance/machine-type",
        ),
        (
            "azure-nc24s-v3",
            "Standard_NC24s_v3",
            "Standard_NC24s_v3",
            {"Metadata": "true"},
            "/metadata/instance/compute/vmSize",
        ),
    ],
)
def test_a_cloud_that_the_firmware_names_may_be_asked_for_the_type(
    tmp_path: Path, name: str, answer: str, instance: str, header: dict[str, str], path: str
) -> None:
    service = Service(instance=answer)
    host = known(tmp_path, name, fetch=service, ask_metadata=True)
    assert (host.instance, host.instance_source) == (instance, "metadata")
    [(url, headers, method, timeout_seconds)] = service.asked
    assert path in url
    assert (headers, method, timeout_seconds) == (header, "GET", 1.0)


def test_aws_is_asked_for_a_token_first(tmp_path: Path) -> None:
    service = Service(token="AQAE==", instance="p3.16xlarge")
    host = known(tmp_path, "aws-p3.16xlarge", fetch=service, ask_metadata=True)
    assert (host.instance, host.instance_source) == ("p3.16xlarge", "metadata")
    assert [(headers, method) for _, headers, method, _ in service.asked] == [
        ({"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT"),
        ({"X-aws-ec2-metadata-token": "AQAE=="}, "GET"),
    ]


@pytest.mark.parametrize("name", ["dell-lost-gpu", "vm-cgroup-v2", "container-cgroup-v1", "aws-g4dn.xlarge"])
def test_without_evidence_or_need_nobody_is_asked_even_if_allowed(tmp_path: Path, name: str) -> None:
    service = Service(token="x", instance="trap")
    assert known(tmp_path, name, fetch=service, ask_metadata=True).instance != "trap"
    assert service.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        TimeoutError("timed out"),
        ConnectionRefusedError(),
        OSError("404"),
        "",
        "<html><body>Please log in</body></html>",
        "not found",
        "x" * 1000,
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
)
@pytest.mark.parametrize("name", ["aws-p3.16xlarge", "gcp-a2-highgpu-8g", "azure-nc24s-v3"])
def test_a_service_that_is_late_or_talks_nonsense_leaves_the_type_unknown(
    tmp_path: Path, name: str, answer: str | Exception
) -> None:
    service = Service(token="token", instance=answer)
    host = known(tmp_path, name, fetch=service, ask_metadata=True)
    assert service.asked
    assert (host.instance, host.instance_source) == (None, None)
    assert host.cloud is not None


@pytest.mark.parametrize(
    ("facts", "cloud"),
    [
        ({"sys_vendor": "Amazon EC2", "product_name": "p4d.24xlarge"}, "aws"),
        ({"product_uuid": "EC2E1916-9099-7CAF", "product_serial": "ec2e1916-9099-7caf"}, "aws"),
        ({"product_serial": "GoogleCloud-1A2B"}, "gcp"),
        ({"chassis_asset_tag": "OracleCloud.com"}, "oracle"),
        ({"product_name": "Alibaba Cloud ECS"}, "alibaba"),
        ({"sys_vendor": "Tencent Cloud"}, "tencent"),
        ({"sys_vendor": "DigitalOcean"}, "digitalocean"),
        ({"sys_vendor": "Hetzner"}, "hetzner"),
        ({"sys_vendor": "Dell Inc.", "product_uuid": "ec2e1916-9099-7caf"}, None),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, None),
        ({"sys_vendor": "Google", "product_name": "Eve"}, None),
        ({"sys_vendor": "Oracle Corporation", "product_name": "VirtualBox"}, None),
        ({"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.11.4"}, None),
        ({}, None),
    ],
)
def test_a_maker_that_also_rents_out_machines_is_no_evidence(facts: dict[str, str], cloud: str | None) -> None:
    assert cloud_of(facts) == cloud


def test_every_cloud_with_a_question_can_be_recognised() -> None:
    facts = {
        "aws": {"sys_vendor": "Amazon EC2"},
        "gcp": {"product_name": "Google Compute Engine"},
        "azure": {"chassis_asset_tag": AZURE_CHASSIS},
        "oracle": {"chassis_asset_tag": "OracleCloud.com"},
        "alibaba": {"sys_vendor": "Alibaba Cloud"},
    }
    assert {"aws", *metadata.QUESTIONS} == set(facts)
    assert all(cloud_of(evidence) == cloud for cloud, evidence in facts.items())


# ---- the transport, on loopback


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/type")
            self.end_headers()
            return
        if self.path == "/late":
            time.sleep(0.5)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.command} {self.path} {self.headers['Metadata']}".encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def service_url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_question_goes_straight_to_the_service_with_its_headers(service_url: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert metadata.over_http(f"{service_url}/type?v=1", {"Metadata": "true"}, "PUT", 5.0) == "PUT /type?v=1 true"


def test_redirected_late_and_missing_answers_are_errors_of_the_system(service_url: str) -> None:
    with pytest.raises(OSError, match="302"):
        metadata.over_http(f"{service_url}/moved", {}, "GET", 5.0)
    with pytest.raises(TimeoutError):
        metadata.over_http(f"{service_url}/late", {}, "GET", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        metadata.over_http(f"http://127.0.0.1:{port}/", {}, "GET", 5.0)


def test_a_service_that_does_not_speak_http_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def mumble() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail ready\r\n\r\n")

        threading.Thread(target=mumble, daemon=True).start()
        with pytest.raises(OSError, match="HTTP"):
            metadata.over_http(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, "GET", 5.0)


# ---- nothing is required


def test_a_machine_without_any_files_is_unknown_and_no_error(tmp_path: Path) -> None:
    host = describe(Path("/nowhere"), sources=Sources(root=tmp_path, nvml=RecordedNvml(None)))
    said = host.model_dump(exclude_defaults=True)
    assert said.pop("hostname") == socket.gethostname()
    assert said == {"disks": ({"path": "/nowhere"},)}


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00 : \n -1 max x=y\n", b"-1", b"7" * 30, b": - - :"])
@pytest.mark.parametrize("name", MACHINES)
def test_files_full_of_nonsense_are_unknown_and_no_error(tmp_path: Path, name: str, content: bytes) -> None:
    source = sources(tmp_path, machine(name))
    for file in [file for file in tmp_path.rglob("*") if file.is_file() and not file.is_symlink()]:
        file.write_bytes(content)
    host = describe(Path("/"), sources=source)
    assert (host.cpu, host.memory_bytes, host.limits, host.cloud) == (None, None, None, None)


@pytest.mark.parametrize("name", MACHINES)
def test_a_described_machine_survives_its_json(tmp_path: Path, name: str) -> None:
    host = known(tmp_path, name)
    assert Host.model_validate_json(host.model_dump_json()) == host
    assert host.links is None


def test_this_machine_is_described_as_the_system_library_does() -> None:
    host = describe()
    assert host.cores == len(os.sched_getaffinity(0))
    assert host.memory_bytes == psutil.virtual_memory().total
    assert (host.kernel, host.hostname) == (platform.release(), socket.gethostname())
    assert {nic.name for nic in host.nics} >= set(os.listdir("/sys/class/net")) - {"lo", "bonding_masters"}
    free = host.disks[0].free_bytes
    assert free is None or free <= psutil.disk_usage(os.getcwd()).total


def test_describing_takes_no_time_that_a_profile_would_notice(tmp_path: Path) -> None:
    source = sources(tmp_path, machine("vm-cgroup-v2"))
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        describe(Path("/"), sources=source)
        taken.append(time.perf_counter() - started)
    assert min(taken) < 0.05
