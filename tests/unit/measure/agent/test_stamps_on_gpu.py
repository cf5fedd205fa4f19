"""What needs a GPU to be shown: queues, pinned memory, copies. Run by ``bench/gpu.py`` where there is one."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from stash.measure.agent.data.batches import why_immovable
from stash.measure.agent.data.ring import Ring
from stash.measure.agent.runner import survey
from stash.measure.agent.runner.stamps import Clock
from stash.measure.linux import counters
from stash.measure.probe import copies

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
CYCLES = 200_000_000


def test_the_clock_waits_for_what_was_submitted_and_looks_without_waiting() -> None:
    clock = Clock()
    clock.watch([torch.device("cuda", 0)])
    began = clock.synchronize()
    torch.cuda._sleep(CYCLES)
    submitted = clock.now() - began
    assert clock.synchronize() - began > 5 * submitted


def test_a_job_whose_parameters_are_on_the_host_waits_for_the_current_device() -> None:
    torch.zeros(1, device="cuda")
    clock = Clock()
    clock.watch([torch.device("cpu")])
    assert clock.device.type == "cuda"


def test_gradients_become_ready_on_the_devices_clock() -> None:
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512)).cuda()
    clock = survey.GradientClock(list(model.named_parameters()))
    clock.begin()
    model(torch.randn(64, 512, device="cuda")).sum().backward()
    clock.end()
    times = [row["ready_seconds"] for row in clock.rows]
    assert times[0] == 0.0
    assert times == sorted(times)


def test_pinned_batches_are_kept_in_pinned_memory_and_others_are_not() -> None:
    for pinned in (True, False):
        batch = torch.zeros(8, 3)
        ring = Ring()
        ring.offer(batch.pin_memory() if pinned else batch)
        ring.begin(1, 0)
        assert ring.next_batch().is_pinned() is pinned


def test_channels_last_batches_stay_so_wherever_they_are_kept() -> None:
    batch = torch.zeros(2, 3, 8, 8).contiguous(memory_format=torch.channels_last).pin_memory()
    ring = Ring()
    ring.offer(batch)
    for device in (None, torch.device("cuda:0")):
        ring.begin(1, 0, device)
        handed = ring.next_batch()
        assert handed.is_contiguous(memory_format=torch.channels_last)
        assert handed.is_cuda is (device is not None)


def test_batches_that_can_be_on_the_device_have_no_obstacle() -> None:
    assert why_immovable({"pixels": torch.zeros(2)}, "cuda:0") is None


def test_the_gpu_that_works_is_the_one_whose_utilisation_is_read() -> None:
    clock = Clock()
    clock.watch([torch.device("cuda", 0)])
    until = time.monotonic() + 2
    while time.monotonic() < until:
        torch.cuda._sleep(CYCLES)
        torch.cuda.synchronize()
    assert (counters.gpu_utilisation(clock.gpu) or 0) > 0.5


def test_copies_between_host_and_device_are_measured_both_ways() -> None:
    found = copies.measure(2.0, 1, 1 << 30, 1)
    assert {("host", "cuda:0"), ("cuda:0", "host")} <= {
        (c.source, c.target) for c in found if hasattr(c, "source")
    }
