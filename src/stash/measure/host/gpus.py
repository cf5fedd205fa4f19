"""GPUs and NVLink as the driver describes them, and how they reach each other; sysfs where it does not answer.

A GPU that does not work is listed with the driver's words, and the others are described all the same. Without an
NVIDIA driver there are no GPUs: sysfs would also list those that a container was not given. Nothing is measured.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from stash.core.records.host import Gpu, Route
from stash.measure.linux.procfs import numa_node, read_number, read_text, resolve_link

# PCI: serves where the driver does not answer, and needs none

_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
"""GT/s per lane to PCI Express generation."""
_ADDRESS = re.compile(r"([0-9a-f]+):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def pci_address(written: str) -> str | None:
    """An address as sysfs writes it: NVML's ``00000000:3B:00.0`` is ``0000:3b:00.0``; ``None`` if it is none."""
    match = _ADDRESS.fullmatch(written.strip())
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}".lower() if match else None


def _widest_link(device: Path) -> str | None:
    """The most a device can use in its slot: the lesser of its own and of the port it is plugged into."""
    place = resolve_link(device)
    if place is None:
        return None
    ends = [_read_link(place, "max"), _read_link(place.parent, "max")]
    generations = [generation for generation, _ in ends if generation is not None]
    widths = [width for _, width in ends if width is not None]
    return _link_text(min(generations, default=None), min(widths, default=None))


def _read_link(device: Path, which: str) -> tuple[int | None, int | None]:
    # "8.0 GT/s PCIe", "16 GT/s" on older kernels, or "Unknown"
    speed = (read_text(device / f"{which}_link_speed") or "").split(" ")[0].removesuffix(".0")
    width = read_number(device / f"{which}_link_width")
    return _GENERATIONS.get(speed), width if width and width < 255 else None  # 255 is unknown


def _link_text(generation: int | None, width: int | None) -> str | None:
    """``gen4 x16``; ``None`` unless both are known."""
    return f"gen{generation} x{width}" if generation and width else None


# NVLink

MAX_LANES = 18
"""Of one GPU so far (H100 and B200); older ones answer for fewer."""
_SPEED_FIELD = 90
"""NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON in nvml.h: one active lane, one direction, in MB/s."""
_SWITCH = 2
"""NVML_NVLINK_DEVICE_TYPE_SWITCH."""
_NOWHERE = "0000:00:00.0"
Ask = Callable[..., Any]
"""Asks NVML a question about one GPU; ``None`` where it has no answer."""


@dataclass(frozen=True)
class Lanes:
    """The active lanes of one GPU; ``ends`` has an entry for each. A lane that ends at a switch leads to no GPU."""

    ends: tuple[str | None, ...]
    """PCI address of what is at the other end, ``switch``, or ``None`` where the driver does not say."""
    bytes_per_second: float | None
    """All of them together, one direction."""

    @property
    def has_switch(self) -> bool:
        """Whether some lead to a switch; NCCL, too, takes an unknown end for one (NVIDIA/nccl 1182)."""
        return "switch" in self.ends or None in self.ends

    def count_lanes_to(self, bus: str | None) -> int | None:
        """Lanes that lead directly to the GPU at ``bus``; ``None`` if that is unknown."""
        if bus is None:
            return None
        found = self.ends.count(bus)
        return None if not found and None in self.ends else found


def read_lanes(ask: Ask) -> Lanes | None:
    """The lanes of a GPU; ``None`` if it has no NVLink or the driver does not say."""
    states: list[Any] = []
    while (
        len(states) < MAX_LANES
        and (state := ask("nvmlDeviceGetNvLinkState", len(states))) is not None
    ):
        states.append(state)
    if not states:
        return None
    active = [lane for lane, state in enumerate(states) if state]
    ends: list[str | None] = []
    for lane in active:
        if ask("nvmlDeviceGetNvLinkRemoteDeviceType", lane) == _SWITCH:
            ends.append("switch")
        else:
            remote = ask("nvmlDeviceGetNvLinkRemotePciInfo", lane)
            bus = pci_address(decode_text(remote.busId)) if remote is not None else None
            # in a virtual machine that does not see its switches, the address is all ones or all zeros
            ends.append(None if bus is None or bus == _NOWHERE or bus.startswith("ffff") else bus)
    stated = ask("nvmlDeviceGetFieldValues", [_SPEED_FIELD])
    if stated is None or stated[0].nvmlReturn != 0 or not stated[0].value.uiVal:
        return Lanes(tuple(ends), None)
    return Lanes(tuple(ends), len(active) * float(stated[0].value.uiVal) * 1e6)


