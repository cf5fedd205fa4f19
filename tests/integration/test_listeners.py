"""What runs really listen on, held against the table of SECURITY.md."""

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from characterized import needs_testbed
from test_probe_links import on_all
from test_spot_rehearsal import JOB, POOL

from bench.docs.listeners import LISTENERS
from stash.lab.testbed.bed import Testbed
from stash.lab.testbed.topology import MARK

REACHES = (
    "nothing",
    "this machine",
    "the run's interface",
    "all interfaces",
)


def _reach(address, own=""):
    plain = address.removeprefix("::ffff:")
    if plain.startswith("127.") or plain == "::1":
        return "this machine"
    return "the run's interface" if plain == own else "all interfaces"


def _listening(mark):
    """Program and address of every socket of processes with ``mark`` in their environment."""
    for process in psutil.process_iter():
        try:
            if mark in {f"{name}={value}" for name, value in process.environ().items()}:
                for each in process.net_connections("inet"):
                    if each.status == psutil.CONN_LISTEN or each.type == socket.SOCK_DGRAM:
                        yield process.name(), each.laddr.ip
        except psutil.Error:
            continue  # it has ended


def _declared(*when):
    found = [each for each in LISTENERS if each.when in when]
    assert {each.when for each in found} == set(when)
    return found


@pytest.mark.slow
def test_a_local_spot_run_listens_where_the_table_says(tmp_path):
    pytest.importorskip("ray")
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "pool.yaml").write_text(POOL)
    stash = (sys.executable, "-m", "stash", "spot")
    plan = (
        "plan",
        "--pool",
        "pool.yaml",
        "--deadline",
        "22s",
        "--loss",
        "0.01",
        "-o",
        "job.plan.json",
    )
    subprocess.run((*stash, *plan), cwd=tmp_path, check=True, capture_output=True)
    words = ("run", "job.plan.json", "job.py:job", "--on", "local", "-o", "x.spotlog.json")
    environment = {**os.environ, "STASH_REHEARSED": str(tmp_path)}
    process = subprocess.Popen(
        (*stash, *words), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "training began" in line:
            break
    found = sorted(_listening(f"STASH_REHEARSED={tmp_path}"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    declared = _declared("`stash spot run --on local`")
    assert (
        {_reach(address) for _, address in found}
        == {each.reach for each in declared}
        == {"this machine"}
    ), found
    programs = tuple(program for each in declared for program in each.programs)
    assert [each for each in found if not each[0].startswith(programs)] == []
    assert sum(name.startswith("ray::ServerActor") for name, _ in found) == 2  # Ray's, and ours


def _in_namespace(bed, node):
    shown = subprocess.run(
        ("ip", "netns", "exec", bed.environment(node)[MARK], "ss", "-H", "-l", "-n", "-t", "-u"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    places = [line.split()[4].rpartition(":")[0].strip("[]") for line in shown.splitlines()]
    return {_reach(place, bed.address(node)) for place in places}


@pytest.mark.slow
@needs_testbed
def test_a_probe_team_listens_where_the_table_says(tmp_path):
    with Testbed(2, network="200mbit", verify=False) as bed:
        ranks = on_all(bed, tmp_path / "found.json", 4, "streams,exchanges")
        found = set()
        while any(rank.poll() is None for rank in ranks):
            found |= _in_namespace(bed, 0) | _in_namespace(bed, 1)
            time.sleep(0.05)
    declared = _declared("several nodes", "`stash probe` on several nodes")
    assert found <= {each.reach for each in declared} | {"this machine"}
    assert "the run's interface" in found
    assert all(
        REACHES.index(each.reach) <= REACHES.index("the run's interface") for each in declared
    )
