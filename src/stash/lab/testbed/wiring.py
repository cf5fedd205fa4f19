"""The steps that wire a testbed up: switch, hosts, links, shaping, and limits through control groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stash.core.errors import UserError
from stash.lab.testbed.topology import PREFIX, HostSpec, Owner, Step, Topology, write

# Limits of CPU time and of disk reads through control groups, version 1 and version 2.

PERIOD_MICROSECONDS = 20_000
"""Short, so that a host is slowed evenly: in the kernel's usual 100 ms it runs at full speed, then stands still."""
# Another testbed set up since then has its limits by the same controller.
_TAKE_BACK = f'for other in "$3"/{PREFIX}*; do if [ -e "$other" ]; then exit 0; fi; done; printf %s "$1" > "$2"'


@dataclass(frozen=True)
class Controller:
    """Where one controller lives; ``enabled`` is False if version 2 must first pass it on to its children."""

    version: int
    root: str
    enabled: bool = True


@dataclass(frozen=True)
class Device:
    """A whole block device, as the kernel numbers it."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}:{self.minor}"


@dataclass(frozen=True)
class Cgroups:
    """The controllers for CPU time and for block I/O; None where the machine has none."""

    cpu: Controller | None = None
    io: Controller | None = None

    def enabling(self, topology: Topology) -> Iterator[Step]:
        """Version 2: let new groups have the controllers the topology needs; undone with the last testbed there."""
        needs = {"cpu": any(h.cpus for h in topology.hosts), "io": any(h.disk for h in topology.hosts)}
        for name, controller in (("cpu", self.cpu), ("io", self.io)):
            if needs[name] and controller is not None and controller.version == 2 and not controller.enabled:
                control = f"{controller.root}/cgroup.subtree_control"
                undo = ("sh", "-c", _TAKE_BACK, "stash-tb", f"-{name}", control, controller.root)
                yield Step(write(f"+{name}", control), undo)

    def limits(self, group: str, host: HostSpec, device: Device | None) -> Iterator[Step]:
        """Make a host's groups and set their limits; raises UserError if the machine lacks a controller."""
        made: set[str] = set()
        for folder, file, text in self._settings(group, host, device):
            if folder not in made:
                yield Step(("mkdir", folder), ("rmdir", folder))
                made.add(folder)
            yield Step(write(text, f"{folder}/{file}"))

    def groups(self, group: str, host: HostSpec) -> tuple[str, ...]:
        """Folders of the groups a host's processes belong in."""
        device = Device(0, 0)
        return tuple(dict.fromkeys(folder for folder, _, _ in self._settings(group, host, device)))

    def _settings(self, group: str, host: HostSpec, device: Device | None) -> Iterator[tuple[str, str, str]]:
        if host.cpus is not None:
            if self.cpu is None:
                raise UserError("cpus: this machine has no cgroup controller for CPU time; leave cpus out")
            folder, quota = f"{self.cpu.root}/{group}", max(1000, round(host.cpus * PERIOD_MICROSECONDS))
            if self.cpu.version == 2:
                yield folder, "cpu.max", f"{quota} {PERIOD_MICROSECONDS}"
            else:
                yield folder, "cpu.cfs_period_us", str(PERIOD_MICROSECONDS)
                yield folder, "cpu.cfs_quota_us", str(quota)
        if host.disk is not None:
            if self.io is None or device is None:
                raise UserError("disk: this machine has no cgroup controller for block I/O; leave disk out")
            folder = f"{self.io.root}/{group}"
            if self.io.version == 2:
                yield folder, "io.max", f"{device} rbps={round(host.disk)}"
            else:
                yield folder, "blkio.throttle.read_bps_device", f"{device} {round(host.disk)}"