def decode_text(value: str | bytes) -> str:
    """NVML's texts, which its older Python bindings leave as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# GPUs

_NOT_SUPPORTED, _NO_PERMISSION = 3, 4
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
def open_nvml(library: Any = None) -> Iterator[Any]:
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
    with open_nvml() as library:
        present = count(library) if library is not None else 0
    if visible is None:
        return present
    # as CUDA reads it: up to the first that names no device, like -1, or Slurm's NoDevFiles
    named = takewhile(lambda part: re.match(r"\d|GPU-|MIG-", part.strip()), visible.split(","))
    return min(present, len(list(named)))


@dataclass
class _Card:
    """One GPU that is asked questions; after it was found not to work, it is asked no more."""

    library: Any
    index: int
    fault: str | None = None

    def __post_init__(self) -> None:
        self.handle = self._ask("nvmlDeviceGetHandleByIndex", self.index, refusals=())
        name = self.query("nvmlDeviceGetName", refusals=(_NOT_SUPPORTED,))
        place = self.query("nvmlDeviceGetPciInfo")
        self.name = "unknown" if name is None else decode_text(name)
        self.bus = None if place is None else pci_address(decode_text(place.busId))
        self.lanes = read_lanes(self.query)

    def query(self, question: str, *arguments: Any, refusals: Sequence[int] | None = None) -> Any:
        """NVML's answer, ``None`` where this GPU, driver or binding has none.

        ``refusals``: to a question that any working GPU answers, errors that are no fault all the same.
        """
        return self._ask(question, self.handle, *arguments, refusals=refusals)

    def _ask(self, question: str, *arguments: Any, refusals: Sequence[int] | None) -> Any:
        if self.fault is not None:
            return None
        try:
            return getattr(self.library, question)(*arguments)
        except Exception as error:  # NVML has a class for each, and old bindings lack questions
            code = getattr(error, "value", None)
            if code in _BROKEN or (refusals is not None and code not in refusals):
                self.fault = str(error) or type(error).__name__
            return None

    def make_record(self, driver: str | None, root: Path) -> Gpu:
        # a container that has a slice of it may not see the whole
        refusals = (_NOT_SUPPORTED, _NO_PERMISSION)
        memory = self.query("nvmlDeviceGetMemoryInfo", refusals=refusals)
        device = None if self.bus is None else root / "sys/bus/pci/devices" / self.bus
        stated = {}
        for which in ("Curr", "Max"):
            generation = self.query(f"nvmlDeviceGet{which}PcieLinkGeneration")
            stated[which] = _link_text(generation, self.query(f"nvmlDeviceGet{which}PcieLinkWidth"))
        return Gpu(
            index=self.index,
            name=self.name,
            memory_bytes=None if memory is None else int(memory.total),
            driver=driver,
            pcie=stated["Curr"] or (_link_text(*_read_link(device, "current")) if device else None),
            pcie_max=stated["Max"] or (_widest_link(device) if device else None),
            bus=self.bus,
            numa_node=numa_node(device) if device else None,
            nvlinks=len(self.lanes.ends) if self.lanes else None,
            nvlink_bytes_per_second=self.lanes.bytes_per_second if self.lanes else None,
            fault=self.fault,
        )


class GpuInventory(NamedTuple):
    """The GPUs of a machine and how they reach each other, as records and in one line."""

    gpus: tuple[Gpu, ...] = ()
    routes: tuple[Route, ...] = ()
    topology: str | None = None


def describe_gpus(library: Any, root: Path) -> GpuInventory:
    """Every GPU that the driver counts, and the routes between those that work."""
    cards = [_Card(library, index) for index in range(count(library))]
    try:
        driver = decode_text(library.nvmlSystemGetDriverVersion())
    except Exception:  # the driver is there but does not work
        driver = None
    found = tuple(card.make_record(driver, root) for card in cards)
    routes, rows = [], []
    working = [card for card in cards if card.fault is None]
    for a, b in combinations(working, 2):
        level = a.query("nvmlDeviceGetTopologyCommonAncestor", b.handle)
        if level not in _LEVELS:
            continue
        route = Route(
            a=a.index,
            b=b.index,
            kind=_LEVELS[level],
            nvlinks=a.lanes.count_lanes_to(b.bus) if a.lanes else None,
        )
        routes.append(route)
        nvlink = ""
        if route.nvlinks:
            nvlink = f" + {route.nvlinks} NVLink"
        elif a.lanes and b.lanes and a.lanes.has_switch and b.lanes.has_switch:
            nvlink = " + NVLink switch"  # which a virtual machine may not see
        rows.append(f"{a.index}-{b.index} {route.kind}{nvlink}")
    return GpuInventory(found, tuple(routes), ", ".join(rows) or None)


def count(library: Any) -> int:
    """GPUs that the driver counts; none where it does not answer."""
    try:
        return int(library.nvmlDeviceGetCount())
    except Exception:  # the driver is there but does not work
        return 0
