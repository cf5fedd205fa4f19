"""The disk under the data: partitions, volumes, servers, and nothing at all."""

from recorded_tree import known


def test_a_disk_is_the_whole_device_under_the_partition_of_the_data(tmp_path):
    host = known(tmp_path, "aws-g4dn.xlarge", "/home/train")
    disk = host.disks[0]
    assert (disk.path, disk.filesystem, disk.device) == ("/home/train", "ext4", "/dev/nvme0n1")
    assert (disk.model, disk.rotational, disk.size_bytes) == (
        "Amazon Elastic Block Store",
        False,
        None,
    )
    assert host.disk == "ext4 on /dev/root"


def test_a_logical_volume_is_followed_to_its_disk_and_a_raid_keeps_its_name(tmp_path):
    root = known(tmp_path / "root", "dell-lost-gpu").disks[0]
    assert (root.device, root.model, root.rotational) == ("/dev/sda", "PERC H740P Mini", True)
    raid = known(tmp_path / "raid", "dell-lost-gpu", "/data").disks[0]
    assert (raid.device, raid.model) == ("/dev/md127", "2 x Dell Express Flash PM1725b")
    assert raid.rotational is False


def test_without_a_block_device_there_is_a_server_or_nothing(tmp_path):
    home = known(tmp_path / "home", "dell-lost-gpu", "/home/me").disks[0]
    assert (home.filesystem, home.device, home.rotational) == ("nfs4", "store:/export/home", None)
    overlay = known(tmp_path / "overlay", "container-cgroup-v1").disks[0]
    assert (overlay.filesystem, overlay.device) == ("overlay", None)


def test_a_virtual_disk_that_claims_to_spin_is_not_believed(tmp_path):
    disk = known(tmp_path, "vm-cgroup-v2").disks[0]
    assert (disk.device, disk.rotational) == ("/dev/vda", None)
