"""Processor, cores, memory and nodes, from files of described machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_tree import known

from stash.measure.host import describe


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
    assert describe.ranges(listed) == numbers
