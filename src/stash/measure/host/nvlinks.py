"""NVLink as the driver describes it: active lanes of a GPU, how fast they are, where each one leads.

A lane that ends at a switch leads to no GPU. Nothing is measured: the speed is what the driver states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stash.measure.host import pci

MOST_LANES = 18
"""Of one GPU so far (H100 and B200); older ones answer for fewer."""
_SPEED_FIELD = 90
"""NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON in nvml.h: one active lane, one direction, in MB/s."""
_SWITCH = 2
"""NVML_NVLINK_DEVICE_TYPE_SWITCH."""
_NOWHERE = "0000:00:00.0"
# One lane and direction by nvmlNvlinkVersion_t, which is an enumeration and not the version's number (nvml.h;
# open-mpi/hwloc issue 658). Speeds: NVIDIA's architecture papers of P100 (4 lanes, 160 GB/s both ways), V100 (6,
# 300), H100 (18, 900) and B200 (18, 1800). 3.0 and 3.1 are left out: A100's lanes carry 25 GB/s, GA102's 14.
_BYTES_PER_SECOND = {1: 20e9, 2: 25e9, 3: 25e9, 6: 25e9, 7: 50e9}

Ask = Callable[..., Any]
"""Asks NVML a question about one GPU; ``None`` where it has no answer."""


@dataclass(frozen=True)
class Lanes:
    """The active lanes of one GPU; ``ends`` has an entry for each."""

    ends: tuple[str | None, ...]
    """PCI address of what is at the other end, ``switch``, or ``None`` where the driver does not tell."""
    bytes_per_second: float | None
    """All of them together, one direction."""

    @property
    def switched(self) -> bool:
        """Whether some lead to a switch; NCCL, too, takes an end that nobody knows for one (NVIDIA/nccl 1182)."""
        return "switch" in self.ends or None in self.ends

    def to(self, bus: str | None) -> int | None:
        """Lanes that lead directly to the GPU at ``bus``; ``None`` if it cannot be told."""
        if bus is None:
            return None
        found = self.ends.count(bus)
        return None if not found and None in self.ends else found


def lanes(ask: Ask) -> Lanes | None:
    """The lanes of a GPU; ``None`` if it has no NVLink or the driver does not say."""
    states: list[Any] = []
    while len(states) < MOST_LANES and (state := ask("nvmlDeviceGetNvLinkState", len(states))) is not None:
        states.append(state)
    if not states:
        return None
    active = [lane for lane, state in enumerate(states) if state]
    return Lanes(tuple(_end(ask, lane) for lane in active), _speed(ask, active))


def _end(ask: Ask, lane: int) -> str | None:
    if ask("nvmlDeviceGetNvLinkRemoteDeviceType", lane) == _SWITCH:
        return "switch"
    remote = ask("nvmlDeviceGetNvLinkRemotePciInfo", lane)
    # in a virtual machine that does not see its switches, the address is all ones or all zeros
    bus = pci.address(string(remote.busId)) if remote is not None else None
    return None if bus is None or bus == _NOWHERE or bus.startswith("ffff") else bus


def _speed(ask: Ask, active: list[int]) -> float | None:
    stated = ask("nvmlDeviceGetFieldValues", [_SPEED_FIELD])
    if stated is not None and stated[0].nvmlReturn == 0 and stated[0].value.uiVal:
        return len(active) * float(stated[0].value.uiVal) * 1e6
    each = [_BYTES_PER_SECOND.get(ask("nvmlDeviceGetNvLinkVersion", lane)) for lane in active]
    known = [speed for speed in each if speed is not None]
    return sum(known) if len(known) == len(each) else None


def string(value: str | bytes) -> str:
    """NVML's texts, which its older Python bindings leave as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
