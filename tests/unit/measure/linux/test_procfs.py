"""Which file system holds a file, from described mount tables and from this machine's own."""

import os
from pathlib import Path

import pytest

from stash.measure.linux import procfs
from stash.measure.linux.procfs import caches_itself, kind_of

TABLE = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
51 27 0:44 / /data rw,relatime - nfs4 server:/data rw
52 27 0:45 / /pool rw,relatime - btrfs /dev/sdb rw
"""


@pytest.fixture
def described(tmp_path, monkeypatch):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(TABLE)
    monkeypatch.setattr(procfs, "_known", {})
    return tmp_path


@pytest.mark.parametrize(
    ("path", "device", "kind"),
    [
        ("/home/a", os.makedev(254, 0), "ext4"),
        ("/data/a", os.makedev(0, 44), "nfs4"),
        ("/pool/a", os.makedev(0, 99), "btrfs"),  # which numbers files otherwise than mounts
    ],
)
def test_a_file_is_found_by_its_device_or_else_by_where_it_lies(described, path, device, kind):
    assert kind_of(path, device, described) == kind


def test_file_systems_that_keep_what_was_read_elsewhere():
    assert all(
        map(caches_itself, ("zfs", "nfs", "nfs4", "fuse.sshfs", "fuse", "tmpfs", "virtiofs"))
    )
    assert not any(map(caches_itself, ("ext4", "xfs", "btrfs", "overlay", None)))


def test_this_machine_knows_where_its_memory_is_a_file_system():
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm here")
    assert kind_of("/dev/shm", Path("/dev/shm").stat().st_dev) == "tmpfs"
