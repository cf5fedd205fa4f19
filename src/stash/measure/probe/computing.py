"""What computes: matrix products, memory bandwidth, launches, a loader's work; in three bursts, so that heat shows.

A burst takes every figure once; the bursts of one figure lie as far apart as the budget allows. A figure that several
devices have is taken on all at once, as training does, and in the first burst on each alone. Counts as STREAM does
(McCalpin 1995): a triad reads two arrays and writes one. Knows PyTorch, and nothing of what a figure should be.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch

from stash.core.errors import one_line
from stash.core.records.host import PartFigure, Unmeasured
from stash.measure.probe.exchanges import repeat
from stash.measure.probe.probe_orders import Product

BURSTS = 3
_REPETITION = 0.01
"""Seconds of one repetition at least, so that clocks and starting it are lost in it."""
_LEAST = 2
_PATIENCE = 1.5
"""Times the seconds asked for after which no further burst is begun, as on a machine that does other work."""
_ON_CPU = ((256, 256, 256), (1024, 1024, 1024), (1536, 1536, 1536))
_ON_GPU = ((1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192))
"""Where no job says which products it makes."""
_GPU_TYPES = {"bfloat16": (8, 0), "float16": (0, 0), "tf32": (8, 0), "fp8": (8, 9)}
"""Types of the largest product, and the compute capability that they need."""
_MIN_ARRAY, _MAX_ARRAY, _GPU_ARRAY = 64 << 20, 256 << 20, 256 << 20
_BATCH_BYTES = 32 << 20
_CALLS = 1000

_cuda: Any = torch.cuda  # its streams and events are untyped


@dataclass(frozen=True)
class Task:
    """One figure to take on one device."""

    name: str
    unit: Literal["FLOP/s", "bytes/s", "calls/s", "samples/s"]
    work: float
    """Of one act."""
    act: Callable[[], object]
    threads: int = 1


class TimedDevice(Protocol):
    """A device that acts and is timed: the one seam between what is measured and a machine."""

    name: str

    def begin(self, task: Task, calls: int) -> None:
        """Start so many acts."""

    def end(self) -> float:
        """Seconds that they took, once they are done."""


class CpuLane:
    """The cores, by the clock on the wall."""

    name = "cpu"
    _seconds = 0.0

    def begin(self, task: Task, calls: int) -> None:
        torch.set_num_threads(task.threads)
        began = time.perf_counter()
        for _ in range(calls):
            task.act()
        self._seconds = time.perf_counter() - began

    def end(self) -> float:
        return self._seconds


class GpuLane:
    """A GPU, by the events of its own queue."""

    def __init__(self, index: int) -> None:
        self.name, self._index = f"cuda:{index}", index
        with _cuda.device(index):
            self._began, self._ended = (_cuda.Event(enable_timing=True) for _ in range(2))

    def begin(self, task: Task, calls: int) -> None:
        with _cuda.device(self._index):
            self._began.record()
            for _ in range(calls):
                task.act()
            self._ended.record()

    def end(self) -> float:
        self._ended.synchronize()
        return float(self._began.elapsed_time(self._ended)) / 1e3


DeviceWork = tuple[TimedDevice, Sequence[Task]]
"""A device and all its tasks."""


@dataclass
class _Slot:
    """Tasks of one name that run at the same time, each on its lane, and what they took so far."""

    pairs: tuple[tuple[TimedDevice, Task], ...]
    turns: int
    """Bursts that it takes part in."""
    calls: int = 1
    bursts: list[list[tuple[float, ...]]] = field(default_factory=list)
    """By burst, by repetition, by lane."""

    def take(self, seconds: float, look: Callable[[], None]) -> None:
        """One burst of about so many seconds; the first finds out how many acts make a repetition."""
        taken: list[tuple[float, ...]] = []

        def once() -> float:
            for lane, task in self.pairs:
                lane.begin(task, self.calls)
            look()
            taken.append(tuple(lane.end() for lane, _ in self.pairs))
            return max(taken[-1])

        if not self.bursts:
            self.calls = max(1, round(_REPETITION / max(1e-7, *repeat(once, 0.0, least=1))))
            taken.clear()
        repeat(once, seconds, least=_LEAST)
        self.bursts.append(taken[1:])  # the first one warms up

    def figures(self) -> list[PartFigure]:
        return [
            PartFigure(
                device=lane.name, name=task.name, unit=task.unit, work=task.work * self.calls,
                together=len(self.pairs) > 1, bursts=tuple(tuple(row[at] for row in burst) for burst in self.bursts),
            )
            for at, (lane, task) in enumerate(self.pairs)
        ]  # fmt: skip


def take_bursts(
    work: Sequence[DeviceWork], seconds: float, look: Callable[[], None] = lambda: None
) -> list[PartFigure | Unmeasured]:
    """Every figure of every device within about ``seconds``; ``look`` is called while devices are busy.

    Where the time is over before its last burst, a figure has fewer.
    """
    began, slots, failed, threads = time.monotonic(), list[_Slot](), list[Unmeasured](), torch.get_num_threads()
    for name in dict.fromkeys(task.name for _, tasks in work for task in tasks):
        pairs = tuple((lane, task) for lane, tasks in work for task in tasks if task.name == name)
        slots += [_Slot((pair,), 1) for pair in pairs] if len(pairs) > 1 else []
        slots.append(_Slot(pairs, BURSTS))
    share = seconds / max(1, sum(slot.turns for slot in slots))
    for burst in range(BURSTS):
        for slot in [slot for slot in slots if slot.turns > burst]:
            if slot.bursts and time.monotonic() - began > _PATIENCE * seconds:
                continue
            try:
                slot.take(share, look)
            except RuntimeError as error:
                slots.remove(slot)
                where = ", ".join(lane.name for lane, _ in slot.pairs)
                failed.append(Unmeasured(link=f"{slot.pairs[0][1].name} on {where}", why=one_line(error)))
    torch.set_num_threads(threads)
    return [*(figure for slot in slots for figure in slot.figures()), *failed]


# The tasks


def cpu_tasks(products: Sequence[Product], cores: int, free_bytes: int, cache: int, vector: str | None) -> list[Task]:
    """Of all cores, and of one: what trains, and what loads data."""
    usual = [Product("float32", shape) for shape in _ON_CPU]
    wanted = [product for product in products if product.dtype in ("float32", "bfloat16")] or usual
    wanted += [usual[1], *([Product("bfloat16", usual[1].shape)] if vector == "amx" else [])]
    tasks = [_product(product, "cpu", cores) for product in dict.fromkeys(wanted)]
    tasks.append(_product(usual[1], "cpu", 1, ", 1 core"))
    size = min(max(_MIN_ARRAY, 4 * cache), _MAX_ARRAY, free_bytes // 16)
    arrays = [torch.ones(size // 4) for _ in range(3)]
    tasks += [_triad(arrays, cores), *([_triad(arrays, 1, ", 1 core")] if cores > 1 else [])]
    batch, copy = torch.ones(_BATCH_BYTES // 4), torch.ones(_BATCH_BYTES // 4)
    tasks.append(Task("copy of a batch, 1 core", "bytes/s", 2.0 * _BATCH_BYTES, lambda: copy.copy_(batch)))
    return [*tasks, *_decoding()]


def gpu_tasks(index: int, products: Sequence[Product]) -> tuple[list[Task], list[Unmeasured]]:
    """Of one GPU, in the types that it has; and those that it has not."""
    device, tasks, missing = f"cuda:{index}", list[Task](), list[Unmeasured]()
    wanted = [*(products or [Product("bfloat16", shape) for shape in _ON_GPU[:-1]])]
    wanted += [Product(type_, _ON_GPU[-1]) for type_ in _GPU_TYPES]
    has = torch.cuda.get_device_capability(index)
    for product in dict.fromkeys(wanted):
        try:
            if has < _GPU_TYPES.get(product.dtype, (0, 0)):
                raise RuntimeError(f"a GPU of compute capability {has[0]}.{has[1]} has no {product.dtype}")
            tasks.append(_product(product, device))
        except (RuntimeError, AttributeError) as error:
            missing.append(Unmeasured(link=f"gemm {product.dtype} on {device}", why=one_line(error)))
    small = torch.zeros(1, device=device)
    tasks.append(Task("launch", "calls/s", _CALLS, lambda: [small.add_(1) for _ in range(_CALLS)]))
    tasks.append(_triad([torch.ones(_GPU_ARRAY // 4, device=device) for _ in range(3)]))
    return tasks, missing


def _product(product: Product, device: str, threads: int = 1, of: str = "") -> Task:
    type_, (rows, inner, columns) = product
    # random values: products of ones take less power, and so run at higher clocks, than those of data
    first, second = torch.randn(rows, inner, device=device), torch.randn(columns, inner, device=device).t()
    act: Callable[[], object]
    if type_ == "fp8":
        left, right = first.to(torch.float8_e4m3fn), second.to(torch.float8_e4m3fn)
        one, scaled = torch.ones((), device=device), torch._scaled_mm

        def act() -> object:
            return scaled(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    else:
        dtype = torch.float32 if type_ == "tf32" else getattr(torch, type_)
        left, right, result = (
            first.to(dtype),
            second.contiguous().to(dtype),
            torch.empty(0, dtype=dtype, device=device),
        )

        def act() -> object:
            torch.set_float32_matmul_precision("high" if type_ == "tf32" else "highest")
            return torch.mm(left, right, out=result)

    return Task(f"gemm {type_} {rows}x{inner}x{columns}{of}", "FLOP/s", 2.0 * rows * inner * columns, act, threads)


def _triad(arrays: Sequence[torch.Tensor], threads: int = 1, of: str = "") -> Task:
    into, first, second = arrays
    moved = 3.0 * into.numel() * into.element_size()
    return Task(f"triad{of}", "bytes/s", moved, lambda: torch.add(first, second, alpha=3.0, out=into), threads)


def _decoding() -> list[Task]:
    """Decode a JPEG of the size that pictures of ImageNet have, if Pillow is there."""
    try:
        from PIL import Image
    except ImportError:
        return []
    pixels = (torch.arange(500 * 375 * 3) % 251).to(torch.uint8).numpy().tobytes()
    file = io.BytesIO()
    Image.frombytes("RGB", (500, 375), pixels).save(file, "JPEG")
    return [Task("JPEG decoding, 1 core", "samples/s", 1.0, lambda: Image.open(io.BytesIO(file.getvalue())).load())]
