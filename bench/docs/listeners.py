"""Everything that listens while Stash runs: the table of SECURITY.md, and what tests hold real runs against.

A line for each: when, what, who is let in, where, for how long, and which of Stash's modules opens it. What PyTorch
and Ray open by themselves stands here too, since Stash starts them. Opens nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SocketReach = Literal["nothing", "this machine", "the run's interface", "all interfaces"]
ANY_PEER = "whoever reaches it"
SECRET = "who proves to know the run's secret (HMAC-SHA256 on numbers that both ends drew; the secret is not sent)"

TOKEN = "who sends Ray's token, in the clear"


@dataclass(frozen=True)
class ListeningSocket:
    """A line of the table."""

    when: str
    what: str
    admits: str
    """Who may speak to it."""
    where: str
    until: str
    reach: SocketReach
    opened_by: tuple[str, ...] = ()
    """Modules of Stash; none for what PyTorch or Ray opens by itself."""
    programs: tuple[str, ...] = ()
    """How the names of processes begin in which it is opened; empty for Python ones of the job."""


_SERVER = "the parameter servers"
_LOCAL, _FLEET = (
    "`stash spot run --on local`",
    "`stash spot run` on emulated hosts and on rented machines",
)
_INTERFACE = "the interface that leads to node 0"

LISTENERS = (
    ListeningSocket("one process", "nothing", "–", "–", "–", "nothing"),
    ListeningSocket(
        "`stash profile`, `stash fix` and `stash watch`",
        "the name of the output file: nothing is read or answered",
        ANY_PEER,
        "an abstract name of this machine's kernel, no port",
        "the command",
        "this machine",
        ("stash.measure.launcher.folder_lock",),
    ),
    ListeningSocket(
        "several ranks on one machine",
        "torch's store; gloo's and NCCL's sockets",
        ANY_PEER,
        "loopback only (unless `GLOO_SOCKET_IFNAME` and its like say otherwise)",
        "the run",
        "this machine",
        ("stash.measure.torchrun",),
    ),
    ListeningSocket(
        "several nodes",
        "torch's store",
        ANY_PEER,
        "on node 0, the address of `--rdzv-endpoint`; all interfaces if that is a name of several addresses",
        "the run",
        "the run's interface",
        ("stash.measure.torchrun", "stash.measure.linux.interfaces"),
    ),
    ListeningSocket(
        "several nodes without `--node-rank`",
        "the launcher, which gives out numbers",
        f"{SECRET}: `--rdzv-id`",
        "the same address and port",
        "until all have come",
        "the run's interface",
        ("stash.measure.launcher.peers", "stash.measure.linux.interfaces"),
    ),
    ListeningSocket(
        "`stash watch` on several nodes",
        "node 0's watcher, which has the others' windows",
        f"{SECRET}: a key that ranks carry through torch's store; messages are signed with it",
        _INTERFACE,
        "the run",
        "the run's interface",
        ("stash.monitor.node_team",),
    ),
    ListeningSocket(
        "several nodes",
        "the launchers, for each other's signs of life",
        f"{SECRET}: a key that ranks carry over gloo; messages are signed with it",
        _INTERFACE,
        "the run",
        "the run's interface",
        ("stash.measure.launcher.peers",),
    ),
    ListeningSocket(
        "several nodes",
        "gloo's and NCCL's sockets; a gloo group of Stash's own: plain data, no pickles",
        ANY_PEER,
        _INTERFACE,
        "the run",
        "the run's interface",
    ),
    ListeningSocket(
        "`stash probe` on several nodes",
        "one TCP port at a time, whose bytes are counted",
        f"{SECRET}: `--rdzv-id` and a word drawn for the transfer; without `--rdzv-id` the word alone, which is in "
        "torch's store",
        _INTERFACE,
        "one transfer",
        "the run's interface",
        ("stash.measure.probe.streams",),
    ),
    ListeningSocket(
        _LOCAL,
        _SERVER,
        SECRET,
        "loopback only",
        "the run",
        "this machine",
        ("stash.spot.train.server",),
        ("ray::ServerActor",),
    ),
    ListeningSocket(
        _LOCAL,
        "Ray: its control store, its object manager, each of its processes",
        TOKEN,
        "loopback only",
        "the run",
        "this machine",
        (),
        ("gcs_server", "raylet", "ray::", "python"),
    ),
    ListeningSocket(
        _LOCAL,
        "Ray: its autoscaler's counters, by HTTP (port 44217)",
        ANY_PEER,
        "loopback only",
        "the run",
        "this machine",
        (),
        ("python",),
    ),
    ListeningSocket(
        _FLEET,
        _SERVER,
        SECRET,
        "the address on the way to the head",
        "the run",
        "the run's interface",
        ("stash.spot.train.server",),
        ("ray::ServerActor",),
    ),
    ListeningSocket(
        _FLEET,
        "Ray: its control store (port 6379), its object manager, each of its processes",
        TOKEN,
        "all interfaces: Ray offers no other way",
        "the run",
        "all interfaces",
        (),
        ("gcs_server", "raylet", "ray::", "python"),
    ),
    ListeningSocket(
        _FLEET,
        "Ray: its agent for environments, and on the head Ray Client (port 10001)",
        TOKEN,
        "the machine's private address",
        "the run",
        "the run's interface",
        (),
        ("ray::RuntimeEnv", "python"),
    ),
    ListeningSocket(
        "`stash lab testbed`, and whatever is emulated",
        "a transfer that checks a link's rate",
        ANY_PEER,
        "inside the emulated network",
        "seconds",
        "the run's interface",
        ("stash.lab.testbed.transfer",),
    ),
    ListeningSocket(
        "worker processes of data loaders",
        "Unix sockets",
        "the user",
        "in the run's folder",
        "the run",
        "this machine",
    ),
    ListeningSocket(
        "every launch",
        "a Unix socket whose name says that a launcher is there; nothing is read from it",
        "–",
        "this machine",
        "the run",
        "this machine",
        ("stash.measure.launcher.neighbours",),
    ),
)


def table() -> str:
    """Write the table in Markdown, as SECURITY.md has it."""
    rows = [
        "| when | what listens | who is let in | where | for how long |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {each.when} | {each.what} | {each.admits} | {each.where} | {each.until} |"
        for each in LISTENERS
    ]
    return "\n".join(rows)
