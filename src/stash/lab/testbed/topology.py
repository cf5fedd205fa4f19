"""What is asked of a testbed: nodes, their links, disks and cores, as numbers.

Reads the words people write ("1gbit", "100MB/s") and refuses what makes no sense. Knows nothing of
namespaces or of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from stash.base.errors import UserError
from stash.base.words.units import parse_rate

MOST_NODES = 64
Wish = str | float | None


@dataclass(frozen=True)
class HostSpec:
    """One emulated host. Rates in bytes per second; None means not limited."""

    network: float | None = None
    """Its uplink, each direction by itself."""
    interconnect: float | None = None
    """Its loopback: one medium that all its ranks share, both directions together (as a PCIe switch)."""
    disk: float | None = None
    """Reads from the block device."""
    cpus: float | None = None
    """Cores' worth of CPU time."""


NAMES: tuple[str, ...] = tuple(field.name for field in fields(HostSpec))


@dataclass(frozen=True)
class Topology:
    """All hosts, and how many ranks each is meant to run."""

    hosts: tuple[HostSpec, ...]
    devices: int = 1


def topology(
    nodes: int,
    devices: int = 1,
    *,
    overrides: Mapping[int, Mapping[str, Wish]] | None = None,
    **wishes: Wish,
) -> Topology:
    """``nodes`` hosts alike but for ``overrides`` (node: {"network": "100mbit"}); raises UserError."""
    if not 1 <= nodes <= MOST_NODES:
        raise UserError(f"{nodes} nodes: a testbed has 1 to {MOST_NODES}")
    if devices < 1:
        raise UserError(f"{devices} devices: every node needs at least one")
    hosts = [_host(HostSpec(), wishes)] * nodes
    for node, own in (overrides or {}).items():
        if not 0 <= node < nodes:
            raise UserError(f"there is no node {node} to be different: the nodes are 0 to {nodes - 1}")
        hosts[node] = _host(hosts[node], own)
    return Topology(tuple(hosts), devices)


def parse_override(text: str) -> tuple[int, dict[str, Wish]]:
    """``"1:network=100mbit,cpus=0.5"`` as ``(1, {"network": "100mbit", "cpus": "0.5"})``; raises UserError."""
    number, colon, rest = text.partition(":")
    pairs = [part.partition("=") for part in rest.split(",") if part]
    if not colon or not number.strip().isdecimal() or not pairs or not all(sep and v for _, sep, v in pairs):
        raise UserError(f"cannot read --node {text!r}; write it like 1:network=100mbit,cpus=0.5")
    return int(number), {name.strip(): value.strip() for name, _, value in pairs}


def _host(base: HostSpec, wishes: Mapping[str, Wish]) -> HostSpec:
    for name in wishes:
        if name not in NAMES:
            raise UserError(f"a node has no {name!r}; it has {', '.join(NAMES)}")
    return replace(base, **{name: _number(name, value) for name, value in wishes.items()})


def _number(name: str, value: Wish) -> float | None:
    if value is None:
        return None
    if name == "cpus":
        try:
            number = float(value)
        except ValueError:
            raise UserError(f"cannot read cpus {value!r}; write a number of cores, like 1.5") from None
    else:
        number = parse_rate(value) if isinstance(value, str) else float(value)
    if not 0 < number < float("inf"):
        raise UserError(f"{name} {value}: it must be more than 0")
    return number
