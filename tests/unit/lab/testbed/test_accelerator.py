"""An emulated device: its times, its gradients, its slow ranks."""

import time

import pytest
import torch

from stash.lab.testbed.accelerator import KINDS, DeviceQueue, EmulatedModel, EmulatedOptimizer, Pace
from stash.lab.testbed.emulation import Emulation, LayerSpec


class Clock:
    """Time that passes only in sleeps, each of which ends late."""

    def __init__(self, late):
        self.now = 100.0
        self.late = late

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds + self.late


def test_late_sleeps_do_not_add_up(monkeypatch):
    clock = Clock(late=0.001)
    monkeypatch.setattr("stash.lab.testbed.accelerator.time", clock)
    queue = DeviceQueue()
    queue.begin()
    for _ in range(50):
        queue.add(0.01)
        queue.wait()
    assert clock.now - 100 == pytest.approx(50 * 0.01 + 0.001)


def test_a_host_that_falls_far_behind_delays_the_device(monkeypatch):
    clock = Clock(late=0.0)
    monkeypatch.setattr("stash.lab.testbed.accelerator.time", clock)
    queue = DeviceQueue()
    queue.begin()
    clock.now += 0.110  # 0.1 more than the queue covers
    queue.add(0.01)
    queue.wait()
    assert clock.now - 100 == pytest.approx(0.110)
    queue.add(0.01)
    queue.wait()
    assert clock.now - 100 == pytest.approx(0.120)


def test_a_step_takes_its_time_without_the_cpu_and_leaves_real_gradients():
    layers = [
        LayerSpec(name=n, bytes=40_000, forward_seconds=0.02, backward_seconds=0.03) for n in "ab"
    ]
    free = LayerSpec(name="free", bytes=0, forward_seconds=0.0, backward_seconds=0.05)
    emulation = Emulation(layers=(*layers, free), optimizer_seconds=0.05)
    model = EmulatedModel(emulation)
    optimizer = EmulatedOptimizer(model.parameters(), model.queue, emulation.optimizer_seconds)
    model(torch.ones(4, 1)).sum().backward()
    began = time.monotonic()
    busy = time.process_time()
    model(torch.ones(4, 1)).sum().backward()
    optimizer.step()
    wall = time.monotonic() - began
    busy = time.process_time() - busy
    assert emulation.compute_seconds == pytest.approx(0.2)
    assert wall >= 0.2
    assert busy < wall / 2
    gradients = [p.grad for p in model.parameters()]
    assert [g.numel() for g in gradients if g is not None] == [10_000, 10_000]
    assert all(float(g.abs().sum()) > 0 for g in gradients if g is not None)


def test_a_slow_rank_and_jitter_change_only_what_they_should():
    layer = LayerSpec(name="a", bytes=4, forward_seconds=1, backward_seconds=1)
    assert Pace(Emulation(layers=(layer,), slow_ranks={1: 1.5}), 0).factor == 1.0
    assert Pace(Emulation(layers=(layer,), slow_ranks={1: 1.5}), 1).factor == 1.5
    pace = Pace(Emulation(layers=(layer,), jitter=0.1), 0)
    seen = []
    for _ in range(500):
        pace.next_step(torch.zeros(1))
        seen.append(pace.factor)
    values = torch.tensor(seen)
    assert float(values.mean()) == pytest.approx(1.0, abs=0.02)
    assert float(values.std()) == pytest.approx(0.1, abs=0.02)


def test_batches_that_differ_take_as_long_as_their_first_sample_says():
    layer = LayerSpec(name="a", bytes=4, forward_seconds=1, backward_seconds=1)
    pace = Pace(Emulation(layers=(layer,), spread=0.5, slow_ranks={0: 2.0}), 0)
    seen = []
    for sample in range(KINDS):
        pace.next_step(torch.tensor([[float(sample)], [0.0]]))
        seen.append(pace.factor)
    assert (seen[0], seen[-1]) == (1.0, 3.0)
    assert sum(seen) / KINDS == pytest.approx(2.0)
