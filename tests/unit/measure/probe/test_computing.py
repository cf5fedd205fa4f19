"""What computes, by lanes with a clock of their own; and the cores as they are, in an instant."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from stash.core.records.host import PartFigure, PartState, Unmeasured
from stash.measure.probe import computing, computing_parts
from stash.measure.probe.computing import Task, take_bursts
from stash.measure.probe.probe_orders import Product


@dataclass
class SlowLane:
    """A device whose acts take 4 ms each, and more with every burst, as one that gets warm."""

    name: str
    begun: list[tuple[str, int]] = field(default_factory=list)

    def begin(self, task: Task, calls: int) -> None:
        task.act()
        self.begun.append((task.name, calls))

    def end(self) -> float:
        return 0.004 * self.begun[-1][1]


def task(name: str, work: float = 8.0) -> Task:
    return Task(name, "FLOP/s", work, lambda: None)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds for which each slot is as short as can be, and no burst is left out."""
    monkeypatch.setattr(computing, "_PATIENCE", 1e12)
    return 1e-9


def test_a_figure_is_taken_in_three_bursts_with_the_others_between_them(patient: float):
    lane = SlowLane("cuda:0")
    found = take_bursts([(lane, [task("gemm"), task("triad")])], patient)
    assert all(isinstance(each, PartFigure) for each in found)
    gemm = found[0]
    # an act takes 4 ms, so a repetition of 10 ms at least has two or three of them
    assert (gemm.device, gemm.work, gemm.together) == ("cuda:0", 16.0, False)
    assert gemm.bursts == ((0.008, 0.008),) * 3
    order = [name for name, _ in lane.begun]
    assert [name for at, name in enumerate(order) if at == 0 or order[at - 1] != name] == ["gemm", "triad"] * 3


def test_devices_act_alone_once_and_together_in_every_burst(patient: float):
    lanes = SlowLane("cuda:0"), SlowLane("cuda:1")
    looks: list[int] = []
    found = take_bursts([(lane, [task("gemm")]) for lane in lanes], patient, lambda: looks.append(len(looks)))
    assert [(each.device, each.together, len(each.bursts)) for each in found] == [
        ("cuda:0", False, 1), ("cuda:1", False, 1), ("cuda:0", True, 3), ("cuda:1", True, 3),
    ]  # fmt: skip
    assert len(looks) == 3 * 2 + 5 * 3  # warming up and counting calls included


def test_a_figure_that_fails_is_a_sentence_and_the_others_go_on():
    def fail() -> object:
        raise RuntimeError("CUDA out of memory\nTried to allocate")

    found = take_bursts([(SlowLane("cuda:0"), [Task("gemm", "FLOP/s", 1.0, fail), task("triad")])], 0.0)
    assert [type(each) for each in found] == [PartFigure, Unmeasured]
    assert found[1].link == "gemm on cuda:0"
    assert "out of memory" in found[1].why


def test_on_a_machine_that_is_too_slow_later_bursts_are_left_out(monkeypatch: pytest.MonkeyPatch):
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(computing.time, "monotonic", lambda: float(next(now)))
    (found,) = take_bursts([(SlowLane("cpu"), [task("gemm")])], 1.0)
    assert len(found.bursts) == 1


def test_the_cores_are_measured_and_the_number_of_threads_is_as_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(computing, "_ON_CPU", ((8, 8, 8), (16, 16, 16), (16, 16, 16)))
    monkeypatch.setattr(computing, "_MIN_ARRAY", 4096)
    monkeypatch.setattr(computing, "_REPETITION", 0.0)
    monkeypatch.setattr(computing_parts, "cache_bytes", lambda: 1024)
    before = torch.get_num_threads()
    machine = computing_parts.ComputingMachine(cores=2, free_bytes=1 << 20, devices=0)
    found = computing_parts.measure(machine, 0.0, (Product("float32", (4, 6, 2)), Product("tf32", (4, 6, 2))))
    figures = {each.name: each for each in found if isinstance(each, PartFigure)}
    assert {
        "gemm float32 4x6x2", "gemm float32 16x16x16", "gemm float32 16x16x16, 1 core", "triad", "triad, 1 core",
        "copy of a batch, 1 core", "JPEG decoding, 1 core",
    } <= figures.keys()  # fmt: skip
    assert figures["gemm float32 4x6x2"].work == 2 * 4 * 6 * 2
    (state,) = [each for each in found if isinstance(each, PartState)]
    assert state.device == "cpu"
    assert torch.get_num_threads() == before
