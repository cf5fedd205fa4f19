"""The steps that wire a testbed up: its switch, then each host with its link, its shaping and its limits.

Pure: what is asked for and names in, commands out. Nothing is run here, so a test (or a person) can read
what would happen to a machine without being root.
"""

from __future__ import annotations

from collections.abc import Iterator

from stash.lab.testbed.cgroups import Cgroups, Device
from stash.lab.testbed.names import Owner
from stash.lab.testbed.step import Step
from stash.lab.testbed.topology import HostSpec, Topology

MTU = 9000
"""Jumbo frames, as inside a cloud's private network: a link's payload is then its rate within 1 %."""
BURST_SECONDS = 0.0021
"""A bucket holds what the link carries in this time (256 KiB at 1 Gbit/s): less, and fast links starve
between the kernel's timers; more, and a short transfer is mostly burst and looks faster than the link."""
LEAST_BURST, LEAST_LOOPBACK_BURST = 64 * 1024, 256 * 1024
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
    return max(LEAST_LOOPBACK_BURST if loopback else LEAST_BURST, round(rate * BURST_SECONDS))


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
