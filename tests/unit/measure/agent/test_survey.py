"""What the job is, learned from one or two of its steps."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from stash.measure.agent.runner import survey


def test_gradients_are_told_in_the_order_in_which_they_become_ready():
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
    clock = survey.GradientClock(list(model.named_parameters()))
    clock.begin()
    for _ in range(2):  # an accumulated step: the last micro-batch counts
        model(torch.randn(5, 4)).sum().backward()
    clock.end()
    rows = clock.rows
    assert [(row["name"], row["bytes"]) for row in rows] == [("1.weight", 24), ("0.weight", 48)]
    assert rows[0]["ready_seconds"] == 0.0
    assert rows[1]["ready_seconds"] > 0.0
    model(torch.randn(5, 4)).sum().backward()
    assert clock.rows == rows  # its hooks are gone


class FakeEvent:
    """A CUDA event of the device that is current: devices' clocks cannot be compared, as PyTorch refuses to."""

    current, seconds = 0, 0.0

    def __init__(self, enable_timing: bool) -> None:
        self.done = not enable_timing

    def record(self) -> None:
        FakeEvent.seconds += 0.001
        self.device, self.at = FakeEvent.current, FakeEvent.seconds

    def synchronize(self) -> None:
        self.done = True

    def elapsed_time(self, other: FakeEvent) -> float:
        if self.device != other.device or not (self.done and other.done):
            raise RuntimeError("CUDA error: invalid resource handle")
        return (other.at - self.at) * 1e3


class FakeParameter:
    """A parameter whose gradient a test makes ready."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def register_post_accumulate_grad_hook(self, hook):
        self.hook = hook
        return SimpleNamespace(remove=lambda: None)

    def numel(self) -> int:
        return 1

    def element_size(self) -> int:
        return 4


def ready_times(monkeypatch, *devices: str) -> list[float | None]:
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    parameters = [(str(number), FakeParameter(device)) for number, device in enumerate(devices)]
    clock = survey.GradientClock(parameters)
    clock.begin()
    for _, parameter in parameters:
        FakeEvent.current = parameter.device.index
        parameter.hook(parameter)
    clock.end()
    rows = clock.rows
    assert [row["name"] for row in rows] == [name for name, _ in parameters]
    return [
        None if row["ready_seconds"] is None else round(row["ready_seconds"], 6) for row in rows
    ]


def test_gradients_of_a_gpu_are_timed_by_its_own_events(monkeypatch):
    assert ready_times(monkeypatch, "cuda:0", "cuda:0", "cuda:0") == [0.0, 0.001, 0.002]


def test_gradients_on_other_devices_than_the_first_have_no_known_time(monkeypatch):
    # a model laid over two GPUs, or with its embedding on the host
    assert ready_times(monkeypatch, "cuda:1", "cuda:0", "cuda:1") == [0.0, None, 0.002]
    assert ready_times(monkeypatch, "cuda:0", "cpu") == [0.0, None]
    assert ready_times(monkeypatch, "cpu", "cuda:0") == [0.0, None]


def test_a_build_without_nccl_or_cuda_tells_what_it_has(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "6.2")
    versions = survey.list_versions()
    assert versions["hip"] == "6.2"
    assert not {"cuda", "nccl"} & versions.keys()


def test_without_ddp_parameters_are_numbered_as_the_optimizer_has_them():
    frozen, trained = nn.Parameter(torch.ones(2), requires_grad=False), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([frozen, trained], lr=0.1)
    assert [name for name, _ in survey.trained_parameters(optimizer)] == ["0"]
    facts = survey.workload_facts(optimizer)
    assert (facts["parameters"], facts["parameter_bytes"], facts["precision"]) == (3, 12, "float32")


def test_parameters_that_were_not_seen_are_unknown():
    facts = survey.workload_facts(SimpleNamespace(param_groups=[]))
    assert (facts["parameters"], facts["parameter_bytes"], facts["precision"]) == (None, None, None)


def test_only_what_is_loaded_has_a_version():
    versions = survey.list_versions()
    assert versions["torch"] == torch.__version__
    assert "deepspeed" not in versions


def test_what_runs_before_the_first_forward_pass_of_a_step_is_timed():
    clock = survey.ForwardLook()
    clock.begin()
    time.sleep(0.02)
    model = nn.Linear(2, 2)
    model(torch.zeros(1, 2))
    time.sleep(0.05)
    model(torch.zeros(1, 2))
    times = clock.end()
    seconds, step = times
    assert seconds >= 0.02
    assert step >= seconds + 0.05


def test_waiting_for_a_core_is_not_taken_for_making_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delayed = iter((1.0, 1.015, 1.025))  # 15 ms before the first forward pass, 10 ms after
    monkeypatch.setattr(survey, "RunQueue", lambda: SimpleNamespace(delay=lambda: next(delayed)))
    seconds = iter((5.0, 5.020, 5.100))  # 20 ms and 80 ms by the clock
    monkeypatch.setattr(survey.time, "perf_counter", lambda: next(seconds))
    clock = survey.ForwardLook()
    clock.begin()
    nn.Linear(2, 2)(torch.zeros(1, 2))
    assert clock.end() == pytest.approx((0.005, 0.075))


def test_where_the_model_got_its_inputs_is_seen_of_the_first_tensors_that_a_part_of_it_takes():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    for device, placed in ((torch.device("cpu"), True), (torch.device("meta"), False)):
        clock = survey.ForwardLook(device)
        clock.begin()
        nn.Identity()(torch.zeros(1, device="meta"))  # an augmentation, no part of the model
        Named()(x=torch.zeros(1, 2))
        clock.end()
        assert clock.placed is placed


def test_a_step_that_calls_no_module_has_no_known_input():
    clock = survey.ForwardLook()
    clock.begin()
    assert clock.end() is None


@pytest.mark.parametrize(
    ("in_forward", "in_backward", "found"), [(1, 0, True), (0, 1, False), (0, 0, False)]
)
def test_what_modules_exchange_in_their_forward_pass_is_kept_apart_from_what_gradients_do(
    monkeypatch: pytest.MonkeyPatch, in_forward: int, in_backward: int, found: bool
) -> None:
    issued = {"0": 7}
    monkeypatch.setattr(survey.private, "sequence_numbers", lambda among: dict(issued))

    class Layer(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            issued["0"] += in_forward
            return inputs

    watch = survey.ForwardLook()
    watch.begin()
    Layer()(torch.ones(1))
    issued["0"] += in_backward
    watch.end()
    assert watch.exchanges is found
