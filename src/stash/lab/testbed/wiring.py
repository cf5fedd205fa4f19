"""The steps that wire a testbed up: switch, hosts, links, shaping, and limits through control groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stash.core.errors import UserError
from stash.lab.testbed.topology import PREFIX, HostSpec, Owner, Step, Topology, write_command

# Limits of disk reads through control groups, version 1 and version 2.

# Another testbed set up since then has its limits by the same controller.
_TAKE_BACK = f'for other in "$3"/{PREFIX}*; do if [ -e "$other" ]; then exit 0; fi; done; printf %s "$1" > "$2"'


@dataclass(frozen=True)
class Device:
    """A whole block device, as the kernel numbers it."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}:{self.minor}"


@dataclass(frozen=True)
class DiskLimits:
    """The controller of block I/O; ``enabled`` is False if version 2 must first pass it on to its children."""

    version: int
    root: str
    enabled: bool = True

    def enabling(self) -> Iterator[Step]:
        """Version 2: let new groups have the controller; undone with the last testbed there."""
        if self.version == 2 and not self.enabled:
            control = f"{self.root}/cgroup.subtree_control"
            undo = ("sh", "-c", _TAKE_BACK, "stash-tb", "-io", control, self.root)
            yield Step(write_command("+io", control), undo)

    def group(self, host: str) -> str:
        """Folder of the group that a host's processes belong in."""
        return f"{self.root}/{host}"

    def limiting(self, host: str, rate: float, device: Device) -> Iterator[Step]:
        """Make a host's group and set its limit."""
        folder = self.group(host)
        yield Step(("mkdir", folder), ("rmdir", folder))
        if self.version == 2:
            yield Step(write_command(f"{device} rbps={round(rate)}", f"{folder}/io.max"))
        else:
            yield Step(
                write_command(f"{device} {round(rate)}", f"{folder}/blkio.throttle.read_bps_device")
            )


def find_limits(
    mounts: str | None = None, read: Callable[[str], str] = lambda path: Path(path).read_text()
) -> DiskLimits | None:
    """The controller of this machine, from ``/proc/mounts``; version 1 where both exist, as it is then in use."""
    found = None
    for line in (read("/proc/mounts") if mounts is None else mounts).splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup" and "blkio" in options.split(","):
            return DiskLimits(1, folder)
        if kind == "cgroup2":
            with suppress(OSError):
                if "io" in read(f"{folder}/cgroup.controllers").split():
                    found = DiskLimits(
                        2, folder, "io" in read(f"{folder}/cgroup.subtree_control").split()
                    )
    return found


def device_of(path: Path, devices: Path = Path("/sys/dev/block")) -> Device:
    """The whole block device a file or folder lies on; raises UserError if it lies on none (tmpfs, overlay, NFS)."""
    try:
        number = os.stat(path).st_dev
    except OSError as error:
        raise UserError(
            f"--disk: {path}: {error.strerror}; type it in a folder on the disk to limit"
        ) from None
    major = os.major(number)
    minor = os.minor(number)
    node = devices / f"{major}:{minor}"
    if major == 0 or not node.exists():
        raise UserError(
            f"disk: {path} lies on no block device, so its rate cannot be limited; use a folder on a disk"
        )
    if (node / "partition").exists():
        major, minor = map(int, (node.resolve().parent / "dev").read_text().split(":"))
    return Device(major, minor)


# The steps that wire a testbed up: commands, of which nothing is run here.

MTU = 9000
"""Jumbo frames, as inside a cloud's private network: a link's payload is then its rate within 1 %."""
BURST_SECONDS = 0.0021
"""A bucket holds what the link carries in this time (256 KiB at 1 Gbit/s): less, and fast links starve
between the kernel's timers; more, and a short transfer is mostly burst and looks faster than the link."""
MIN_BURST, MIN_LOOPBACK_BURST = 64 * 1024, 256 * 1024
LATENCY = "200ms"
BRIDGE = "stash-tbsw"
SWITCH_ADDRESS = "10.77.0.254"


