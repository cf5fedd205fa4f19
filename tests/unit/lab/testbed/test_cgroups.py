"""Limits in control groups: the steps for either version, and a tree that answers them as the kernel does."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.lab.testbed import execute, wiring
from stash.lab.testbed.execute import Executor, Portal
from stash.lab.testbed.topology import Argv, Owner, Topology, topology
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


FIRST, SECOND = Owner(77, 0xABC, 0xD, 0), Owner(78, 0xABC, 0xD, 0)
FILES = {"cpu": ("cpu.max", re.compile(r"(max|\d+) \d+")), "io": ("io.max", re.compile(r"\d+:\d+ rbps=\d+"))}
ROOT = "/cg"


@dataclass
class Kernel:
    """A version 2 hierarchy at ``/cg``: answers the steps of a set-up with what a kernel would say."""

    passed_on: set[str] = field(default_factory=set)
    limits: dict[str, dict[str, str]] = field(default_factory=dict)
    """Group: its files that were written."""
    available: tuple[str, ...] = ("cpu", "io", "memory")
    refusal: str = ""
    """What every write to the root's ``cgroup.subtree_control`` ends in."""

    def run(self, argv: Argv, patience: float = 30.0) -> subprocess.CompletedProcess[str]:
        complaint = self._do(argv)
        return subprocess.CompletedProcess(argv, 1 if complaint else 0, "", complaint)

    def _do(self, argv: Argv) -> str:
        if argv[0] == "mkdir":
            self.limits[argv[1]] = {}
            return ""
        if argv[0] == "rmdir":
            return "" if self.limits.pop(argv[1], None) is not None else "No such file or directory"
        assert argv[:2] == ("sh", "-c"), argv
        if argv[4].startswith(("+", "-")):
            return self._pass_on(*argv[4:])
        folder, _, name = argv[5].rpartition("/")
        controller = next(key for key, (file, _) in FILES.items() if file == name)
        if controller not in self.passed_on:
            return f"sh: cannot create {argv[5]}: Permission denied"
        if not FILES[controller][1].fullmatch(argv[4]):
            return "sh: printf: Invalid argument"
        self.limits[folder][name] = argv[4]
        return ""

    def _pass_on(self, text: str, control: str, *root: str) -> str:
        assert control == f"{ROOT}/cgroup.subtree_control"
        if self.refusal:
            return self.refusal
        if text[0] == "+":
            assert text[1:] in self.available
            self.passed_on.add(text[1:])
        elif not self.limits:  # the command itself looks whether groups of testbeds are left
            self.passed_on.discard(text[1:])
        return ""

    def find(self) -> Cgroups:
        files = {
            f"{ROOT}/cgroup.controllers": " ".join(self.available),
            f"{ROOT}/cgroup.subtree_control": " ".join(self.passed_on),
        }
        return wiring.find(f"cgroup2 {ROOT} cgroup2 rw 0 0\n", files.__getitem__)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(execute, "run", kernel.run)
    return kernel


def limit(kernel: Kernel, made: Topology, owner: Owner = FIRST) -> Executor:
    """The part of a set-up that sets limits, done; the executor undoes it."""
    found, executor = kernel.find(), Executor(Portal())
    steps = wiring.set_up(made, owner, found, Device(8, 0))
    executor.do(step for step in steps if step.argv[0] not in ("ip", "tc"))
    return executor


def test_limits_are_set_on_each_host_and_all_is_taken_back(kernel: Kernel) -> None:
    kernel.passed_on = {"memory"}
    executor = limit(kernel, topology(2, cpus=0.5, disk="20MB/s", overrides={1: {"cpus": 2}}))
    assert kernel.passed_on == {"memory", "cpu", "io"}
    assert kernel.limits == {
        f"{ROOT}/{FIRST.host(0)}": {"cpu.max": "10000 20000", "io.max": "8:0 rbps=20000000"},
        f"{ROOT}/{FIRST.host(1)}": {"cpu.max": "40000 20000", "io.max": "8:0 rbps=20000000"},
    }
    executor.undo()
    assert (kernel.limits, kernel.passed_on) == ({}, {"memory"})


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


def test_a_controller_the_hierarchy_lacks_is_refused_before_anything_is_done(kernel: Kernel) -> None:
    kernel.available = ("memory",)
    for wish, words in (({"cpus": 1}, "CPU time"), ({"disk": "1MB/s"}, "block I/O")):
        with pytest.raises(UserError, match=words):
            limit(kernel, topology(1, **wish))  # type: ignore[arg-type]
    assert kernel.limits == {}


def test_a_container_that_may_not_pass_a_controller_on_is_named_as_such(kernel: Kernel) -> None:
    kernel.refusal = "sh: 1: printf: I/O error: Device or resource busy"
    with pytest.raises(UserError, match=r"does not pass cpu on to new groups .*busy.* container"):
        limit(kernel, topology(1, cpus=1))
    assert kernel.limits == {}


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
