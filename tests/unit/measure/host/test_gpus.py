"""GPUs, their links and their places on the bus, from recorded machines."""

import inspect
from pathlib import Path

import pynvml
import pytest
from recorded_nvml import RecordedNvml
from recorded_tree import change_driver, known, machine, sources

from stash.core.records.host import Route
from stash.measure.host.describe import describe


def test_a_gpu_that_fell_off_the_bus_keeps_the_drivers_words_and_the_others_are_described(tmp_path):
    host = known(tmp_path, "dell-lost-gpu")
    lost = host.gpus[2]
    assert (lost.fault, lost.bus, lost.name, lost.numa_node) == (
        "GPU is lost",
        None,
        "unknown",
        None,
    )
    assert (lost.memory_bytes, lost.pcie, lost.pcie_max, lost.nvlinks) == (None, None, None, None)
    assert [gpu.fault for gpu in host.gpus if gpu.index != 2] == [None, None, None]
    assert [(route.a, route.b) for route in host.routes] == [(0, 1), (0, 3), (1, 3)]


@pytest.mark.parametrize(
    ("question", "code", "fault"),
    [
        ("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
        (
            "nvmlDeviceGetMemoryInfo",
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            None,
        ),  # memory shared with the processor
        (
            "nvmlDeviceGetMemoryInfo",
            pynvml.NVML_ERROR_NO_PERMISSION,
            None,
        ),  # a container with a slice of it
        ("nvmlDeviceGetCurrPcieLinkWidth", pynvml.NVML_ERROR_UNKNOWN, None),
        ("nvmlDeviceGetCurrPcieLinkWidth", pynvml.NVML_ERROR_GPU_IS_LOST, "GPU is lost"),
        ("nvmlDeviceGetPciInfo", pynvml.NVML_ERROR_RESET_REQUIRED, "GPU requires restart"),
    ],
)
def test_only_some_refusals_mean_that_a_gpu_does_not_work_and_what_it_said_before_is_kept(
    tmp_path, question, code, fault
):
    source = sources(tmp_path, machine("aws-p3.16xlarge"))
    answer = getattr(source.nvml, question)

    def refusing(handle):
        if handle == 1:
            raise pynvml.NVMLError(code)
        return answer(handle)

    setattr(source.nvml, question, refusing)
    host = describe(Path("/"), sources=source)
    assert (host.gpus[1].name, host.gpus[1].fault) == ("Tesla V100-SXM2-16GB", fault)
    assert {gpu.fault for gpu in host.gpus if gpu.index != 1} == {None}
    assert len(host.routes) == (28 if fault is None else 21)


def test_the_stand_in_has_only_functions_of_the_real_bindings_with_their_parameters():
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


def route(host, a, b):
    return next(route for route in host.routes if (route.a, route.b) == (a, b))


def test_eight_v100_are_a_mesh_of_one_and_two_lanes(tmp_path):
    host = known(tmp_path, "aws-p3.16xlarge")
    assert [gpu.index for gpu in host.gpus] == list(range(8))
    first = host.gpus[0]
    assert (first.name, first.memory_bytes, first.driver) == (
        "Tesla V100-SXM2-16GB",
        16945512448,
        "450.80.02",
    )
    assert (first.bus, first.numa_node, first.pcie, first.pcie_max) == (
        "0000:00:17.0",
        0,
        "gen3 x16",
        "gen3 x16",
    )
    assert {gpu.nvlinks for gpu in host.gpus} == {6}
    assert first.nvlink_bytes_per_second == pytest.approx(6 * 25.781e9)
    assert len(host.routes) == 28
    assert route(host, 0, 3) == Route(a=0, b=3, kind="node", nvlinks=2)
    assert route(host, 0, 4) == Route(a=0, b=4, kind="system", nvlinks=2)
    assert route(host, 0, 5) == Route(a=0, b=5, kind="system", nvlinks=0)
    assert sum(route.nvlinks or 0 for route in host.routes) == 8 * 6 / 2  # every lane has two ends
    assert host.topology.startswith("0-1 node + 1 NVLink, 0-2 node + 1 NVLink, 0-3 node + 2 NVLink")


def test_lanes_to_switches_that_a_virtual_machine_does_not_see_lead_to_unknown_ends(tmp_path):
    host = known(tmp_path, "gcp-a2-highgpu-8g")
    assert {gpu.nvlinks for gpu in host.gpus} == {12}
    assert {gpu.nvlink_bytes_per_second for gpu in host.gpus} == {300e9}
    assert {route.nvlinks for route in host.routes} == {None}
    assert (host.topology or "").startswith("0-1 host bridge + NVLink switch, ")


def test_lanes_to_a_switch_that_is_seen_lead_to_no_gpu_directly(tmp_path):
    host = change_driver(
        tmp_path, "gcp-a2-highgpu-8g", switch={"lanes": 12, "bus": "00000000:C4:00.0"}
    )
    assert {gpu.nvlinks for gpu in host.gpus} == {12}
    assert {route.nvlinks for route in host.routes} == {0}
    assert (host.topology or "").startswith("0-1 host bridge + NVLink switch, ")


def test_lanes_that_are_down_are_not_counted(tmp_path):
    host = change_driver(tmp_path, "aws-p3.16xlarge", down={0: [0], 1: [0]})
    assert [gpu.nvlinks for gpu in host.gpus[:3]] == [5, 5, 6]
    assert (route(host, 0, 1).nvlinks, route(host, 0, 2).nvlinks) == (0, 1)
    assert host.gpus[0].nvlink_bytes_per_second == pytest.approx(5 * 25.781e9)


def test_a_driver_that_states_no_speed_leaves_it_unknown(tmp_path):
    host = change_driver(tmp_path, "aws-p3.16xlarge", nvlink_megabytes_per_second=None)
    assert host.gpus[0].nvlink_bytes_per_second is None


def test_sysfs_states_the_pci_link_where_the_driver_does_not_and_a_slot_limits_its_card(tmp_path):
    gpus = known(tmp_path, "dell-lost-gpu").gpus
    assert (gpus[0].pcie, gpus[0].pcie_max) == ("gen1 x8", "gen3 x8")
    assert (gpus[3].pcie, gpus[3].pcie_max) == ("gen3 x16", "gen3 x16")


def test_a_link_trained_down_differs_from_the_most_it_can_do(tmp_path):
    gpu = known(tmp_path, "aws-g4dn.xlarge").gpus[0]
    assert (gpu.pcie, gpu.pcie_max, gpu.numa_node, gpu.nvlinks) == (
        "gen1 x8",
        "gen3 x16",
        None,
        None,
    )
