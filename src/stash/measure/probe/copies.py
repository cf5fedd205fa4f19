"""Copies inside one machine: between host and GPUs, from GPU to GPU; what memory itself moves, ``computing`` takes.

Knows nothing of ranks: one process drives all devices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stash.core.errors import one_line
from stash.core.records.host import Copy, Timing, Unmeasured
from stash.measure.probe.exchanges import repeat

_UNKNOWN_CACHE = 64 << 20
_HOST_BUFFER, _DEVICE_BUFFER = 64 << 20, 256 << 20
"""Between GPUs PyTorch makes the two wait for each other before and after each copy, which a large one hides."""
_REPETITION = 0.01
"""Seconds of back-to-back copies that make one repetition on a device, so that starting them is lost in it."""

_cuda: Any = torch.cuda  # its streams and events are untyped

Move = tuple[Tensor, Tensor]
"""(target, source) of one copy."""


def measure(
    seconds: float, free_bytes: int, count: int, in_use: Mapping[int, str] | None = None
) -> list[Copy | Unmeasured]:
    """Everything that can be copied to, from and between so many devices, within about ``seconds``.

    ``in_use``: devices that are left alone, and why.
    """
    if count == 0:
        return [
            Unmeasured(link="copies", why="this machine has no CUDA device that PyTorch can use")
        ]
    left = [
        Unmeasured(link=f"copies of cuda:{index}", why=why) for index, why in (in_use or {}).items()
    ]
    devices = [index for index in range(count) if index not in (in_use or {})]
    if not devices:
        return list(left)
    return [
        *left,
        *_host_and_devices(2 * seconds / 3, free_bytes, devices),
        *_device_pairs(seconds / 3, devices),
    ]


def cache_bytes(root: Path = Path("/")) -> int:
    """The largest cache level of all cores together, or a guess where sysfs does not tell."""
    levels: dict[tuple[int, str], int] = {}
    for folder in root.glob("sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, sharers, size = (
                (folder / name).read_text().strip() for name in ("level", "shared_cpu_list", "size")
            )
        except OSError:
            continue
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if match is not None:
            levels[int(level), sharers] = (
                int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
            )
    last = max((level for level, _ in levels), default=None)
    return sum(size for (level, _), size in levels.items() if level == last) or _UNKNOWN_CACHE


def _host_and_devices(
    seconds: float, free_bytes: int, devices: Sequence[int]
) -> list[Copy | Unmeasured]:
    """Pinned memory to and from each device: one by one, then all at once."""
    size = min(_HOST_BUFFER, free_bytes // 8 // len(devices))
    share = seconds / (2 * len(devices) + 2)
    found: list[Copy | Unmeasured] = []
    inward: list[Move] = []
    for device in devices:
        try:
            host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            there = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}")
        except RuntimeError as error:
            found.append(Unmeasured(link=f"copies host to cuda:{device}", why=one_line(error)))
            continue
        inward.append((there, host))
        found += _measure_copies([(there, host)], share)
        found += _measure_copies([(host, there)], share)
    if len(inward) > 1:
        found += _measure_copies(inward, share)
        found += _measure_copies([(host, there) for there, host in inward], share)
    return found


def _device_pairs(seconds: float, devices: Sequence[int]) -> list[Copy | Unmeasured]:
    """Every device to every other, one pair at a time."""
    ordered = list(permutations(devices, 2))
    found: list[Copy | Unmeasured] = []
    for pair in ordered:
        a, b = (f"cuda:{index}" for index in pair)
        try:
            source, target = (
                torch.zeros(_DEVICE_BUFFER, dtype=torch.uint8, device=device) for device in (a, b)
            )
        except RuntimeError as error:
            found.append(Unmeasured(link=f"copies {a} to {b}", why=one_line(error)))
            continue
        found += _measure_copies([(target, source)], seconds / len(ordered))
    return found


class _Lane:
    """One copy on a stream of its own, timed by the device's own events."""

    def __init__(self, target: Tensor, source: Tensor) -> None:
        self.target, self.source, self.bytes = target, source, source.numel()
        self.device = source.device if source.is_cuda else target.device
        with _cuda.device(self.device):
            self.stream = _cuda.Stream()
            self.began, self.ended = (_cuda.Event(enable_timing=True) for _ in range(2))


def _measure_copies(moves: Sequence[Move], seconds: float) -> list[Copy | Unmeasured]:
    """One record for each of ``moves``, all of them made at the same time."""
    names = [
        tuple(f"cuda:{t.device.index}" if t.is_cuda else "host" for t in (move[1], move[0]))
        for move in moves
    ]
    try:
        lanes = [_Lane(target, source) for target, source in moves]
        _time_lanes(lanes, 1)  # the first copy enables peer access and starts the device
        calls = max(1, round(_REPETITION / max(1e-6, *_time_lanes(lanes, 1))))
        rows: list[list[float]] = []

        def once() -> float:
            rows.append(_time_lanes(lanes, calls))
            return max(rows[-1])

        repeat(once, seconds)
    except RuntimeError as error:
        return [Unmeasured(link=f"copies {a} to {b}", why=one_line(error)) for a, b in names]
    return [
        Copy(
            source=a,
            target=b,
            together=len(moves) > 1,
            pinned=True if "host" in (a, b) else None,
            timings=(Timing(bytes=calls * lane.bytes, seconds=tuple(row[k] for row in rows[1:])),),
        )
        for k, ((a, b), lane) in enumerate(zip(names, lanes, strict=True))
    ]


def _time_lanes(lanes: Sequence[_Lane], calls: int) -> list[float]:
    """Seconds that each lane's ``calls`` copies took, all lanes started together."""
    for lane in lanes:
        torch.cuda.synchronize(lane.device)
    for lane in lanes:
        with torch.cuda.device(lane.device), torch.cuda.stream(lane.stream):
            lane.began.record()
            for _ in range(calls):
                lane.target.copy_(lane.source, non_blocking=True)
            lane.ended.record()
    for lane in lanes:
        lane.ended.synchronize()
    return [lane.began.elapsed_time(lane.ended) / 1e3 for lane in lanes]
