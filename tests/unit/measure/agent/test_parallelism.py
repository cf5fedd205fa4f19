"""Meshes and schedules are found among what is alive, on the leader."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from stash.measure.agent.runner.parallelism import parallel_facts, stage_layers

NODES = {rank: rank // 4 for rank in range(8)}
"""Two nodes of four."""


@pytest.fixture
def of_eight() -> Any:
    """This process is rank 0 of eight, whose groups are made and exchange nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield
    dist.destroy_process_group()


def test_the_mesh_with_most_axes_is_the_jobs(of_eight: None) -> None:
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    flat = mesh["dp", "tp"]
    assert parallel_facts(NODES)["mesh"] == [
        {"name": "pp", "ranks": 2, "across_nodes": True},
        {"name": "dp", "ranks": 2, "across_nodes": False},
        {"name": "tp", "ranks": 2, "across_nodes": False},
    ]
    del mesh, flat


def test_megatrons_groups_are_asked_of_its_registry(
    of_eight: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses() -> None:
        raise AssertionError("not initialized")

    registry: Any = ModuleType("megatron.core.parallel_state")
    registry.get_data_parallel_group = lambda: dist.new_group([0, 4])
    registry.get_tensor_model_parallel_group = lambda: dist.new_group([0, 1, 2, 3])
    registry.get_pipeline_model_parallel_group = refuses
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", registry)
    assert parallel_facts(NODES)["mesh"] == [
        {"name": "data", "ranks": 2, "across_nodes": True},
        {"name": "tensor", "ranks": 4, "across_nodes": False},
    ]


def test_a_schedule_that_is_alive_is_the_pipelines() -> None:
    from torch.distributed.pipelining import schedules

    made = schedules.Schedule1F1B.__new__(schedules.Schedule1F1B)
    made.__dict__ |= {"_stage": SimpleNamespace(num_stages=4, group_size=4), "_n_microbatches": 16}
    made.pipeline_order = {0: ["0F0", None, "0B0"], 1: ["1F0", "1B0"]}
    assert parallel_facts({0: 0})["pipeline"] == {
        "name": "Schedule1F1B",
        "stages": 4,
        "ranks": 4,
        "microbatches": 16,
        "orders": ["0F0 0B0", "1F0 1B0"],
    }


def test_where_neither_is_nothing_is_said() -> None:
    import gc

    gc.collect()  # what other tests left
    assert parallel_facts({0: 0}) == {"mesh": [], "pipeline": None}


@pytest.mark.usefixtures("of_eight")
def test_layers_of_a_stage_are_its_longest_list_of_modules() -> None:
    from torch import nn
    from torch.distributed.pipelining import PipelineStage

    class Model(nn.Module):
        def __init__(self, layers: int) -> None:
            super().__init__()
            self.head = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
            self.layers = nn.ModuleDict({str(number): nn.Linear(1, 1) for number in range(layers)})

    assert stage_layers() == ()
    late = PipelineStage(Model(5), 8, 16, torch.device("cpu"))
    early = PipelineStage(Model(3), 0, 16, torch.device("cpu"))
    assert stage_layers() == (3, 5)
    none = PipelineStage(nn.Linear(1, 1), 4, 16, torch.device("cpu"))
    assert stage_layers() == ()
    del late, early, none
