"""PCI devices as sysfs lists them: addresses, the link's generation and width, NUMA node.

Serves where a driver does not answer, and needs none. Knows nothing of what the devices do.
"""

from __future__ import annotations

import re
from pathlib import Path

from stash.measure.linux.files import entries, number, target, text
from stash.measure.linux.files import numa_node as node_of

_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
"""GT/s per lane to PCI Express generation."""
_NVIDIA = "0x10de"
_GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers."""
_ADDRESS = re.compile(r"([0-9a-f]+):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def address(said: str) -> str | None:
    """An address as sysfs writes it: NVML's ``00000000:3B:00.0`` is ``0000:3b:00.0``; ``None`` if it is none."""
    match = _ADDRESS.fullmatch(said.strip())
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}".lower() if match else None


def numa_node(root: Path, bus: str) -> int | None:
    return node_of(_device(root, bus))


def link(root: Path, bus: str) -> str | None:
    """The link in use now, ``gen3 x16``."""
    return written(*_link(_device(root, bus), "current"))


def most(root: Path, bus: str) -> str | None:
    """The most this device can use in this slot: the lesser of its own and of the port it is plugged into."""
    device = target(_device(root, bus))
    if device is None:
        return None
    ends = [_link(device, "max"), _link(device.parent, "max")]
    generations = [generation for generation, _ in ends if generation is not None]
    widths = [width for _, width in ends if width is not None]
    return written(min(generations, default=None), min(widths, default=None))


def written(generation: int | None, width: int | None) -> str | None:
    """``gen4 x16``; ``None`` unless both are known."""
    return f"gen{generation} x{width}" if generation and width else None


def nvidia_gpus(root: Path) -> dict[str, str]:
    """Address to ``vendor:device`` of each of NVIDIA's GPUs, in the order in which the driver numbers them."""
    found = {}
    for folder in entries(root / "sys/bus/pci/devices"):
        if text(folder / "vendor") == _NVIDIA and (text(folder / "class") or "").startswith(_GPU_CLASSES):
            found[folder.name] = f"10de:{(text(folder / 'device') or '0x????').removeprefix('0x')}"
    return dict(sorted(found.items()))


def _device(root: Path, bus: str) -> Path:
    return root / "sys/bus/pci/devices" / bus


def _link(device: Path, which: str) -> tuple[int | None, int | None]:
    # "8.0 GT/s PCIe", "16 GT/s" on older kernels, or "Unknown"
    speed = (text(device / f"{which}_link_speed") or "").split(" ")[0].removesuffix(".0")
    width = number(device / f"{which}_link_width")
    return _GENERATIONS.get(speed), width if width and width < 255 else None  # 255 is unknown
