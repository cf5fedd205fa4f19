"""Networks: strangers on every port, links that die or fade, nodes that are lost, and nodes that cannot meet at all.

On one machine a stranger is a program beside the profile; between nodes it is a host of its own on their network.
"""

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

from stash.lab.testbed import bed
from tests.faults.case import Case, Expected

HERE = Path(__file__).parents[1]
STRANGER, NODES = HERE / "stranger.py", HERE / "nodes.py"
ATTACKS = ("brackets", "infinity", "noise", "lengths", "http", "pickles", "silence", "unpickle")
SECRET = "--rdzv-id 0123456789abcdef"
RANK = "--node-rank {node}"
LONG = "--budget 120 --noise 0.05"
LOST = r"node {0} \(10\.77\.0\.\d\) stopped answering at .* The rounds measured before are kept"
LEFT = ("stash-*",)
"""What failed jobs printed stays for a week."""


@cache
def has_testbed():
    """Whether networks can be emulated here."""
    return os.geteuid() == 0 and bed.why_no_testbed() is None


def listed(least):
    """Look where it listens while it measures; at ``least`` so many sockets are to be seen. It may end then."""

    def act(run, room):
        run.wait_for("round 1 done")
        found = run.list_sockets()
        assert len(found) >= least, f"only {found}"
        assert all(address in ("127.0.0.1", "::1") for address, _, _ in found), (
            f"listens on {found}"
        )
        run.popen.send_signal(signal.SIGHUP)  # as if its terminal were closed

    return act


def attacked(attack):
    """Let a stranger speak to every port that is open while it measures."""

    def act(run, room):
        run.wait_for("round 1 done")
        places = [f"{address}:{port}/{kind}" for address, port, kind in run.list_sockets()]
        assert places, "nothing listens"
        words = [
            sys.executable,
            str(STRANGER),
            "--attack",
            attack,
            "--proof",
            str(room.outside / "proof"),
        ]
        subprocess.run(
            [*words, "--seconds", "4", *places], check=True, capture_output=True, timeout=300
        )

    return act


def not_run(outcome, room):
    return "what the stranger sent was run" if (room.outside / "proof").exists() else None


FOREVER = ("--budget", "40", "--noise", "0.05")
RANKS = ("--nproc-per-node", "2", "--budget", "20", "--noise", "0.05")
ON_ONE_MACHINE = [
    *(
        Case(
            "networks",
            f"on one machine nothing listens but on loopback: {name}",
            job,
            ("--nproc-per-node", ranks, *FOREVER),
            act=listed(least),
            expected=Expected((130,), ("interrupted",), ("Traceback",), rounds=1),
            pace=pace,
        )
        for name, job, ranks, least, pace in (
            ("two ranks", ("train.py",), "2", 3, "fast"),
            ("two ranks with workers", ("train.py", "--workers", "1"), "2", 3, "slow"),
            ("one process", ("train.py", "--workers", "1"), "1", 0, "slow"),
        )
    ),
    *(
        Case(
            "networks",
            f"a stranger on every port of one machine: {attack}",
            options=RANKS,
            act=attacked(attack),
            check=not_run,
            expected=Expected(rounds=1, seconds=120),
        )
        for attack in ATTACKS
    ),
]


def on_nodes(options, *harness):
    """The profile on several hosts; ``harness``: what is done to them."""

    def program(room):
        profile = (
            sys.executable,
            "-m",
            "stash",
            "profile",
            "--nnodes",
            "{nodes}",
            "--rdzv-endpoint",
            "{head}",
        )
        rest = ("--nproc-per-node", "1", *options.split(), "-o", "{output}", "train.py")
        return (
            sys.executable,
            str(NODES),
            "--elsewhere",
            str(room.outside),
            *harness,
            "--",
            *profile,
            *rest,
        )

    return program


def between(
    name,
    expected,
    options,
    *harness,
    hosts=2,
    nodes=2,
    pace="slow",
):
    """A case on hosts of which the first few are the job's nodes."""
    size = ("--hosts", str(hosts), "--profiled", str(nodes))
    return Case(
        "networks",
        name,
        program=on_nodes(options, *size, *harness),
        expected=expected,
        needs=has_testbed,
        pace=pace,
    )


def strangers():
    """A third host that speaks to every port of the two that profile, or waits for them at their meeting point."""
    held = Expected(says=("words were not run", "host 1 ended with 0"), rounds=1, seconds=200)
    for attack in ATTACKS:
        yield between(
            f"a stranger on every port of two nodes: {attack}",
            held,
            f"{RANK} --budget 15 --noise 0.05",
            "--do",
            f"attack 2 {attack} 4",
            hosts=3,
            pace="fast" if attack == "brackets" else "slow",
        )
        yield between(
            f"a stranger at the meeting point before the nodes number themselves: {attack}",
            held,
            f"{SECRET} --budget 4 --noise 50",
            "--at-once",
            f"lurk 2 {attack} 20",
            hosts=3,
        )


def failed(*says, rounds=1, seconds=120):
    return Expected((1,), says, rounds=rounds, seconds=seconds, leaves=LEFT)


