"""GPUs that work, that fell off the bus, that may not be asked."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pynvml
import pytest
from recorded_nvml import RecordedNvml
from recorded_tree import changed, known, machine, sources

from stash.measure.host.describe import describe


def test_a_gpu_that_fell_off_the_bus_keeps_the_drivers_words_and_the_others_are_described(tmp_path: Path) -> None:
    host = known(tmp_path, "dell-lost-gpu")
    lost = host.gpus[2]
    assert (lost.fault, lost.bus, lost.name, lost.numa_node) == ("GPU is lost", "0000:af:00.0", "PCI 10de:1db4", 1)
    assert (lost.memory_bytes, lost.pcie, lost.pcie_max, lost.nvlinks) == (None, None, None, None)
    assert [gpu.fault for gpu in host.gpus if gpu.index != 2] == [None, None, None]
    assert [(route.a, route.b) for route in host.routes] == [(0, 1), (0, 3), (1, 3)]


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_gpu_that_may_not_be_asked_or_does_not_say_why_is_listed_too(tmp_path: Path, code: int) -> None:
    host = changed(tmp_path, "dell-lost-gpu", faults={0: code})
    assert [gpu.fault for gpu in host.gpus] == [str(pynvml.NVMLError(code)), None, None, None]


@pytest.mark.parametrize(
    ("question", "code", "fault"),
    [
        ("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
        ("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_NOT_SUPPORTED, None),  # memory shared with the processor
        ("nvmlDeviceGetCurrPcieLinkWidth", pynvml.NVML_ERROR_UNKNOWN, None),
        ("nvmlDeviceGetCurrPcieLinkWidth", pynvml.NVML_ERROR_GPU_IS_LOST, "GPU is lost"),
        ("nvmlDeviceGetPciInfo", pynvml.NVML_ERROR_RESET_REQUIRED, "GPU requires restart"),
    ],
)
def test_only_some_refusals_mean_that_a_gpu_does_not_work_and_what_it_said_before_is_kept(
    tmp_path: Path, question: str, code: int, fault: str | None
) -> None:
    source = sources(tmp_path, machine("aws-p3.16xlarge"))
    answer = getattr(source.nvml, question)

    def refusing(handle: int) -> Any:
        if handle == 1:
            raise pynvml.NVMLError(code)
        return answer(handle)

    setattr(source.nvml, question, refusing)
    host = describe(Path("/"), sources=source)
    assert (host.gpus[1].name, host.gpus[1].fault) == ("Tesla V100-SXM2-16GB", fault)
    assert {gpu.fault for gpu in host.gpus if gpu.index != 1} == {None}
    assert len(host.routes) == (28 if fault is None else 21)


def test_the_stand_in_has_only_functions_of_the_real_bindings_with_their_parameters() -> None:
    played = {
        name: function
        for name, function in inspect.getmembers(RecordedNvml, inspect.isfunction)
        if name.startswith("nvml")
    }
    assert "nvmlDeviceGetPciInfo" in played
    for name, function in played.items():
        real = inspect.signature(getattr(pynvml, name)).parameters.values()
        needed = [parameter.name for parameter in real if parameter.default is parameter.empty]
        assert list(inspect.signature(function).parameters)[1:] == needed, name
