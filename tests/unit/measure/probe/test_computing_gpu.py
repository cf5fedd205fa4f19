"""GPUs that compute, without one: played queues and a played driver, small products on the CPU."""

from contextlib import nullcontext
from types import SimpleNamespace as Some

import pynvml
import pytest
import torch

from bench.probe import ScriptedGpu
from stash.core.records.host import PartFigure, PartState, Unmeasured
from stash.measure.host.gpu_readings import users_of
from stash.measure.probe import computing, computing_parts
from stash.measure.probe.computing import GpuLane, Task
from stash.measure.probe.probe_orders import Product


class PlayedCuda:
    """The part of ``torch.cuda`` that a lane uses, with the log of what was put into which device's queue."""

    def __init__(self, capability=(9, 0)):
        self.log = []
        self.capability, self.done, self.current = capability, False, -1

    def device(self, index):
        self.current = index
        return nullcontext()

    def get_device_capability(self, index):
        return self.capability

    def Event(self, enable_timing):  # noqa: N802
        assert enable_timing
        number = sum("event" in line for line in self.log)
        self.log.append(f"event {number} of {self.current}")
        return Some(
            record=lambda: self.log.append(f"record {number} on {self.current}"),
            synchronize=lambda: self.log.append(f"wait for {number}"),
            elapsed_time=lambda ended: 12.5,
            query=lambda: self.done,
        )


def test_a_gpu_is_timed_by_events_around_its_queue_and_waited_for_once(monkeypatch):
    cuda = PlayedCuda()
    monkeypatch.setattr(computing, "_cuda", cuda)
    lane = GpuLane(3)
    acting = Task("gemm", "FLOP/s", 1.0, lambda: cuda.log.append("act"))
    lane.start(acting)
    lane.act(acting, 2)
    lane.stop()
    assert lane.is_busy()
    assert lane.seconds() == 0.0125  # events tell milliseconds
    assert cuda.log == [
        "event 0 of 3",
        "event 1 of 3",
        "record 0 on 3",
        "act",
        "act",
        "record 1 on 3",
        "wait for 1",
    ]


@pytest.fixture
def small(monkeypatch):
    """GPUs whose tensors are the CPU's, and small."""
    cuda = PlayedCuda()
    monkeypatch.setattr(computing, "_cuda", cuda)
    monkeypatch.setattr(computing, "_device", lambda index: "cpu")
    monkeypatch.setattr(computing, "_ON_GPU", ((16, 16, 16), (32, 32, 32), (64, 32, 16)))
    monkeypatch.setattr(computing, "_GPU_ARRAY", 4096)
    return cuda


@pytest.mark.parametrize(
    ("capability", "types", "lacking"),
    [
        ((9, 0), {"bfloat16", "float16", "tf32", "fp8"}, set()),
        ((8, 0), {"bfloat16", "float16", "tf32"}, {"fp8"}),
        ((7, 5), {"float16"}, {"bfloat16", "tf32", "fp8"}),
    ],
)
def test_a_gpu_multiplies_in_the_types_that_it_has_and_says_which_it_lacks(
    small, capability, types, lacking
):
    small.capability = capability
    tasks, missing = computing.gpu_tasks(0, ())
    gemms = [each for each in tasks if each.name.startswith("gemm")]
    assert {each.name.split()[1] for each in gemms} == types
    assert {each.link.split()[1] for each in missing} == lacking
    assert len(gemms) == 2 + len(types)  # two smaller ones in the type that jobs train in
    assert {each.name for each in tasks} >= {"launch", "triad"}
    heaviest = "bfloat16" if "bfloat16" in types else "float16"
    assert {each.name for each in tasks if each.way == "both"} == {
        f"gemm {heaviest} 64x32x16",
        "triad",
    }
    for each in tasks:
        if "fp8" not in each.name:  # which CPUs of today may lack
            each.act()


@pytest.mark.parametrize(("type_", "error"), [("fp8", 0.1), ("bfloat16", 0.01), ("tf32", 1e-5)])
def test_products_are_what_they_say(type_, error, monkeypatch):
    made = []
    random = torch.randn
    monkeypatch.setattr(
        torch, "randn", lambda *shape, **more: made.append(random(*shape, **more)) or made[-1]
    )
    found = computing._product_task(Product(type_, (32, 64, 16)), "cpu")
    assert (found.work, found.name) == (2.0 * 32 * 64 * 16, f"gemm {type_} 32x64x16")
    try:
        result = found.act()
    except (RuntimeError, NotImplementedError):
        pytest.skip(f"PyTorch has no {type_} product on this CPU")
    finally:
        torch.set_float32_matmul_precision("highest")
    wanted = made[0] @ made[1].t()
    assert float((result.float() - wanted).norm() / wanted.norm()) < error


