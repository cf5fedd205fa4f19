"""GPUs and NVLink as the driver describes them, and how they reach each other; sysfs where it does not answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stash.core.records.host import Gpu, Route
from stash.measure.host import devices

# Nvlinks ---------------------------------------------------------------------------------------------------
# NVLink as the driver describes it: active lanes of a GPU, how fast they are, where each one leads.
#
# A lane that ends at a switch leads to no GPU. Nothing is measured: the speed is what the driver states.

MAX_LANES = 18
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
        """Whether some lead to a switch; NCCL, too, takes an unknown end for one (NVIDIA/nccl 1182)."""
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
    while len(states) < MAX_LANES and (state := ask("nvmlDeviceGetNvLinkState", len(states))) is not None:
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
    bus = devices.address(string(remote.busId)) if remote is not None else None
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


# Gpus ------------------------------------------------------------------------------------------------------
# GPUs as NVML describes them, and how they reach each other; sysfs where the driver does not answer.
#
# A GPU that does not work is listed with the driver's words, and the others are described all the same. Without an
# NVIDIA driver there are no GPUs: sysfs would also list those that a container was not given.

_NOT_SUPPORTED = 3
_BROKEN = (15, 16)
"""NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: whatever was asked, the GPU does not work."""
_LEVELS = {
    0: "internal",
    10: "single switch",
    20: "multi switch",
    30: "host bridge",
    40: "node",
    50: "system",
}


@contextmanager
def nvml(library: Any = None) -> Iterator[Any]:
    """NVML, initialised, or ``None`` on a machine without an NVIDIA driver; ``library`` stands in for pynvml."""
    try:
        if library is None:
            import pynvml

            library = pynvml
        library.nvmlInit()
    except Exception:  # no library, no driver, no device: NVML raises errors of its own for each
        yield None
        return
    try:
        yield library
    finally:
        with suppress(Exception):  # nothing more is asked of it
            library.nvmlShutdown()


def count_gpus() -> int:
    """CUDA devices visible to a job started now: NVML's count, narrowed by CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with nvml() as library:
        present = _count(library) if library is not None else 0
    if visible is None:
        return present
    named = [part for part in visible.split(",") if part.strip() and part.strip() != "-1"]
    return min(present, len(named))


@dataclass
class _Card:
    """One GPU that is asked questions; after it was found not to work, it is asked no more."""

    library: Any
    index: int
    handle: Any = None
    fault: str | None = None
    name: str | None = None
    bus: str | None = None
    lanes: Lanes | None = None

    def ask(self, question: str, *arguments: Any) -> Any:
        """NVML's answer, ``None`` where this GPU, driver or binding has none."""
        return self._asked(question, self.handle, *arguments, vital=False)

    def insist(self, question: str, *arguments: Any) -> Any:
        """The answer to a question that any working GPU answers, if only with "not supported"."""
        return self._asked(question, *arguments, vital=True)

    def _asked(self, question: str, *arguments: Any, vital: bool) -> Any:
        if self.fault is not None:
            return None
        try:
            return getattr(self.library, question)(*arguments)
        except Exception as error:  # NVML has a class for each error, and old bindings lack some questions
            code = getattr(error, "value", None)
            if code in _BROKEN or (vital and code != _NOT_SUPPORTED):
                self.fault = str(error) or type(error).__name__
            return None


class Described(NamedTuple):
    """The GPUs of a machine and how they reach each other, as records and in one line."""

    gpus: tuple[Gpu, ...] = ()
    routes: tuple[Route, ...] = ()
    topology: str | None = None


def gpus(library: Any, root: Path) -> Described:
    """Every GPU that the driver counts, and the routes between those that work."""
    cards = [_card(library, index) for index in range(_count(library))]
    driver = _driver(library)
    unnamed = _missing(root, cards)
    found = tuple(_gpu(card, driver, root, unnamed.get(card.bus or "")) for card in cards)
    working = {card.index: card for card in cards if card.fault is None}
    routes = _routes(list(working.values()))
    rows = [f"{r.a}-{r.b} {r.kind}{_nvlink(r, working[r.a].lanes, working[r.b].lanes)}" for r in routes]
    return Described(found, routes, ", ".join(rows) or None)


def _nvlink(route: Route, a: Lanes | None, b: Lanes | None) -> str:
    """What NVLink adds to a route: its own lanes, or those through switches, which a virtual machine may not see."""
    if route.nvlinks:
        return f" + {route.nvlinks} NVLink"
    return " + NVLink switch" if a and b and a.switched and b.switched else ""


def _count(library: Any) -> int:
    try:
        return int(library.nvmlDeviceGetCount())
    except Exception:  # the driver is there but does not work
        return 0


def _driver(library: Any) -> str | None:
    try:
        return string(library.nvmlSystemGetDriverVersion())
    except Exception:  # as above
        return None


def _card(library: Any, index: int) -> _Card:
    card = _Card(library, index)
    card.handle = card.insist("nvmlDeviceGetHandleByIndex", index)
    name = card.insist("nvmlDeviceGetName", card.handle)
    card.name = None if name is None else string(name)
    place = card.ask("nvmlDeviceGetPciInfo")
    card.bus = None if place is None else devices.address(string(place.busId))
    card.lanes = lanes(card.ask)
    return card


def _missing(root: Path, cards: list[_Card]) -> dict[str, str]:
    """Names from sysfs for GPUs that did not say where they are, by the addresses that nobody else has.

    Done only when there are as many of the one as of the other: a container sees addresses of GPUs not its own.
    """
    silent = [card for card in cards if card.bus is None]
    if not silent:
        return {}
    taken = {card.bus for card in cards}
    free = {bus: name for bus, name in devices.nvidia_gpus(root).items() if bus not in taken}
    if len(free) != len(silent):
        return {}
    for card, bus in zip(silent, free, strict=True):
        card.bus = bus
    return free


def _gpu(card: _Card, driver: str | None, root: Path, pci_name: str | None) -> Gpu:
    memory = card.insist("nvmlDeviceGetMemoryInfo", card.handle)
    return Gpu(
        index=card.index,
        name=card.name or (f"PCI {pci_name}" if pci_name else "unknown"),
        memory_bytes=None if memory is None else int(memory.total),
        driver=driver,
        pcie=_link(card, "Curr") or (devices.link(root, card.bus) if card.bus else None),
        pcie_max=_link(card, "Max") or (devices.most(root, card.bus) if card.bus else None),
        bus=card.bus,
        numa_node=devices.numa_node(root, card.bus) if card.bus else None,
        nvlinks=len(card.lanes.ends) if card.lanes else None,
        nvlink_bytes_per_second=card.lanes.bytes_per_second if card.lanes else None,
        fault=card.fault,
    )


def _link(card: _Card, which: str) -> str | None:
    generation = card.ask(f"nvmlDeviceGet{which}PcieLinkGeneration")
    return devices.written(generation, card.ask(f"nvmlDeviceGet{which}PcieLinkWidth"))


def _routes(cards: list[_Card]) -> tuple[Route, ...]:
    found = []
    for place, a in enumerate(cards):
        for b in cards[place + 1 :]:
            level = a.ask("nvmlDeviceGetTopologyCommonAncestor", b.handle)
            if level in _LEVELS:
                found.append(
                    Route(a=a.index, b=b.index, kind=_LEVELS[level], nvlinks=a.lanes.to(b.bus) if a.lanes else None)
                )
    return tuple(found)
