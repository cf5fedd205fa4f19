"""Limits in control groups: the steps for either version, and a tree that answers them as the kernel does."""

import os
import subprocess
from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.lab.testbed import wiring
from stash.lab.testbed.topology import Owner, Step, make_topology, write_command
from stash.lab.testbed.wiring import Device, DiskLimits

OWNER = Owner(77, 0xABC, 0xD, 0)


@pytest.mark.parametrize(
    ("version", "file", "text"),
    [
        (1, "blkio.throttle.read_bps_device", "254:0 100000000"),
        (2, "io.max", "254:0 rbps=100000000"),
    ],
)
def test_a_limit_in_control_groups(version, file, text):
    steps = wiring.set_up(
        make_topology(1, disk="100MB/s"), OWNER, DiskLimits(version, "/cg"), Device(254, 0)
    )
    group = "/cg/stash-tb-77-abc-d-0-n0"
    assert steps[-2:] == (
        Step(("mkdir", group), ("rmdir", group)),
        Step(write_command(text, f"{group}/{file}")),
    )


def test_a_limit_without_a_controller_is_refused():
    with pytest.raises(UserError, match="no cgroup controller for block I/O"):
        wiring.set_up(make_topology(1, disk="100MB/s"), OWNER, None, Device(254, 0))


@pytest.mark.parametrize(
    ("mounts", "found"),
    [
        ("tmpfs /run tmpfs rw 0 0", None),
        ("cgroup2 /u cgroup2 rw 0 0", DiskLimits(2, "/u", False)),
        (
            "cgroup2 /u cgroup2 rw 0 0\ncgroup /c/blkio cgroup rw,blkio 0 0",
            DiskLimits(1, "/c/blkio"),
        ),
        (
            "cgroup /c/blkio cgroup rw,blkio 0 0\ncgroup2 /u cgroup2 rw 0 0",
            DiskLimits(1, "/c/blkio"),
        ),
        ("cgroup2 /unreadable cgroup2 rw 0 0", None),
    ],
)
def test_the_controller_is_found_in_the_mount_table(mounts, found):
    def read(path):
        if path.startswith("/unreadable"):
            raise PermissionError(path)
        return {"/u/cgroup.controllers": "cpu io memory", "/u/cgroup.subtree_control": "cpu"}[path]

    assert wiring.find_limits(mounts, read) == found


def test_a_folder_on_no_block_device_is_refused():
    with pytest.raises(UserError, match="no block device"):
        wiring.device_of(Path("/proc"))


SECOND = Owner(78, 0xABC, 0xD, 0)


def test_the_command_that_takes_a_controller_back_looks_for_other_testbeds(tmp_path):
    control = tmp_path / "cgroup.subtree_control"
    (step,) = DiskLimits(2, str(tmp_path), enabled=False).enabling()
    assert step.undo is not None
    subprocess.run(step.argv, check=True)
    assert control.read_text() == "+io"
    (tmp_path / SECOND.host(0)).mkdir()
    subprocess.run(step.undo, check=True)
    assert control.read_text() == "+io"
    (tmp_path / SECOND.host(0)).rmdir()
    subprocess.run(step.undo, check=True)
    assert control.read_text() == "-io"


def test_a_partition_stands_for_its_whole_disk(tmp_path):
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


def test_a_disk_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"--disk: .*none: No such file or directory; type it in"):
        wiring.device_of(tmp_path / "none")
