"""A testbed on this machine: links carry what was asked, nothing is left behind, a profile meets a known truth."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from characterized import needs_testbed
from runs import PATIENCE

from stash.core.errors import UserError
from stash.lab.testbed import wiring
from stash.lab.testbed.bed import Testbed, list_leftovers, sweep
from stash.lab.testbed.topology import next_owner, owner_of

pytestmark = needs_testbed


def _disk_obstacle():
    """Why reads from the disk under the tests' folders cannot be limited here; empty if they can."""
    try:
        wiring.device_of(Path(tempfile.gettempdir()))
    except UserError as error:
        return str(error)
    return "" if wiring.find_limits() is not None else "no cgroup controller for block I/O"


needs_disk = pytest.mark.skipif(bool(_disk_obstacle()), reason=_disk_obstacle())

NAMESPACES = Path("/run/netns")
BUSY = 3.0
"""How many times longer a transfer may take on a machine that does other work; without its limit it is shorter."""
MEGABYTES = 20
EXCHANGE = f"""
import json, os, time, torch, torch.distributed as dist
rank = int(os.environ["STASH_NODE"])
dist.init_process_group("gloo", f"tcp://{{os.environ['STASH_TESTBED_HEAD']}}:29533", rank=rank, world_size=2)
tensor = torch.ones({MEGABYTES} * 250_000)
dist.all_reduce(tensor)
seconds = []
for _ in range(5):
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(tensor)
    seconds.append(time.perf_counter() - began)
print(json.dumps(sorted(seconds)), flush=True)
dist.destroy_process_group()
"""
HOLD = """
import sys, time
from stash.lab.testbed.bed import Testbed
bed = Testbed(2, network="1gbit", verify=False)
bed.start()
print(bed.owner.token, bed.run(["sleep", "600"], 1).pid, flush=True)
time.sleep(600)
"""


def names(token):
    """Everything on this machine that carries a testbed's token."""
    roots = [NAMESPACES, *Path("/sys/fs/cgroup").glob("*"), Path("/sys/fs/cgroup")]
    return [path.name for root in roots if root.is_dir() for path in root.glob(f"{token}-*")]


@pytest.fixture
def holder():
    """A process that holds a testbed on which a command runs: (process, token, the command's pid)."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    token, pid = process.stdout.readline().split()
    yield process, token, int(pid)
    process.kill()
    process.communicate()
    sweep()


def test_links_are_verified_and_an_all_reduce_takes_its_bytes_over_the_rate():
    with Testbed(2, network="1gbit", interconnect="2gbit") as bed:
        assert len(bed.links) == 6
        assert all(link.right for link in bed.links)
        rate = min(link.measured for link in bed.links if link.name == "network")
        ranks = bed.run_all(
            lambda _: [sys.executable, "-c", EXCHANGE], env={"OMP_NUM_THREADS": "1"}
        )
        assert [rank.wait(PATIENCE) for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
        seconds = json.loads(ranks[0].output.splitlines()[-1])
    # Ring all-reduce over two ranks: each sends its tensor once. The fastest of five: other work only slows.
    assert MEGABYTES * 1e6 / rate * 0.85 < seconds[0] < MEGABYTES * 1e6 / rate * BUSY
    assert not names(bed.owner.token)


def test_a_host_that_differs_and_a_link_that_changes_while_things_run():
    with Testbed(2, network="200mbit", overrides={1: {"network": "50mbit"}}) as bed:
        assert sorted({link.asked for link in bed.links}) == [6.25e6, 25e6]
        connect = [
            sys.executable,
            "-c",
            f"import socket; socket.create_connection(('{bed.address(0)}', 9), 1)",
        ]

        def refused():
            attempt = bed.run(connect, 1)
            attempt.wait(PATIENCE)
            return "ConnectionRefused" in attempt.output

        assert refused()
        bed.unplug(1)
        assert not refused()
        bed.plug(1)
        deadline = time.monotonic() + PATIENCE
        while not refused():
            assert time.monotonic() < deadline
        bed.set_network(0, "20mbit")
        shown = bed.run(["tc", "qdisc", "show", "dev", bed.interface(0)], 0)
        shown.wait(PATIENCE)
        assert "rate 20Mbit" in shown.output


def test_a_rate_the_machine_cannot_carry_is_refused_with_the_highest_verified():
    bed = Testbed(1, network="900gbit")
    with pytest.raises(
        UserError,
        match=r"cannot carry --network 900 Gbit/s: the highest rate verified .* is [\d.]+ [MG]bit/s",
    ):
        bed.start()
    assert not names(bed.owner.token)


@needs_disk
def test_disks_are_verified_past_the_page_cache_on_each_host(tmp_path):
    with Testbed(2, disk="20MB/s", overrides={1: {"disk": "40MB/s"}}, disk_path=tmp_path) as bed:
        assert [(link.node, link.name, link.asked) for link in bed.links] == [
            (0, "disk", 20e6),
            (1, "disk", 40e6),
        ]
        assert all(link.right for link in bed.links)
        assert not list(tmp_path.iterdir())
        # By another program than the one that verified: dd, past the page cache.
        file = tmp_path / "data"
        file.write_bytes(os.urandom(20_000_000))
        subprocess.run(["sync", str(file)], check=True)
        began = time.monotonic()
        copy = bed.run(["dd", f"if={file}", "of=/dev/null", "bs=256k", "iflag=direct"], 0)
        assert copy.wait(PATIENCE) == 0, copy.output
        assert 0.8 < time.monotonic() - began < BUSY
    assert not names(bed.owner.token)


def test_an_existing_namespace_of_that_name_is_never_touched():
    after = next_owner()
    taken = replace(after, serial=after.serial + 1).host(1)
    subprocess.run(["ip", "netns", "add", taken], check=True)
    try:
        with pytest.raises(UserError, match="exists already"):
            Testbed(2, verify=False).start()
        assert names(taken.rpartition("-")[0]) == [taken]
    finally:
        subprocess.run(["ip", "netns", "del", taken], check=True)


def test_ctrl_c_leaves_nothing(holder):
    process, token, pid = holder
    assert names(token)
    script = (
        HOLD.replace("bed.start()", "")
        .replace("print", "with bed: print")
        .replace("time.sleep(600)", "")
    )
    script = script.replace("flush=True)", "flush=True); time.sleep(600)")
    second = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    own = second.stdout.readline().split()[0]
    assert names(own)
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=PATIENCE)
    assert not names(own)
    assert names(token)  # a testbed in use is left alone
    assert process.poll() is None
    assert Path(f"/proc/{pid}").exists()


def test_what_kill_9_left_is_swept_and_only_that(
    holder,
):
    process, token, pid = holder
    foreign = f"stash-tb-foreign-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        process.kill()
        process.wait()
        assert any(name.startswith(token) for name in list_leftovers())
        with Testbed(1, verify=False):  # the next start sweeps
            assert not names(token)
        deadline = time.monotonic() + PATIENCE
        while Path(f"/proc/{pid}/cwd").exists():
            assert time.monotonic() < deadline
        assert (NAMESPACES / foreign).exists()
        assert owner_of(foreign) is None
    finally:
        subprocess.run(["ip", "netns", "del", foreign], check=True)
