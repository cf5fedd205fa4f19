"""A limited disk is measured until it is right, or refused with what was measured."""

from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.lab.testbed import verify
from stash.lab.testbed.topology import make_topology
from stash.lab.testbed.verify import ShapedLink


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (
            1.3e9,
            r"cannot read --disk 5.00 GB/s: the highest rate verified under /data on node 1 is 1.30 GB/s",
        ),
        (6.0e9, r"reads under /data on node 1 reach 6.00 GB/s in spite of the limit"),
    ],
)
def test_a_disk_that_is_off_is_refused_with_what_was_measured(measured, words):
    assert words in verify.explain_disk(
        ShapedLink(1, "disk", "read", 5e9, measured, 0), Path("/data")
    )


def limited():
    return make_topology(2, overrides={1: {"disk": "100MB/s"}})


def answers(*lines):
    """Commands that print one line after the other."""
    left = iter(lines)
    return lambda words, node: ("sh", "-c", next(left))


def test_a_disk_is_measured_again_when_it_is_off_and_only_where_it_is_limited():
    readings = [f"echo {rate}" for rate in (60e6, 90e6, 98e6, 100e6)]
    (disk,) = verify.verify_disks(limited(), Path("/data"), answers(*readings))
    assert (disk.node, disk.asked, disk.measured) == (1, 100e6, 98e6)
    assert disk.describe() == "node 1 disk read: 98.0 MB/s verified (100 MB/s asked)"


def test_a_folder_that_cannot_be_written_is_refused_with_the_reason(tmp_path):
    def on_node(words, node):
        return tuple(words)

    with pytest.raises(
        UserError,
        match=r"--disk cannot be verified: .*none.*No such file or directory.*type it in another",
    ):
        verify.verify_disks(limited(), tmp_path / "none", on_node)
