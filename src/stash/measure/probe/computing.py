"""What computes: matrix products, memory bandwidth, launches, a loader's work; in bursts, so that heat shows.

A burst takes every figure once; the bursts of one figure lie as far apart as the budget allows. A figure that several
devices have is taken on all at once, as training does, and the heaviest ones also on each alone. Counts as STREAM
does (McCalpin 1995): a triad reads two arrays and writes one. Knows PyTorch, and nothing of what a figure should be.
"""

from __future__ import annotations

import io
import mmap
import random
import time
import timeit
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch

from stash.core.errors import one_line
from stash.core.records.host import PartFigure, Unmeasured
from stash.measure.probe.exchanges import repeat
from stash.measure.probe.probe_orders import Product

_PATIENCE = 1.5
"""Times the seconds asked for after which no further burst is begun, as on a machine that does other work."""
_ON_CPU = ((256, 256, 256), (1024, 1024, 1024), (1536, 1536, 1536))
_ON_GPU = ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192))
"""Where no job says which products it makes. Smaller ones take a GPU less time than starting them."""
_GPU_TYPES = {"bfloat16": (8, 0), "float16": (0, 0), "tf32": (8, 0), "fp8": (8, 9)}
"""Types of the largest product, and the compute capability that they need."""
_MIN_ARRAY, _MAX_ARRAY, _GPU_ARRAY = 64 << 20, 256 << 20, 256 << 20
_CALLS = 1000
_LAYOUTS, _ALMOST = 12, 0.95

_cuda: Any = torch.cuda  # its streams and events are untyped

Together = Literal["together", "alone", "both"]


@dataclass(frozen=True)
class Task:
    """One figure to take on one device."""

    name: str
    unit: Literal["FLOP/s", "bytes/s", "calls/s", "samples/s"]
    work: float
    """Of one act."""
    act: Callable[[], object]
    threads: int = 1
    way: Together = "together"
    """How devices of one machine take it: all at once, each by itself, or both."""
    prepare: Callable[[], None] = lambda: None
    """Before each burst."""


class CpuLane:
    """The cores, by the clock on the wall."""

    name = "cpu"
    bursts, repetition = 8, 0.01
    """Of each figure; and seconds of one repetition at least, so that clocks and starting it are lost in it."""
    cpu_seconds: float | None = None
    """What the last repetition took of the cores, where that is known: little where others had them."""
    _began = _cpu_began = _seconds = 0.0

    def start(self, task: Task) -> None:
        """Start the clock."""
        torch.set_num_threads(task.threads)
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    def act(self, task: Task, calls: int) -> None:
        """So many acts; a device with a queue of its own need not be done with them."""
        for _ in range(calls):
            task.act()

    def stop(self) -> None:
        """Stop the clock after what was begun until now."""
        self._seconds = time.perf_counter() - self._began
        self.cpu_seconds = time.process_time() - self._cpu_began

    def seconds(self) -> float:
        """Between start and stop, once all is done."""
        return self._seconds

    def is_busy(self) -> bool:
        """Whether acts are still to be done."""
        return False


class GpuLane:
    """A GPU, by the events of its own queue."""

    bursts, repetition = 3, 0.02
    cpu_seconds: float | None = None

    def __init__(self, index: int) -> None:
        self.name, self._index = f"cuda:{index}", index
        with _cuda.device(index):
            self._began, self._ended = (_cuda.Event(enable_timing=True) for _ in range(2))

    def start(self, task: Task) -> None:
        with _cuda.device(self._index):
            self._began.record()

    def act(self, task: Task, calls: int) -> None:
        with _cuda.device(self._index):
            for _ in range(calls):
                task.act()

    def stop(self) -> None:
        with _cuda.device(self._index):
            self._ended.record()

    def seconds(self) -> float:
        self._ended.synchronize()
        return float(self._began.elapsed_time(self._ended)) / 1e3

    def is_busy(self) -> bool:
        return not self._ended.query()


TimedDevice = CpuLane | GpuLane
"""The one seam between what is measured and a machine."""
DeviceWork = tuple[TimedDevice, Sequence[Task]]
"""A device and all its tasks."""
Look = Callable[[Sequence[TimedDevice]], None]
"""Called with the devices that were just given work."""


Repetition = list[tuple[float, float | None]]
"""By lane: seconds, and what they took of the cores, where that is known."""


