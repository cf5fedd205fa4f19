"""What computes: matrix products, memory bandwidth, launches, a loader's work; in three bursts, so that heat shows.

A burst takes every figure once; the bursts of one figure lie as far apart as the budget allows. A figure that several
devices have is taken on all at once, as training does, and in the first burst on each alone. Counts as STREAM does
(McCalpin 1995): a triad reads two arrays and writes one. Knows PyTorch, and nothing of what a figure should be.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Sequence
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
_ON_CPU = ((256, 256, 256), (1024, 1024, 1024), (1536, 1536, 1536))
_ON_GPU = ((1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192))
"""Where no job says which products it makes."""
_GPU_TYPES = ("bfloat16", "float16", "tf32", "fp8")
_MIN_ARRAY, _MAX_ARRAY, _GPU_ARRAY = 64 << 20, 256 << 20, 256 << 20
_PATIENCE = 1.5
"""Times the seconds asked for after which nothing more is begun, as on a machine that does other work."""
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


class Lane(Protocol):
    """A device that acts and is timed: the one seam between what is measured and a machine."""

    name: str

    def begin(self, task: Task, calls: int) -> None:
        """Start so many acts."""

    def end(self) -> float:
        """Seconds that they took, once they are done."""


@dataclass
class CpuLane:
    """The cores, by the clock on the wall."""

    name: str = "cpu"
    _seconds: float = 0.0

    def begin(self, task: Task, calls: int) -> None:
        if torch.get_num_threads() != task.threads:
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


Work = tuple[Lane, Sequence[Task]]
"""A device and all its tasks."""


@dataclass(frozen=True)
class _Slot:
    """Tasks of one name that run at the same time, and what they took so far."""

    lanes: tuple[Lane, ...]
    tasks: tuple[Task, ...]
    only_first: bool = False
    calls: list[int] = field(default_factory=list)
    bursts: list[list[tuple[float, ...]]] = field(default_factory=list)
    """By burst, by repetition, by lane."""

    def once(self, look: Callable[[], None]) -> float:
        for lane, task in zip(self.lanes, self.tasks, strict=True):
            lane.begin(task, self.calls[0])
        look()
        self.bursts[-1].append(tuple(lane.end() for lane in self.lanes))
        return max(self.bursts[-1][-1])

    def take(self, seconds: float, look: Callable[[], None]) -> None:
        """One burst of about so many seconds; the first one finds out how many acts make a repetition."""
        if not self.calls:
            self.calls.append(1)
            self.bursts.append([])
            repeat(lambda: self.once(lambda: None), 0.0, least=1)
            self.calls[0] = max(1, round(_REPETITION / max(1e-7, *self.bursts.pop()[-1])))
        self.bursts.append([])
        repeat(lambda: self.once(look), seconds, least=_LEAST)
        del self.bursts[-1][0]  # it warms up

    def figures(self) -> Iterable[PartFigure]:
        for number, (lane, task) in enumerate(zip(self.lanes, self.tasks, strict=True)):
            taken = tuple(tuple(row[number] for row in burst) for burst in self.bursts)
            work = task.work * self.calls[0]
            yield PartFigure(
                device=lane.name,
                name=task.name,
                unit=task.unit,
                work=work,
                together=len(self.lanes) > 1,
                bursts=taken,
            )


def take_bursts(
    work: Sequence[Work], seconds: float, look: Callable[[], None] = lambda: None
) -> list[PartFigure | Unmeasured]:
    """Every figure of every device within about ``seconds``; ``look`` is called while devices are busy.

    Where the time is over before its last burst, a figure has fewer.
    """
    began = time.monotonic()
    slots: list[_Slot] = []
    for name in dict.fromkeys(task.name for _, tasks in work for task in tasks):
        pairs = [(lane, task) for lane, tasks in work for task in tasks if task.name == name]
        if len(pairs) > 1:
            slots += [_Slot((lane,), (task,), only_first=True) for lane, task in pairs]
        slots.append(_Slot(tuple(lane for lane, _ in pairs), tuple(task for _, task in pairs)))
    turns = sum(1 if slot.only_first else BURSTS for slot in slots)
    failed: dict[int, Unmeasured] = {}
    threads = torch.get_num_threads()
    try:
        for burst in range(BURSTS):
            for number, slot in enumerate(slots):
                is_late = slot.bursts and time.monotonic() - began > _PATIENCE * seconds
                if number in failed or (burst and slot.only_first) or is_late:
                    continue
                try:
                    slot.take(seconds / turns, look)
                except RuntimeError as error:
                    where = ", ".join(lane.name for lane in slot.lanes)
                    failed[number] = Unmeasured(link=f"{slot.tasks[0].name} on {where}", why=one_line(error))
    finally:
        torch.set_num_threads(threads)
    done = [figure for number, slot in enumerate(slots) if number not in failed for figure in slot.figures()]
    return [*done, *failed.values()]


# The tasks


def cpu_tasks(products: Sequence[Product], cores: int, free_bytes: int, cache: int, vector: str | None) -> list[Task]:
    """Of all cores, and of one: what trains, and what loads data."""
    largest = _ON_CPU[1]
    types = ["float32", *(["bfloat16"] if vector == "amx" else [])]
    wanted = [(product.dtype, product.shape) for product in products if product.dtype in ("float32", "bfloat16")]
    wanted = [*(wanted or [("float32", shape) for shape in _ON_CPU]), *((type_, largest) for type_ in types)]
    tasks = [_product(type_, shape, "cpu", cores) for type_, shape in dict.fromkeys(wanted)]
    tasks.append(_product("float32", largest, "cpu", 1, ", 1 core"))
    size = min(max(_MIN_ARRAY, 4 * cache), _MAX_ARRAY, free_bytes // 16)
    arrays = [torch.ones(size // 4) for _ in range(3)]
    tasks += [_triad(arrays, cores), *([_triad(arrays, 1, ", 1 core")] if cores > 1 else [])]
    batch, copy = torch.ones(_BATCH_BYTES // 4), torch.ones(_BATCH_BYTES // 4)
    tasks.append(Task("copy of a batch, 1 core", "bytes/s", 2.0 * _BATCH_BYTES, lambda: copy.copy_(batch)))
    return [*tasks, *_decoding()]


def _product(type_: str, shape: tuple[int, int, int], device: str, threads: int = 1, of: str = "") -> Task:
    rows, inner, columns = shape
    name = f"gemm {type_} {rows}x{inner}x{columns}{of}"
    act: Callable[[], object]
    if type_ == "fp8":
        left = torch.ones(rows, inner, device=device).to(torch.float8_e4m3fn)
        right = torch.ones(columns, inner, device=device).to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=device)
        scaled: Any = torch._scaled_mm

        def act() -> object:
            return scaled(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    else:
        dtype = torch.float32 if type_ == "tf32" else getattr(torch, type_)
        # random values: products of ones take less power, and so run at higher clocks, than those of data
        first, second = (torch.randn(pair, device=device).to(dtype) for pair in ((rows, inner), (inner, columns)))
        result = torch.empty(rows, columns, device=device, dtype=dtype)
        precision = "high" if type_ == "tf32" else "highest"

        def act() -> object:
            torch.set_float32_matmul_precision(precision)
            return torch.mm(first, second, out=result)

    return Task(name, "FLOP/s", 2.0 * rows * inner * columns, act, threads)


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


def gpu_tasks(index: int, products: Sequence[Product]) -> tuple[list[Task], list[Unmeasured]]:
    """Of one GPU, in the types that it has; and those that it has not."""
    device, tasks, missing = f"cuda:{index}", [], []
    wanted = [(product.dtype, product.shape) for product in products]
    wanted = [*(wanted or [("bfloat16", shape) for shape in _ON_GPU[:-1]]), *((t, _ON_GPU[-1]) for t in _GPU_TYPES)]
    major, minor = torch.cuda.get_device_capability(index)
    least = {"bfloat16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
    for type_, shape in dict.fromkeys(wanted):
        try:
            if (major, minor) < least.get(type_, (0, 0)):
                raise RuntimeError(f"a GPU of compute capability {major}.{minor} has no {type_}")
            tasks.append(_product(type_, shape, device))
        except (RuntimeError, AttributeError) as error:
            missing.append(Unmeasured(link=f"gemm {type_} on {device}", why=one_line(error)))
    try:
        tasks.append(_triad([torch.ones(_GPU_ARRAY // 4, device=device) for _ in range(3)]))
        small = torch.zeros(1, device=device)
        tasks.append(Task("launch", "calls/s", _CALLS, lambda: [small.add_(1) for _ in range(_CALLS)]))
    except RuntimeError as error:
        missing.append(Unmeasured(link=f"triad on {device}", why=one_line(error)))
    return tasks, missing