GOES_ON = Expected(says=("host 1 ended with 0",), rounds=1, seconds=240)
BOTH_LOST = failed(LOST.format(0), LOST.format(1), "host 1 ended with 1")
SHORT = f"{RANK} --budget 25 --noise 0.05"
FAULTS = [
    between(
        "the link of the other node dies",
        BOTH_LOST,
        f"{RANK} {LONG}",
        "--do",
        "unplug 1",
        pace="fast",
    ),
    between("the link of node 0 dies", BOTH_LOST, f"{RANK} {LONG}", "--do", "unplug 0"),
    between("a partition of two nodes", BOTH_LOST, f"{RANK} {LONG}", "--do", "part 0 1"),
    between(
        "a node is lost, and back after it was given up",
        BOTH_LOST,
        f"{RANK} {LONG}",
        "--do",
        "unplug 1; wait 45; plug 1",
    ),
    between("a node loses power", failed(LOST.format(1)), f"{RANK} {LONG}", "--do", "kill 1"),
    between(
        "node 0 loses power", failed(LOST.format(0), rounds=0), f"{RANK} {LONG}", "--do", "kill 0"
    ),
    between("a node is lost for 4 s", GOES_ON, SHORT, "--do", "unplug 1; wait 4; plug 1"),
    between(
        "a link that dies and comes back three times",
        GOES_ON,
        SHORT,
        "--do",
        "unplug 1; wait 2; plug 1; " * 3,
    ),
    between("a link becomes a hundred times slower", GOES_ON, SHORT, "--do", "slow 1 10mbit"),
    between(
        "a link is slow for 4 s", GOES_ON, SHORT, "--do", "slow 1 10mbit; wait 4; slow 1 1gbit"
    ),
    between(
        "one of three nodes loses power",
        failed(LOST.format(2), "host 1 ended with 1"),
        f"{RANK} {LONG}",
        "--do",
        "kill 2",
        hosts=3,
        nodes=3,
    ),
    between(
        "two of three nodes lose each other, and both see node 0",
        failed("no rank of train.py ended a step for", seconds=300),
        f"{RANK} --budget 40 --noise 0.05",
        "--do",
        "part 1 2",
        hosts=3,
        nodes=3,
    ),
    between(
        "Ctrl-C on node 0",
        Expected(
            (130,),
            ("interrupted: the", r"was ended on node 0 \("),
            rounds=1,
            seconds=200,
            leaves=LEFT,
        ),
        f"{RANK} {LONG}",
        "--do",
        "interrupt 0",
    ),
    between(
        "Ctrl-C on the other node",
        failed("host 1 ended with 130", r"was ended on node 1 \(.* are kept", seconds=200),
        f"{RANK} {LONG}",
        "--do",
        "interrupt 1",
    ),
]


def refused(name, options, *says, pace="slow"):
    """What is refused in one sentence, before anything is started."""
    return Case(
        "networks",
        f"refused: {name}",
        options=tuple(options.split()),
        pace=pace,
        expected=Expected((2,), says, rounds=None),
    )


def taken_port(room):
    """A profile of two nodes whose port another program holds."""
    held = "import socket, subprocess, sys; s = socket.create_server(('127.0.0.1', 0)); port = s.getsockname()[1]; "
    run = "sys.exit(subprocess.call([*sys.argv[1:-1], f'127.0.0.1:{port}', sys.argv[-1]]))"
    words = (
        "stash",
        "profile",
        "--nnodes",
        "2",
        "--node-rank",
        "0",
        "--nproc-per-node",
        "1",
        "--rdzv-endpoint",
    )
    return (sys.executable, "-c", held + run, sys.executable, "-m", *words, "train.py")


REFUSED = [
    refused(
        "a secret that can be guessed",
        "--nnodes 2 --rdzv-endpoint 127.0.0.1:29501 --rdzv-id stash",
        "--rdzv-id has 5 characters: anybody could guess it",
    ),
    refused(
        "another node without number and secret",
        "--nnodes 2 --rdzv-endpoint 192.0.2.1:29501",
        "which of the 2 nodes is this",
        "--rdzv-id that the first node prints",
        pace="quick",
    ),
    refused(
        "nodes without a meeting point",
        "--nnodes 2 --node-rank 0",
        "needs --rdzv-endpoint HOST:PORT",
    ),
    *(
        refused(
            f"the meeting point {place}",
            f"--nnodes 2 --node-rank 0 --rdzv-endpoint {place}",
            "as HOST:PORT",
        )
        for place in ("10.0.0.1", ":29500", "10.0.0.1:0", "10.0.0.1:99999")
    ),
    refused(
        "a host that does not resolve",
        f"--nnodes 2 --rdzv-endpoint no.such.host.invalid:29501 {SECRET}",
        "there is no host of that name",
    ),
    Case(
        "networks",
        "a port that another program holds",
        program=taken_port,
        expected=failed("port for the ranks' rendezvous is already in use", rounds=None),
    ),
]

CASES = [*ON_ONE_MACHINE, *strangers(), *FAULTS, *REFUSED]
