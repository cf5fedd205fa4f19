"""Proves that each link and disk of a testbed carries what was asked, with a transfer or a read of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stash.core.errors import StashError, UserError
from stash.core.units import format_bits, format_rate
from stash.lab.testbed import read_rate, transfer
from stash.lab.testbed.execute import run_command
from stash.lab.testbed.topology import Owner, Topology
from stash.lab.testbed.wiring import SWITCH_ADDRESS, address, burst_bytes

# Every host's uplink is measured in both directions against the switch, so no other host's link is in the way;
# every loopback by itself.

TOLERANCE = 0.05
TRIES = 5
_SECONDS, _SEGMENTS, _MAX_SECONDS = 0.3, 200 * 9000, 10.0
_SLACK = 15.0
"""Seconds for a stream that stands still, and for Python to start."""


@dataclass(frozen=True)
class Transfer:
    """One stream to time: from one namespace's file to another's, as ``transfer.measure_transfer`` takes it."""

    source: str
    target: str
    address: str
    seconds: float
    skip: int


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
    measured: float
    burst_bytes: int
    """What passes at once after the link was idle."""

    @property
    def right(self) -> bool:
        """Whether it carries what was asked, within 5 %."""
        return abs(self.measured / self.asked - 1) <= TOLERANCE

    def describe(self) -> str:
        """What was verified, in one line."""
        rate = format_rate if self.name == "disk" else format_bits
        way = f"node {self.node} {self.name} {self.direction}"
        return f"{way}: {rate(self.measured)} verified ({rate(self.asked)} asked)"


def list_transfers(topology: Topology, owner: Owner) -> tuple[tuple[ShapedLink, Transfer], ...]:
    """The links of a testbed, nothing measured yet, each with the stream that will prove it."""
    switch = f"/run/netns/{owner.switch}"
    found: list[tuple[ShapedLink, Transfer]] = []
    for node, host in enumerate(topology.hosts):
        own = f"/run/netns/{owner.host(node)}"
        for name, direction, rate, ends in (
            ("network", "up", host.network, (own, switch, SWITCH_ADDRESS)),
            ("network", "down", host.network, (switch, own, address(node))),
            ("interconnect", "both", host.interconnect, (own, own, "127.0.0.1")),
        ):
            if rate is not None:
                burst = burst_bytes(rate, name == "interconnect")
                seconds = min(_MAX_SECONDS, max(_SECONDS, _SEGMENTS / rate))
                found.append(
                    (
                        ShapedLink(node, name, direction, rate, 0.0, burst),
                        Transfer(*ends, seconds, 2 * burst),
                    )
                )
    return tuple(found)


def verify_links(topology: Topology, owner: Owner) -> tuple[ShapedLink, ...]:
    """Every link measured; raises UserError naming the highest rate seen where one does not carry its own.

    A link that falls short is measured again, up to five times, as other work on the machine slows
    a transfer but never makes it faster than its link.
    """
    wanted = list_transfers(topology, owner)
    best = [link for link, _ in wanted]
    for _ in range(TRIES):
        again = [number for number, link in enumerate(best) if not link.right]
        if not again:
            break
        rates = _measure([wanted[number] for number in again])
        for number, rate in zip(again, rates, strict=True):
            if rate > best[number].measured:
                best[number] = replace(best[number], measured=rate)
    for link in best:
        if not link.right:
            raise UserError(_sentence(link))
    return tuple(best)


def _measure(wanted: list[tuple[ShapedLink, Transfer]]) -> list[float]:
    words = json.dumps([asdict(stream) for _, stream in wanted])
    patience = sum(_SLACK + stream.seconds + stream.skip / link.asked for link, stream in wanted)
    done = run_command(
        (sys.executable, "-I", "-S", str(Path(transfer.__file__)), words), _SLACK + patience
    )
    if done.returncode != 0:
        raise StashError(
            f"the links could not be measured: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}"
        )
    return [float(rate) for rate in json.loads(done.stdout)]


def _sentence(link: ShapedLink) -> str:
    where = f"the {link.name} link of node {link.node}" + (
        "" if link.direction == "both" else f" ({link.direction})"
    )
    if link.measured == 0:
        return f"{where} carried nothing at all; `stash lab testbed doctor` says what this machine can emulate"
    if link.measured > link.asked:
        return f"{where} carries {format_bits(link.measured)}, more than the {format_bits(link.asked)} asked for"
    return (
        f"this machine cannot carry --{link.name} {format_bits(link.asked)}: the highest rate verified on {where} "
        f"is {format_bits(link.measured)}; ask for less, or let other work on the machine end first"
    )


# Each host's disk is measured by itself, past the page cache. A file just written may still be in a hypervisor's
# cache: what is proven is that the limit holds, not what lies beneath it.

_READ_SECONDS, _CHUNKS, _MAX_READ_SECONDS = 1.0, 40, 10.0

Command = Callable[[Sequence[str], int], tuple[str, ...]]
"""What runs words on a node, as ``Testbed.command``."""


def limited_disks(topology: Topology) -> tuple[ShapedLink, ...]:
    """The limited disks of a testbed, nothing measured yet."""
    limited = [
        (node, host.disk) for node, host in enumerate(topology.hosts) if host.disk is not None
    ]
    return tuple(ShapedLink(node, "disk", "read", rate, 0.0, 0) for node, rate in limited)


def read_seconds(rate: float) -> float:
    """How long to read: long enough for many requests, as a throttle works in slices of a tenth of a second."""
    return min(_MAX_READ_SECONDS, max(_READ_SECONDS, _CHUNKS * read_rate.chunk_bytes(rate) / rate))


def verify_disks(topology: Topology, folder: Path, command: Command) -> tuple[ShapedLink, ...]:
    """Every limited disk measured; raises UserError where one is not within 5 % of what was asked.

    A disk that is off is measured again, up to five times: other work on it slows a reader.
    """
    found = []
    for disk in limited_disks(topology):
        nearest = disk
        for _ in range(TRIES):
            measured = replace(disk, measured=_measure_disk(disk, folder, command))
            nearest = min(nearest, measured, key=lambda one: abs(one.measured - one.asked))
            if nearest.right:
                break
        else:
            raise UserError(why_refused(nearest, folder))
        found.append(nearest)
    return tuple(found)


def _measure_disk(disk: ShapedLink, folder: Path, command: Command) -> float:
    words = (
        sys.executable,
        "-I",
        "-S",
        read_rate.__file__,
        str(folder),
        str(disk.asked),
        str(read_seconds(disk.asked)),
    )
    done = run_command(command(words, disk.node))
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise UserError(
            f"--disk cannot be verified: reading a file of its own under {folder} failed ({reason}); "
            "type it in another folder"
        )
    return float(json.loads(done.stdout)["rate"])


def why_refused(disk: ShapedLink, folder: Path) -> str:
    """Why a testbed with that disk is refused."""
    where = f"under {folder} on node {disk.node}"
    asked = format_rate(disk.asked)
    measured = format_rate(disk.measured)
    if disk.measured > disk.asked:
        return (
            f"--disk {asked}: reads {where} reach {measured} in spite of the limit, so this machine's block I/O "
            "controller does not hold it; type it on another disk, or leave --disk out"
        )
    return (
        f"this machine cannot read --disk {asked}: the highest rate verified {where} is {measured}; "
        "ask for less, or let other work on that disk end first"
    )
