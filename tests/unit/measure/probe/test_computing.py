"""What computes, by lanes with a clock of their own; and the cores as they are, in an instant."""

from dataclasses import dataclass, field

import pytest
import torch

from stash.core.records.host import PartFigure, PartState, Unmeasured
from stash.measure.probe import computing, computing_parts
from stash.measure.probe.computing import Task, take_bursts
from stash.measure.probe.probe_orders import Product


@dataclass
class SlowLane:
    """A device whose acts take 4 ms each; it writes down what it was told."""

    name: str
    log: list[str] = field(default_factory=list)
    bursts: int = 3
    repetition: float = 0.01
    cpu_seconds: float | None = None
    calls: int = 0

    def start(self, task):
        self.calls = 0
        self.log.append(f"{self.name} {task.name}")

    def act(self, task, calls):
        self.calls += calls
        task.act()

    def stop(self):
        self.log.append(f"{self.name} stop")

    def seconds(self):
        return 0.004 * self.calls

    def is_busy(self):
        return True


def task(name, way="both", act=lambda: None):
    return Task(name, "FLOP/s", 8.0, act, way=way)


@pytest.fixture
def patient(monkeypatch):
    """Seconds for which each slot is as short as can be, and no burst is left out."""
    monkeypatch.setattr(computing, "_PATIENCE", 1e12)
    return 1e-9


def test_a_figure_is_taken_in_bursts_with_the_others_between_them(patient):
    lane = SlowLane("cuda:0")
    found = take_bursts([(lane, [task("gemm"), task("triad")])], patient)
    assert all(isinstance(each, PartFigure) for each in found)
    gemm = found[0]
    # an act takes 4 ms, so a repetition of 10 ms at least has two or three of them
    assert (gemm.device, gemm.work, gemm.together, gemm.cpu_seconds) == ("cuda:0", 16.0, False, ())
    assert gemm.bursts == ((0.008,),) * 3
    order = [name for name in lane.log if "stop" not in name]
    changes = [name for at, name in enumerate(order) if at == 0 or order[at - 1] != name]
    assert changes == ["cuda:0 gemm", "cuda:0 triad"] * 3


def test_devices_act_alone_once_and_together_in_every_burst(patient):
    lanes = SlowLane("cuda:0"), SlowLane("cuda:1")
    looks = []
    found = take_bursts(
        [
            (lane, [task("gemm"), task("add", "together"), task("launch", "alone")])
            for lane in lanes
        ],
        patient,
        lambda busy: looks.append("+".join(each.name for each in busy)),
    )
    assert [(each.name, each.device, each.together, len(each.bursts)) for each in found] == [
        ("gemm", "cuda:0", False, 1),
        ("gemm", "cuda:1", False, 1),
        ("gemm", "cuda:0", True, 3),
        ("gemm", "cuda:1", True, 3),
        ("add", "cuda:0", True, 3),
        ("add", "cuda:1", True, 3),
        ("launch", "cuda:0", False, 3),
        ("launch", "cuda:1", False, 3),
    ]
    # warming up and counting calls included; an idle device is not among those that are looked at
    assert {name: looks.count(name) for name in set(looks)} == {
        "cuda:0": 4 + 8,
        "cuda:1": 4 + 8,
        "cuda:0+cuda:1": 16,
    }


def test_devices_are_given_work_in_turns_so_that_the_last_does_not_begin_when_the_first_has_ended(
    patient,
):
    log = []
    lanes = [SlowLane(f"cuda:{index}", log) for index in range(2)]
    work = [
        (lane, [task("gemm", "together", lambda name=lane.name: log.append(f"{name} act"))])
        for lane in lanes
    ]
    take_bursts(work, patient)
    acts = ["cuda:0 act", "cuda:1 act"]
    assert log[-8:] == ["cuda:0 gemm", "cuda:1 gemm", *acts, *acts, "cuda:0 stop", "cuda:1 stop"]


def test_a_figure_that_fails_is_a_sentence_and_the_others_go_on():
    def fail():
        raise RuntimeError("CUDA out of memory\nTried to allocate")

    found = take_bursts([(SlowLane("cuda:0"), [task("gemm", act=fail), task("triad")])], 0.0)
    assert [type(each) for each in found] == [PartFigure, Unmeasured]
    assert found[1].link == "gemm on cuda:0"
    assert "out of memory" in found[1].why


def test_on_a_machine_that_is_too_slow_later_bursts_are_left_out(monkeypatch):
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(computing.time, "monotonic", lambda: float(next(now)))
    (found,) = take_bursts([(SlowLane("cpu"), [task("gemm")])], 1.0)
    assert len(found.bursts) == 1


def test_the_cores_are_measured_and_the_number_of_threads_is_as_before(monkeypatch):
    monkeypatch.setattr(computing, "_ON_CPU", ((8, 8, 8), (16, 16, 16), (16, 16, 16)))
    monkeypatch.setattr(computing, "_MIN_ARRAY", 4096)
    monkeypatch.setattr(computing.CpuLane, "repetition", 0.0)
    monkeypatch.setattr(computing_parts, "cache_bytes", lambda: 1024)
    before = torch.get_num_threads()
    machine = computing_parts.ComputingMachine(cores=2, free_bytes=1 << 20, devices=0)
    found = computing_parts.measure(
        machine, 0.0, (Product("float32", (4, 6, 2)), Product("tf32", (4, 6, 2)))
    )
    figures = {each.name: each for each in found if isinstance(each, PartFigure)}
    assert {
        "gemm float32 4x6x2",
        "gemm float32 16x16x16",
        "gemm float32 16x16x16, 1 core",
        "triad",
        "triad, 1 core",
        "copy, 1 core",
        "JPEG decoding, 1 core",
    } <= figures.keys()
    assert figures["gemm float32 4x6x2"].work == 2 * 4 * 6 * 2
    assert all(len(each.cpu_seconds) == len(each.bursts) for each in figures.values())
    (state,) = [each for each in found if isinstance(each, PartState)]
    assert state.device == "cpu"
    assert torch.get_num_threads() == before
