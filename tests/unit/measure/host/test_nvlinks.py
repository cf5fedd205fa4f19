"""Lanes between GPUs, as drivers and switches tell of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_tree import changed, known

from stash.core.records.host import Host, Route


def route(host: Host, a: int, b: int) -> Route:
    return next(route for route in host.routes if (route.a, route.b) == (a, b))


def test_eight_v100_are_a_mesh_of_one_and_two_lanes(tmp_path: Path) -> None:
    host = known(tmp_path, "aws-p3.16xlarge")
    assert [gpu.index for gpu in host.gpus] == list(range(8))
    first = host.gpus[0]
    assert (first.name, first.memory_bytes, first.driver) == ("Tesla V100-SXM2-16GB", 16945512448, "450.80.02")
    assert (first.bus, first.numa_node, first.pcie, first.pcie_max) == ("0000:00:17.0", 0, "gen3 x16", "gen3 x16")
    assert {gpu.nvlinks for gpu in host.gpus} == {6}
    assert first.nvlink_bytes_per_second == pytest.approx(6 * 25.781e9)
    assert len(host.routes) == 28
    assert route(host, 0, 3) == Route(a=0, b=3, kind="node", nvlinks=2)
    assert route(host, 0, 4) == Route(a=0, b=4, kind="system", nvlinks=2)
    assert route(host, 0, 5) == Route(a=0, b=5, kind="system", nvlinks=0)
    assert sum(route.nvlinks or 0 for route in host.routes) == 8 * 6 / 2  # every lane has two ends
    assert host.topology is not None
    assert host.topology.startswith("0-1 node + 1 NVLink, 0-2 node + 1 NVLink, 0-3 node + 2 NVLink")


def test_sixteen_k80_share_pci_express_and_have_no_nvlink(tmp_path: Path) -> None:
    host = known(tmp_path, "aws-p2.16xlarge")
    assert len(host.gpus) == 16
    assert len(host.routes) == 120
    assert {gpu.nvlinks for gpu in host.gpus} == {None}
    assert {route.kind for route in host.routes} == {"host bridge", "system"}
    assert (route(host, 0, 7).kind, route(host, 7, 8).kind) == ("host bridge", "system")


def test_lanes_to_switches_that_a_virtual_machine_does_not_see_lead_nobody_knows_where(tmp_path: Path) -> None:
    host = known(tmp_path, "gcp-a2-highgpu-8g")
    assert {gpu.nvlinks for gpu in host.gpus} == {12}
    assert {gpu.nvlink_bytes_per_second for gpu in host.gpus} == {300e9}
    assert {route.nvlinks for route in host.routes} == {None}
    assert (host.topology or "").startswith("0-1 host bridge + NVLink switch, ")


def test_lanes_to_a_switch_that_is_seen_lead_to_no_gpu_directly(tmp_path: Path) -> None:
    host = changed(tmp_path, "gcp-a2-highgpu-8g", switch={"lanes": 12, "bus": "00000000:C4:00.0"})
    assert {gpu.nvlinks for gpu in host.gpus} == {12}
    assert {route.nvlinks for route in host.routes} == {0}
    assert (host.topology or "").startswith("0-1 host bridge + NVLink switch, ")


def test_lanes_that_are_down_are_not_counted(tmp_path: Path) -> None:
    host = changed(tmp_path, "aws-p3.16xlarge", down={0: [0], 1: [0]})
    assert [gpu.nvlinks for gpu in host.gpus[:3]] == [5, 5, 6]
    assert (route(host, 0, 1).nvlinks, route(host, 0, 2).nvlinks) == (0, 1)
    assert host.gpus[0].nvlink_bytes_per_second == pytest.approx(5 * 25.781e9)


@pytest.mark.parametrize(("version", "speed"), [(2, 6 * 25e9), (1, 6 * 20e9), (7, 6 * 50e9), (5, None), (99, None)])
def test_a_driver_that_states_no_speed_states_a_version_that_may_imply_one(
    tmp_path: Path, version: int, speed: float | None
) -> None:
    host = changed(tmp_path, "aws-p3.16xlarge", nvlink_megabytes_per_second=None, nvlink_version=version)
    assert host.gpus[0].nvlink_bytes_per_second == speed