def interface(node: int) -> str:
    """Name of a node's network interface inside its namespace."""
    return f"stash-tb{node}"


def address(node: int) -> str:
    """A node's address; valid only inside the testbed."""
    return f"10.77.0.{node + 1}"


def burst_bytes(rate: float, loopback: bool = False) -> int:
    """Size of the token bucket of a link of ``rate`` bytes per second."""
    return max(MIN_LOOPBACK_BURST if loopback else MIN_BURST, round(rate * BURST_SECONDS))


def set_up(
    topology: Topology, owner: Owner, limits: DiskLimits | None = None, device: Device | None = None
) -> tuple[Step, ...]:
    """Everything to run, in order: the switch, then each host with its link, its shaping and its limit.

    Where a host's disk is limited, ``limits`` and ``device`` are needed; raises UserError without.
    """
    steps = [*_namespace(owner.switch)]
    steps += [
        _ip_step(owner.switch, "link", "add", "name", BRIDGE, "type", "bridge"),
        _ip_step(owner.switch, "addr", "add", f"{SWITCH_ADDRESS}/24", "dev", BRIDGE),
        _ip_step(owner.switch, "link", "set", BRIDGE, "up"),
    ]
    for node, host in enumerate(topology.hosts):
        steps += [*_namespace(owner.host(node)), *_link(owner, node), *shaping(owner, node, host)]
    limited = [
        (owner.host(node), host.disk)
        for node, host in enumerate(topology.hosts)
        if host.disk is not None
    ]
    if limited and (limits is None or device is None):
        raise UserError("disk: this machine has no cgroup controller for block I/O; leave disk out")
    if limited and limits is not None and device is not None:
        steps += limits.enabling()
        for name, rate in limited:
            steps += limits.limiting(name, rate, device)
    return tuple(steps)


def _namespace(name: str) -> Iterator[Step]:
    yield Step(("ip", "netns", "add", name), ("ip", "netns", "del", name))
    yield _ip_step(name, "link", "set", "lo", "up")


def _link(owner: Owner, node: int) -> Iterator[Step]:
    name = interface(node)
    port = f"stash-tbp{node}"
    host = owner.host(node)
    yield _ip_step(
        host,
        "link",
        "add",
        "name",
        name,
        "mtu",
        str(MTU),
        "type",
        "veth",
        "peer",
        "name",
        port,
        "mtu",
        str(MTU),
        "netns",
        owner.switch,
    )
    yield _ip_step(host, "addr", "add", f"{address(node)}/24", "dev", name)
    yield _ip_step(host, "link", "set", name, "up")
    yield _ip_step(owner.switch, "link", "set", port, "master", BRIDGE, "up")


def shaping(owner: Owner, node: int, host: HostSpec) -> Iterator[Step]:
    """Token buckets on a host's uplink, both directions, and on its loopback; replaces those there were."""
    if host.network is not None:
        yield _bucket(owner.host(node), interface(node), host.network)
        yield _bucket(owner.switch, f"stash-tbp{node}", host.network)
    if host.interconnect is not None:
        yield _bucket(owner.host(node), "lo", host.interconnect)


def plug(owner: Owner, node: int, connected: bool) -> Step:
    """Pull a host's cable, or put it back: the switch's end of its link goes down or up."""
    return _ip_step(owner.switch, "link", "set", f"stash-tbp{node}", "up" if connected else "down")


def _bucket(namespace: str, device: str, rate: float) -> Step:
    burst = burst_bytes(rate, device == "lo")
    return Step(
        (
            "tc",
            "-n",
            namespace,
            "qdisc",
            "replace",
            "dev",
            device,
            "root",
            "tbf",
            "rate",
            f"{round(rate * 8)}bit",
            "burst",
            str(burst),
            "latency",
            LATENCY,
        )
    )


def _ip_step(namespace: str, *words: str) -> Step:
    return Step(("ip", "-n", namespace, *words))
