"""What control groups of either version allow."""

from pathlib import Path

import pytest
from recorded_tree import known, machine, sources

from stash.core.records.host import Limits
from stash.measure.host.describe import describe


def test_version_2_limits_are_the_tightest_of_the_groups_above(tmp_path):
    host = known(tmp_path, "vm-cgroup-v2")
    assert host.limits == Limits(cpus=1.5, memory_bytes=4 * 2**30, read_bytes_per_second=50 * 2**20)


def test_version_1_limits_are_those_of_the_container(tmp_path):
    host = known(tmp_path, "container-cgroup-v1", "/data/train")
    assert host.limits == Limits(
        cpus=2.5, memory_bytes=2 * 2**30, read_bytes_per_second=100 * 2**20
    )
    elsewhere = known(tmp_path / "again", "container-cgroup-v1", "/tmp")
    # another disk than the limited one
    assert elsewhere.limits == Limits(cpus=2.5, memory_bytes=2 * 2**30)


@pytest.mark.parametrize("giant", [9223372036854771712, 9223372036854710272])
def test_the_giant_of_version_1_is_no_limit(tmp_path, giant):
    description = machine("container-cgroup-v1")
    description["files"]["sys/fs/cgroup/memory/job/memory.limit_in_bytes"] = giant
    description["files"]["sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"] = -1
    limits = describe(Path("/"), sources=sources(tmp_path, description)).limits
    assert limits == Limits()


def test_a_group_outside_of_what_is_mounted_is_not_looked_for(tmp_path):
    description = machine("vm-cgroup-v2")
    description["files"] |= {
        "proc/self/cgroup": "0::/../other\n",
        "sys/fs/cgroup/cpu.max": "300000 100000",
        "sys/fs/other/cpu.max": "100000 100000",
    }
    assert describe(Path("/"), sources=sources(tmp_path, description)).limits == Limits(cpus=3.0)


def test_no_limit_and_no_control_group_differ(tmp_path):
    description = machine("vm-cgroup-v2")
    for path in [path for path in description["files"] if path.startswith("sys/fs/cgroup")]:
        del description["files"][path]
    assert describe(Path("/"), sources=sources(tmp_path / "none", description)).limits == Limits()
    assert known(tmp_path / "unseen", "aws-g4dn.xlarge").limits is None