def find(mounts: str | None = None, read: Callable[[str], str] = lambda path: Path(path).read_text()) -> Cgroups:
    """The controllers of this machine, from ``/proc/mounts``; version 1 where both exist, as it is then in use."""
    if mounts is None:
        mounts = read("/proc/mounts")
    found: dict[str, Controller] = {}
    for line in mounts.splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup":
            for option, name in (("cpu", "cpu"), ("blkio", "io")):
                if option in options.split(","):
                    found[name] = Controller(1, folder)
        elif kind == "cgroup2":
            try:
                available = read(f"{folder}/cgroup.controllers").split()
                passed_on = read(f"{folder}/cgroup.subtree_control").split()
            except OSError:
                continue
            for name in ("cpu", "io"):
                if name in available:
                    found.setdefault(name, Controller(2, folder, name in passed_on))
    return Cgroups(found.get("cpu"), found.get("io"))


def device_of(path: Path, devices: Path = Path("/sys/dev/block")) -> Device:
    """The whole block device a file or folder lies on; raises UserError if it lies on none (tmpfs, overlay, NFS)."""
    try:
        number = os.stat(path).st_dev
    except OSError as error:
        raise UserError(f"--disk-path {path}: {error.strerror}; name a folder on the disk to limit") from None
    major, minor = os.major(number), os.minor(number)
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
    topology: Topology, owner: Owner, cgroups: Cgroups | None = None, device: Device | None = None
) -> tuple[Step, ...]:
    """Everything to run, in order: the switch, then each host with its link, its shaping and its limits.

    ``cgroups`` and ``device`` are needed only if a host's CPUs or disk are limited.
    """
    steps = [*_namespace(owner.switch)]
    steps += [
        _in(owner.switch, "link", "add", "name", BRIDGE, "type", "bridge"),
        _in(owner.switch, "addr", "add", f"{SWITCH_ADDRESS}/24", "dev", BRIDGE),
        _in(owner.switch, "link", "set", BRIDGE, "up"),
    ]
    for node, host in enumerate(topology.hosts):
        steps += [*_namespace(owner.host(node)), *_link(owner, node), *shaping(owner, node, host)]
    if cgroups is not None:
        steps += cgroups.enabling(topology)
        for node, host in enumerate(topology.hosts):
            steps += cgroups.limits(owner.host(node), host, device)
    return tuple(steps)


def _namespace(name: str) -> Iterator[Step]:
    yield Step(("ip", "netns", "add", name), ("ip", "netns", "del", name))
    yield _in(name, "link", "set", "lo", "up")


def _link(owner: Owner, node: int) -> Iterator[Step]:
    name, port, host = interface(node), f"stash-tbp{node}", owner.host(node)
    yield _in(
        host, "link", "add", "name", name, "mtu", str(MTU), "type", "veth",
        "peer", "name", port, "mtu", str(MTU), "netns", owner.switch,
    )  # fmt: skip
    yield _in(host, "addr", "add", f"{address(node)}/24", "dev", name)
    yield _in(host, "link", "set", name, "up")
    yield _in(owner.switch, "link", "set", port, "master", BRIDGE, "up")


def shaping(owner: Owner, node: int, host: HostSpec) -> Iterator[Step]:
    """Token buckets on a host's uplink, both directions, and on its loopback; replaces those there were."""
    if host.network is not None:
        yield _bucket(owner.host(node), interface(node), host.network)
        yield _bucket(owner.switch, f"stash-tbp{node}", host.network)
    if host.interconnect is not None:
        yield _bucket(owner.host(node), "lo", host.interconnect)


def plug(owner: Owner, node: int, connected: bool) -> Step:
    """Pull a host's cable, or put it back: the switch's end of its link goes down or up."""
    return _in(owner.switch, "link", "set", f"stash-tbp{node}", "up" if connected else "down")


def _bucket(namespace: str, device: str, rate: float) -> Step:
    burst = burst_bytes(rate, device == "lo")
    return Step((
        "tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf",
        "rate", f"{round(rate * 8)}bit", "burst", str(burst), "latency", LATENCY,
    ))  # fmt: skip


def _in(namespace: str, *words: str) -> Step:
    return Step(("ip", "-n", namespace, *words))
