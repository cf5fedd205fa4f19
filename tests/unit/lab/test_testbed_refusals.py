"""What a machine cannot give is refused in one sentence that says what to do, and nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from stash.base.errors import UserError
from stash.lab.testbed import Testbed, disks, execute, reading
from stash.lab.testbed.topology import Topology, topology
from stash.lab.testbed.verify import ShapedLink

NAMESPACES = Path("/run/netns")


def refused(bed: Testbed, words: str) -> str:
    """The sentence a start ends in; nothing of that testbed is there afterwards."""
    with pytest.raises(UserError, match=words) as caught:
        bed.start()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert not list(NAMESPACES.glob(f"{bed.owner.token}-*"))
    return sentence


def test_a_user_without_namespaces_is_told_to_use_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        execute, "_KEEPER", ("sh", "-c", "echo 'unshare failed: Operation not permitted' >&2; exit 1")
    )
    said = refused(Testbed(2), "a testbed needs root, or user namespaces")
    assert "Operation not permitted" in said
    assert said.endswith("run it with sudo")


def test_what_a_testbed_would_run_can_be_read_by_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(execute, "run", None)
    bed = Testbed(2, network="1gbit")
    said = [step.describe() for step in bed.steps]
    assert said[0] == f"ip netns add {bed.owner.switch}"
    assert [line for line in said if line.startswith("ip netns add")][1:] == [
        f"ip netns add {bed.owner.host(node)}" for node in (0, 1)
    ]
    assert sum(" tbf rate 1000000000bit " in line for line in said) == 4


@pytest.mark.parametrize(("program", "package"), [("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux")])
def test_a_missing_program_is_named_with_its_package_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, package: str
) -> None:
    for name in {"ip", "tc", "nsenter", "unshare"} - {program}:
        (tmp_path / name).touch(mode=0o755)  # there, but never to be run
    monkeypatch.setattr(execute, "_path", lambda: str(tmp_path))
    refused(Testbed(2), f"needs the program `{program}`; install {package}")


def test_more_ranks_than_memory_are_refused_with_how_many_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1e9))
    refused(Testbed(4, 2), "8 ranks need about 2.40 GB of memory and 1.00 GB are free; use 3 or fewer")


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (1.3e9, r"cannot read --disk 5.00 GB/s: the highest rate verified under /data on node 1 is 1.30 GB/s"),
        (6.0e9, r"reads under /data on node 1 reach 6.00 GB/s in spite of the limit"),
    ],
)
def test_a_disk_that_is_off_is_refused_with_what_was_measured(measured: float, words: str) -> None:
    assert words in disks.sentence(ShapedLink(1, "disk", "read", 5e9, measured, 0), Path("/data"))


def limited() -> Topology:
    return topology(2, overrides={1: {"disk": "100MB/s"}})


def answers(*lines: str) -> disks.Command:
    """Commands that print one line after the other."""
    left = iter(lines)
    return lambda words, node: ("sh", "-c", next(left))


def test_a_disk_is_measured_again_when_it_is_off_and_only_where_it_is_limited() -> None:
    said = [f"echo '{{\"rate\": {rate}}}'" for rate in (60e6, 90e6, 98e6, 100e6)]
    (disk,) = disks.verify(limited(), Path("/data"), answers(*said))
    assert (disk.node, disk.asked, disk.measured) == (1, 100e6, 98e6)
    assert disk.describe() == "node 1 disk read: 98.0 MB/s verified (100 MB/s asked)"


def test_of_five_tries_that_are_all_off_the_nearest_is_named() -> None:
    said = [f"echo '{{\"rate\": {rate}}}'" for rate in (60e6, 90e6, 80e6, 70e6, 50e6)]
    with pytest.raises(UserError, match=r"highest rate verified .* is 90.0 MB/s"):
        disks.verify(limited(), Path("/data"), answers(*said))


def test_a_folder_that_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    def on_node(words: Sequence[str], node: int) -> tuple[str, ...]:
        return tuple(words)

    with pytest.raises(UserError, match=r"--disk cannot be verified: .*none.*No such file or directory.*--disk-path"):
        disks.verify(limited(), tmp_path / "none", on_node)


def test_sizes_of_requests_and_of_the_file_fit_the_rate() -> None:
    for rate in (1e3, 1e6, 20e6, 1e9, 1e12):
        chunk = reading.chunk_bytes(rate)
        assert 4096 <= chunk <= 2**20
        assert chunk % 4096 == 0
        size = reading.file_bytes(rate, disks.seconds(rate), chunk)
        assert size % chunk == 0
        assert size <= 256 * 2**20
    assert disks.seconds(20e6) == 1.0
    assert disks.seconds(1e3) == 10.0


@pytest.mark.parametrize("direct", [True, False])
def test_what_is_read_comes_from_the_disk_with_and_without_direct_io(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    if os.major(os.stat(tmp_path).st_dev) == 0:
        pytest.skip("this folder lies on no block device")
    if not direct:
        monkeypatch.setattr(os, "O_DIRECT", 0o777777777)  # flags no file system takes
    before = psutil.Process().io_counters().read_bytes
    rate, way = reading.measure(str(tmp_path), 20e6, 0.2)
    fetched = psutil.Process().io_counters().read_bytes - before
    assert way == ("direct" if direct else "evicted")
    assert rate > 0
    assert fetched >= rate * 0.2 * 0.9
    assert not list(tmp_path.iterdir())