@dataclass
class _Slot:
    """Tasks of one name that run at the same time, each on its lane, and what they took so far."""

    pairs: tuple[tuple[TimedDevice, Task], ...]
    turns: int
    """Bursts that it takes part in."""
    calls: int = 0
    """Of a repetition; unknown at first."""
    bursts: list[list[Repetition]] = field(default_factory=list)

    def take_burst(self, seconds: float, look: Look) -> None:
        """One burst of about so many seconds; the first finds out how many acts make a repetition."""
        for _, task in self.pairs:
            task.prepare()
        if not self.calls:
            self._once(1, look)  # starts the device and its libraries, touches memory
            longest = max(1e-7, _longest(self._once(1, look)))
            self.calls = max(1, round(max(lane.repetition for lane, _ in self.pairs) / longest))
        taken: list[Repetition] = []

        def once() -> float:
            taken.append(self._once(self.calls, look))
            return _longest(taken[-1])

        repeat(once, seconds, least=1)
        self.bursts.append(taken[1:])  # the first one warms up

    def _once(self, calls: int, look: Look) -> Repetition:
        """One repetition; lanes take turns, so none waits."""
        turns, at_once = (1, calls) if len(self.pairs) == 1 else (calls, 1)
        for lane, task in self.pairs:
            lane.start(task)
        for _ in range(turns):
            for lane, task in self.pairs:
                lane.act(task, at_once)
        for lane, _ in self.pairs:
            lane.stop()
        look([lane for lane, _ in self.pairs])
        return [(lane.seconds(), lane.cpu_seconds) for lane, _ in self.pairs]

    def list_figures(self) -> list[PartFigure]:
        found = []
        for at, (lane, task) in enumerate(self.pairs):
            own = [[repetition[at] for repetition in burst] for burst in self.bursts]
            cores = [[used for _, used in burst if used is not None] for burst in own]
            figure = PartFigure(
                device=lane.name,
                name=task.name,
                unit=task.unit,
                work=task.work * self.calls,
                together=len(self.pairs) > 1,
                bursts=tuple(tuple(seconds for seconds, _ in burst) for burst in own),
                cpu_seconds=tuple(sum(used) for used in cores if used),
            )
            found.append(figure)
        return found


def _longest(repetition: Repetition) -> float:
    return max(seconds for seconds, _ in repetition)


def _slots(work: Sequence[DeviceWork]) -> list[_Slot]:
    """Each figure by itself where it is of one device, or is not taken together; else of all at once."""
    by_name: dict[str, list[tuple[TimedDevice, Task]]] = {}
    for lane, tasks in work:
        for task in tasks:
            by_name.setdefault(task.name, []).append((lane, task))
    slots: list[_Slot] = []
    for pairs in by_name.values():
        way, most = pairs[0][1].way, max(lane.bursts for lane, _ in pairs)
        if len(pairs) > 1 and way != "together":
            slots += [_Slot((pair,), most if way == "alone" else 1) for pair in pairs]
        if len(pairs) == 1 or way != "alone":
            slots.append(_Slot(tuple(pairs), most))
    return slots


def take_bursts(
    work: Sequence[DeviceWork], seconds: float, look: Look = lambda lanes: None
) -> list[PartFigure | Unmeasured]:
    """Every figure of every device within about ``seconds``; ``look`` is called while devices are busy.

    Where the time is over before its last burst, a figure has fewer.
    """
    began, failed, threads = time.monotonic(), list[Unmeasured](), torch.get_num_threads()
    slots = _slots(work)
    share = seconds / max(1, sum(slot.turns for slot in slots))
    for burst in range(max((slot.turns for slot in slots), default=0)):
        for slot in [slot for slot in slots if slot.turns > burst]:
            if slot.bursts and time.monotonic() - began > _PATIENCE * seconds:
                continue
            try:
                slot.take_burst(share, look)
            except RuntimeError as error:
                slots.remove(slot)
                where = ", ".join(lane.name for lane, _ in slot.pairs)
                failed.append(
                    Unmeasured(link=f"{slot.pairs[0][1].name} on {where}", why=one_line(error))
                )
    torch.set_num_threads(threads)
    return [*(figure for slot in slots for figure in slot.list_figures()), *failed]


# The tasks


