"""Limits in control groups: the steps for either version, and a tree that answers them as the kernel does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.lab.testbed import wiring
from stash.lab.testbed.topology import Owner, topology
from stash.lab.testbed.wiring import Cgroups, Controller, Device

OWNER = Owner(77, 0xABC, 0xD, 0)
V1 = Cgroups(Controller(1, "/cg/cpu"), Controller(1, "/cg/blkio"))


def test_limits_in_control_groups_of_version_1() -> None:
    steps = wiring.set_up(topology(1, cpus=0.5, disk="100MB/s"), OWNER, V1, Device(254, 0))
    made = [step for step in steps if step.argv[0] == "mkdir"]
    assert [step.undo for step in made] == [
        ("rmdir", "/cg/cpu/stash-tb-77-abc-d-0-n0"),
        ("rmdir", "/cg/blkio/stash-tb-77-abc-d-0-n0"),
    ]
    assert [step.argv[-2:] for step in steps if step.argv[0] == "sh"] == [
        ("20000", "/cg/cpu/stash-tb-77-abc-d-0-n0/cpu.cfs_period_us"),
        ("10000", "/cg/cpu/stash-tb-77-abc-d-0-n0/cpu.cfs_quota_us"),
        ("254:0 100000000", "/cg/blkio/stash-tb-77-abc-d-0-n0/blkio.throttle.read_bps_device"),
    ]


def test_controllers_are_found_in_the_mount_table() -> None:
    files = {"/u/cgroup.controllers": "cpu io memory", "/u/cgroup.subtree_control": "cpu"}
    both = "cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /u cgroup2 rw 0 0\n"
    assert wiring.find(both, files.__getitem__) == Cgroups(
        Controller(1, "/c/cpu,cpuacct"), Controller(2, "/u", False)
    )
    assert wiring.find("tmpfs /run tmpfs rw 0 0", files.__getitem__) == Cgroups()


def test_a_folder_on_no_block_device_is_refused() -> None:
    with pytest.raises(UserError, match="no block device"):
        wiring.device_of(Path("/proc"))


SECOND = Owner(78, 0xABC, 0xD, 0)
ROOT = "/cg"


def test_the_command_that_takes_a_controller_back_looks_for_other_testbeds(tmp_path: Path) -> None:
    control = tmp_path / "cgroup.subtree_control"
    found = Cgroups(cpu=Controller(2, str(tmp_path), enabled=False))
    (step,) = found.enabling(topology(1, cpus=1))
    assert step.undo is not None
    subprocess.run(step.argv, check=True)
    assert control.read_text() == "+cpu"
    (tmp_path / SECOND.host(0)).mkdir()
    subprocess.run(step.undo, check=True)
    assert control.read_text() == "+cpu"
    (tmp_path / SECOND.host(0)).rmdir()
    subprocess.run(step.undo, check=True)
    assert control.read_text() == "-cpu"


def test_a_hierarchy_that_cannot_be_read_is_passed_over() -> None:
    def read(path: str) -> str:
        raise PermissionError(path)

    assert wiring.find("cgroup2 /cg cgroup2 rw 0 0\n", read) == Cgroups()


@pytest.mark.parametrize("first", ["cgroup", "cgroup2"])
def test_a_controller_bound_to_version_1_is_used_there_whatever_comes_first(first: str) -> None:
    files = {f"{ROOT}/cgroup.controllers": "io", f"{ROOT}/cgroup.subtree_control": "io"}
    lines = {"cgroup": "cgroup /c/cpu cgroup rw,cpu 0 0", "cgroup2": f"cgroup2 {ROOT} cgroup2 rw 0 0"}
    mounts = "\n".join(sorted(lines.values(), key=lambda line: not line.startswith(first + " ")))
    assert wiring.find(mounts, files.__getitem__) == Cgroups(Controller(1, "/c/cpu"), Controller(2, ROOT))


def test_a_partition_stands_for_its_whole_disk(tmp_path: Path) -> None:
    number = os.stat(tmp_path).st_dev
    if os.major(number) == 0:
        pytest.skip("this folder lies on no block device")
    disk = tmp_path / "sda"
    (disk / "sda1").mkdir(parents=True)
    (disk / "dev").write_text("8:0\n")
    (tmp_path / f"{os.major(number)}:{os.minor(number)}").symlink_to(disk / "sda1")
    assert wiring.device_of(tmp_path, tmp_path) == Device(os.major(number), os.minor(number))
    (disk / "sda1" / "partition").write_text("1\n")
    assert wiring.device_of(tmp_path, tmp_path) == Device(8, 0)


def test_a_disk_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--disk-path .*none: No such file or directory; name a folder"):
        wiring.device_of(tmp_path / "none")