# The driver, and the GPUs as PyTorch names them


class PlayedNvml:
    """GPUs by index; ``None`` is lost. Handles are the answers themselves."""

    def __init__(self, *gpus):
        self._gpus = gpus

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlShutdown(self):  # noqa: N802
        pass

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if self._gpus[index] is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self._gpus[index]

    def __getattr__(self, name):
        return lambda handle, *asked: getattr(handle, name)(handle, *asked)


class PlayedLane:
    """A GPU that takes 4 ms for each act."""

    bursts, repetition, cpu_seconds = 1, 0.0, None

    def __init__(self, index):
        self.name = f"cuda:{index}"

    def start(self, task): ...
    def act(self, task, calls): ...
    def stop(self): ...

    def seconds(self):
        return 0.004

    def is_busy(self):
        return self.name != "cuda:2"  # it was done before the driver had answered


@pytest.fixture
def played(monkeypatch):
    """Three devices of PyTorch, the last one a slice; what was freed at the end."""
    freed = []
    names = ["aaaa", "bbbb", "cccc"]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Some(uuid=names[index]))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append("cache"))
    monkeypatch.setattr(computing_parts, "GpuLane", PlayedLane)
    monkeypatch.setattr(computing_parts, "_LOOKS_EVERY", 0.0)
    monkeypatch.setattr(computing_parts, "_measure_cores", lambda *asked: [])
    tasks = [
        Task("gemm", "FLOP/s", 1.0, lambda: None),
        Task("launch", "calls/s", 1.0, lambda: None, way="alone"),
    ]
    monkeypatch.setattr(computing_parts, "gpu_tasks", lambda index, products: (tasks, []))
    return freed


def measured(library, devices, force=False):
    users = computing_parts.gpu_users(devices, library)
    machine = computing_parts.ComputingMachine(1, 1, devices, users, library)
    return computing_parts.measure(machine, 0.0, (), force)


def test_gpus_are_found_in_the_drivers_order_by_their_identity_and_a_lost_one_disturbs_nobody(
    played,
):
    library = PlayedNvml(
        None, ScriptedGpu(UUID="GPU-bbbb", ClockInfo=705), ScriptedGpu(UUID=b"GPU-aaaa")
    )
    found = measured(library, 2)
    states = {each.device: each for each in found if isinstance(each, PartState)}
    assert {name: each.clock for name, each in states.items()} == {
        "cuda:0": 1395 / 1410,
        "cuda:1": 0.5,
    }
    assert {each.device for each in found if isinstance(each, PartFigure)} == {"cuda:0", "cuda:1"}
    assert played == ["cache"]


def test_a_slice_has_users_of_its_own_and_the_clock_of_its_gpu(played):
    part = ScriptedGpu(
        UUID="MIG-bbbb", ClockInfo=None, ComputeRunningProcesses=[Some(pid=2**22 + 1)]
    )
    whole = ScriptedGpu(
        UUID="GPU-ffff", ClockInfo=705, MaxMigDeviceCount=1, MigDeviceHandleByIndex=part
    )
    library = PlayedNvml(ScriptedGpu(UUID="GPU-aaaa"), whole)
    found = measured(library, 2)
    (left,) = [each for each in found if isinstance(each, Unmeasured)]
    assert left.link == "compute on cuda:1"
    assert "in use by a process out of sight" in left.why
    assert {each.device for each in found if isinstance(each, PartFigure)} == {"cuda:0"}
    forced = {
        each.device: each
        for each in measured(library, 2, force=True)
        if isinstance(each, PartState)
    }
    assert (forced["cuda:1"].clock, len(forced["cuda:1"].users)) == (0.5, 1)


def test_a_gpu_that_the_driver_does_not_know_and_one_that_was_never_seen_busy_are_said(played):
    found = measured(PlayedNvml(ScriptedGpu(UUID="GPU-aaaa"), ScriptedGpu(UUID="GPU-cccc")), 3)
    why = {each.link: each.why for each in found if isinstance(each, Unmeasured)}
    assert "by the identity that PyTorch gives it" in why["compute, state of cuda:1"]
    # the third one's answers came when it was idle again: no clock, but its errors are known
    assert "compute, clock of cuda:2" in why
    state = next(each for each in found if isinstance(each, PartState) and each.device == "cuda:2")
    assert (state.clock, state.held_by, state.memory_errors) == (None, None, 0)


def test_older_drivers_are_asked_for_users_in_their_own_form():
    def ask(question, *arguments):
        return [Some(pid=2**22 + 1)] if question == "ComputeRunningProcesses_v2" else None

    assert len(users_of(ask)) == 1