def cpu_tasks(
    products: Sequence[Product], cores: int, free_bytes: int, cache: int, vector: str | None
) -> list[Task]:
    """Of all cores, and of one: what trains, and what loads data."""
    usual = [Product("float32", shape) for shape in _ON_CPU]
    wanted = [product for product in products if product.dtype in ("float32", "bfloat16")] or usual
    wanted += [usual[1], *([Product("bfloat16", usual[1].shape)] if vector == "amx" else [])]
    tasks = [_product_task(product, "cpu", cores) for product in dict.fromkeys(wanted)]
    tasks.append(_product_task(usual[1], "cpu", 1, ", 1 core"))
    size = min(max(_MIN_ARRAY, 4 * cache), _MAX_ARRAY, free_bytes // 16)
    arrays = [_host_array(size // 4) for _ in range(3)]
    tasks.append(_triad_task(arrays, cores))
    if cores > 1:
        tasks.append(_triad_task(arrays, 1, ", 1 core"))
    # not of a batch's size: how much of that the cache holds is chance
    tasks.append(Task("copy, 1 core", "bytes/s", 2.0 * size, lambda: arrays[0].copy_(arrays[1])))
    return [*tasks, *_decoding_tasks()]


def _device(index: int) -> str:
    return f"cuda:{index}"


def gpu_tasks(index: int, products: Sequence[Product]) -> tuple[list[Task], list[Unmeasured]]:
    """Of one GPU, in the types that it has and as far as its memory goes; and what is left out, with the reason."""
    device, tasks, missing = _device(index), list[Task](), list[Unmeasured]()
    has = _cuda.get_device_capability(index)
    half = "bfloat16" if has >= _GPU_TYPES["bfloat16"] else "float16"
    heaviest = Product(half, _ON_GPU[-1])
    wanted = [*(products or [Product(half, shape) for shape in _ON_GPU[:-1]])]
    wanted += [Product(type_, _ON_GPU[-1]) for type_ in _GPU_TYPES]

    def add(name: str, make: Callable[[], Task]) -> None:
        try:
            tasks.append(make())
        except (RuntimeError, AttributeError) as error:  # of memory, too
            missing.append(Unmeasured(link=f"{name} on {device}", why=one_line(error)))

    for product in dict.fromkeys(wanted):
        if has < _GPU_TYPES.get(product.dtype, (0, 0)):
            why = f"a GPU of compute capability {has[0]}.{has[1]} has no {product.dtype}"
            missing.append(Unmeasured(link=f"gemm {product.dtype} on {device}", why=why))
        else:
            way: Together = "both" if product == heaviest else "together"
            add(f"gemm {product.dtype}", partial(_product_task, product, device, way=way))
    add("launch", partial(_launches, device))
    add(
        "triad",
        lambda: _triad_task(
            [torch.ones(_GPU_ARRAY // 4, device=device) for _ in range(3)], way="both"
        ),
    )
    return tasks, missing


def _product_task(
    product: Product, device: str, threads: int = 1, of: str = "", way: Together = "together"
) -> Task:
    type_, (rows, inner, columns) = product
    # random values: products of ones take less power, and so run at higher clocks, than those of data
    first, second = (
        torch.randn(rows, inner, device=device),
        torch.randn(columns, inner, device=device),
    )
    if type_ == "fp8":
        # cuBLASLt wants the first by rows and the second by columns; a transposed view of rows is that
        left, right = first.to(torch.float8_e4m3fn), second.to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=device)
        multiply = partial(torch._scaled_mm, out_dtype=torch.bfloat16, use_fast_accum=True)

        def act() -> object:
            return multiply(left, right, scale_a=one, scale_b=one)
    else:
        dtype = torch.float32 if type_ == "tf32" else getattr(torch, type_)
        left, right = first.to(dtype), second.t().to(dtype).contiguous()
        result = torch.empty(rows, columns, dtype=dtype, device=device)

        def act() -> object:
            torch.set_float32_matmul_precision("high" if type_ == "tf32" else "highest")
            return torch.mm(left, right, out=result)

    work = 2.0 * rows * inner * columns
    return Task(f"gemm {type_} {rows}x{inner}x{columns}{of}", "FLOP/s", work, act, threads, way)


def _host_array(count: int) -> torch.Tensor:
    """Touched memory, in huge pages if the kernel has any.

    Where its small pages happen to lie makes 4 to 7 % from process to process (AMD EPYC, 2 virtual cores).
    """
    memory = mmap.mmap(-1, 4 * count)
    with suppress(OSError, AttributeError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32).fill_(1.0)


def _triad_task(
    arrays: Sequence[torch.Tensor], threads: int = 1, of: str = "", way: Together = "together"
) -> Task:
    into, first, second = arrays
    moved = 3.0 * into.numel() * into.element_size()

    def act() -> object:
        return torch.add(first, second, alpha=3.0, out=into)

    return Task(f"triad{of}", "bytes/s", moved, act, threads, way)


def _launches(device: str) -> Task:
    """Tiny kernels one after the other; one thread starts them, so on one GPU at a time."""
    small = torch.zeros(1, device=device)

    def act() -> None:
        for _ in range(_CALLS):
            small.add_(1)

    return Task("launch", "calls/s", _CALLS, act, way="alone")


def _decoding_tasks() -> list[Task]:
    """Decode a JPEG of the size that pictures of ImageNet have, if Pillow is there.

    Where on the heap its buffers happen to lie makes 36 % (AMD EPYC, libjpeg-turbo): before each burst they are moved
    until they lie almost as well as they ever did. In some processes they seldom do.
    """
    try:
        from PIL import Image
    except ImportError:
        return []
    pixels = (torch.arange(500 * 375 * 3) % 251).to(torch.uint8).numpy().tobytes()
    file = io.BytesIO()
    Image.frombytes("RGB", (500, 375), pixels).save(file, "JPEG")
    data, chance, held, best = file.getvalue(), random.Random(0), list[bytearray](), float("inf")

    def act() -> object:
        return Image.open(io.BytesIO(data)).load()

    def prepare() -> None:
        nonlocal best
        is_first = not held
        for _ in range(_LAYOUTS):
            held[:] = [bytearray(chance.randrange(16, 64_000)) for _ in range(20)]
            act()
            took = min(timeit.repeat(act, number=1, repeat=2))
            best = min(best, took)
            if not is_first and took * _ALMOST <= best:
                return

    return [Task("JPEG decoding, 1 core", "samples/s", 1.0, act, prepare=prepare)]
