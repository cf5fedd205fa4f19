"""Proves that each link and disk of a testbed carries what was asked, with a transfer or a read of its own.

Every host's uplink is measured in both directions against the switch, so no other host's link is in the way; every
loopback by itself. So is each disk, past the page cache: a file just written may still be in a hypervisor's cache, so
what is proven is that the limit holds, not what lies beneath it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stash.core.errors import StashError, UserError
from stash.core.units import format_bits, format_rate
from stash.lab.testbed import read_rate, transfer
from stash.lab.testbed.execute import run_command
from stash.lab.testbed.topology import Argv, Owner, Topology
from stash.lab.testbed.wiring import SWITCH_ADDRESS, address, burst_bytes

TOLERANCE = 0.05
TRIES = 5
_SECONDS, _SEGMENTS, _MAX_SECONDS = 0.3, 200 * 9000, 10.0
_SLACK = 15.0
"""Seconds for a stream that stands still, and for Python to start."""
_READ_SECONDS, _CHUNKS = 1.0, 40
Command = Callable[[Sequence[str], int], Argv]
"""What runs words on a node, as ``Testbed.command``."""


@dataclass(frozen=True)
class ShapedLink:
    """A shaped link in one direction, or a limited disk: what was asked and what its own transfer showed.

    Rates are payload bytes per second.
    """

    node: int
    name: str
    """``network``, ``interconnect`` or ``disk``: as the option is called that sets it."""
    direction: str
    """``up``, ``down``, ``both`` for the shared loopback, ``read`` for a disk."""
    asked: float
    measured: float = 0.0
    burst_bytes: int = 0
    """What passes at once after the link was idle."""

    @property
    def right(self) -> bool:
        """Whether it carries what was asked, within 5 %."""
        return abs(self.measured / self.asked - 1) <= TOLERANCE

    def format_rate(self, rate: float) -> str:
        return format_rate(rate) if self.name == "disk" else format_bits(rate)

    def describe(self) -> str:
        """What was verified, in one line."""
        way = f"node {self.node} {self.name} {self.direction}"
        return f"{way}: {self.format_rate(self.measured)} verified ({self.format_rate(self.asked)} asked)"


def _measure_until_right(
    links: Sequence[ShapedLink], measure: Callable[[Sequence[ShapedLink]], list[float]]
) -> list[ShapedLink]:
    """Each at its nearest to what was asked: what is off is measured again, as other work slows a transfer."""
    nearest = list(links)
    for _ in range(TRIES):
        again = [number for number, link in enumerate(nearest) if not link.right]
        if not again:
            break
        rates = measure([nearest[number] for number in again])
        for number, rate in zip(again, rates, strict=True):
            both = (nearest[number], replace(nearest[number], measured=rate))
            nearest[number] = min(both, key=lambda link: abs(link.measured - link.asked))
    return nearest


def list_links(topology: Topology) -> list[ShapedLink]:
    """The shaped links of a testbed, nothing measured yet."""
    return [
        ShapedLink(node, name, way, rate, burst_bytes=burst_bytes(rate, name == "interconnect"))
        for node, host in enumerate(topology.hosts)
        for name, way, rate in (
            ("network", "up", host.network),
            ("network", "down", host.network),
            ("interconnect", "both", host.interconnect),
        )
        if rate is not None
    ]


def stream_of(link: ShapedLink, owner: Owner) -> transfer.LinkStream:
    """The stream that proves a link."""
    switch, own = (f"/run/netns/{name}" for name in (owner.switch, owner.host(link.node)))
    source, target, where = {
        "up": (own, switch, SWITCH_ADDRESS),
        "down": (switch, own, address(link.node)),
        "both": (own, own, "127.0.0.1"),
    }[link.direction]
    seconds = min(_MAX_SECONDS, max(_SECONDS, _SEGMENTS / link.asked))
    return transfer.LinkStream(source, target, where, seconds, 2 * link.burst_bytes)


def verify_links(topology: Topology, owner: Owner) -> tuple[ShapedLink, ...]:
    """Every link measured; raises UserError naming the rate seen where one does not carry its own."""

    def measure(links: Sequence[ShapedLink]) -> list[float]:
        streams = [stream_of(link, owner) for link in links]
        skipped = sum(stream.skip / link.asked for stream, link in zip(streams, links, strict=True))
        patience = _SLACK * (1 + len(links)) + skipped + sum(each.seconds for each in streams)
        words = (sys.executable, "-I", "-S", str(Path(transfer.__file__)), json.dumps(streams))
        done = run_command(words, patience)
        if done.returncode != 0:
            raise StashError(f"the links could not be measured: {_last_line(done.stderr)}")
        return [float(rate) for rate in json.loads(done.stdout)]

    links = _measure_until_right(list_links(topology), measure)
    for link in links:
        if not link.right:
            raise UserError(_explain_link(link))
    return tuple(links)


def _last_line(words: str) -> str:
    return (words.strip() or "no reason given").splitlines()[-1]


def _explain_link(link: ShapedLink) -> str:
    way = "" if link.direction == "both" else f" ({link.direction})"
    where = f"the {link.name} link of node {link.node}{way}"
    asked, measured = link.format_rate(link.asked), link.format_rate(link.measured)
    if link.measured == 0:
        return f"{where} carried nothing at all; `stash lab testbed doctor` says what this machine can emulate"
    if link.measured > link.asked:
        return f"{where} carries {measured}, more than the {asked} asked for"
    return (
        f"this machine cannot carry --{link.name} {asked}: the highest rate verified on {where} is {measured}; "
        "ask for less, or let other work on the machine end first"
    )


def read_seconds(rate: float) -> float:
    """How long to read: long enough for many requests, as a throttle works in slices of a tenth of a second."""
    return min(_MAX_SECONDS, max(_READ_SECONDS, _CHUNKS * read_rate.chunk_bytes(rate) / rate))


def verify_disks(topology: Topology, folder: Path, command: Command) -> tuple[ShapedLink, ...]:
    """Every limited disk measured; raises UserError where one is not within 5 % of what was asked."""

    def measure(disks: Sequence[ShapedLink]) -> list[float]:
        (disk,) = disks
        words = (folder, disk.asked, read_seconds(disk.asked))
        program = (sys.executable, "-I", "-S", read_rate.__file__, *map(str, words))
        done = run_command(command(program, disk.node))
        if done.returncode != 0:
            raise UserError(
                f"--disk cannot be verified: reading a file of its own under {folder} failed "
                f"({_last_line(done.stderr)}); type it in another folder"
            )
        return [float(done.stdout)]

    verified = []
    for node, host in enumerate(topology.hosts):
        if host.disk is not None:
            (disk,) = _measure_until_right([ShapedLink(node, "disk", "read", host.disk)], measure)
            if not disk.right:
                raise UserError(explain_disk(disk, folder))
            verified.append(disk)
    return tuple(verified)


def explain_disk(disk: ShapedLink, folder: Path) -> str:
    """Why a testbed with that disk is refused."""
    where = f"under {folder} on node {disk.node}"
    asked, measured = disk.format_rate(disk.asked), disk.format_rate(disk.measured)
    if disk.measured > disk.asked:
        return (
            f"--disk {asked}: reads {where} reach {measured} in spite of the limit, so this machine's block I/O "
            "controller does not hold it; type it on another disk, or leave --disk out"
        )
    return (
        f"this machine cannot read --disk {asked}: the highest rate verified {where} is {measured}; "
        "ask for less, or let other work on that disk end first"
    )
