"""Every private name of PyTorch that the agent relies on is there, and stands in one module."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import stash.measure.agent
from stash.measure.agent import private

AGENT = Path(stash.measure.agent.__file__).parent
NOT_OF_TORCH = {"_config", "_exit", "_getframe", "_fields", "_replace"}
"""Underscored names of the standard library."""


@pytest.mark.parametrize(
    ("module", "name"), [(m, n) for m, names in private.NAMES.items() for n in names]
)
def test_the_installed_version_has_the_name(module, name):
    found = import_module(module)
    for part in name.split("."):
        assert hasattr(found, part), f"torch {torch.__version__} has no {module}.{name}"
        found = getattr(found, part)


def test_a_loader_and_its_iterator_have_the_attributes():
    loader = DataLoader(TensorDataset(torch.zeros(8)), batch_size=2, num_workers=1)
    iterator = iter(loader)
    try:
        for owner, names in (
            (loader, "_dataset_kind _index_sampler"),
            (iterator, "_dataset _index_sampler _sampler_iter"),
            (iterator, "_task_info _workers _persistent_workers"),
        ):
            assert [name for name in names.split() if not hasattr(owner, name)] == []
        assert private.count_outstanding(iterator) == 2
        assert len(private.worker_processes(iterator)) == 1
    finally:
        private.shut_down(iterator)


@pytest.mark.parametrize(
    ("how", "length"), [({}, 4), ({"drop_last": True}, 3), ({"batch_size": None}, 7)]
)
def test_an_epoch_of_a_stream_is_as_long_as_its_loader_makes_it(how, length):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(7))

        def __len__(self):
            return 7

    assert (
        private.count_batches(loader := DataLoader(Stream(), **{"batch_size": 2, **how})) == length
    )
    assert len(list(loader)) == length


def test_writing_into_a_tensor_shows():
    tensor = torch.zeros(2)
    before = private.version(tensor)
    tensor.add_(1)
    assert private.version(tensor) > before


def _own_names(tree: ast.AST):
    """Names that a module gives to things of its own."""
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    annotated = (node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign))
    return {
        *(node.attr for node in attributes if isinstance(node.ctx, ast.Store)),
        *(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)),
        *(target.id for target in annotated if isinstance(target, ast.Name)),
    }


def test_no_other_module_of_the_agent_reaches_for_a_private_name():
    modules = [path for path in sorted(AGENT.rglob("*.py")) if path.name != "private.py"]
    reached = []
    for path in modules:
        tree = ast.parse(path.read_text())
        own = _own_names(tree) | NOT_OF_TORCH
        names = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        private_ones = (
            node for node in names if node.attr.startswith("_") and not node.attr.startswith("__")
        )
        reached += [
            f"{path.name}:{node.lineno} {node.attr}"
            for node in private_ones
            if node.attr not in own
        ]
    assert len(modules) > 20
    assert not reached


def test_a_group_that_spans_jobs_is_told_apart_by_where_its_ranks_met(tmp_path):
    # GIVEN the job's own group, one made of it, and one whose ranks met at a store of another job's
    c10d = dist.distributed_c10d
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(tmp_path / "job"), 1), rank=0, world_size=1
    )
    try:
        own = dist.new_group([0])
        meeting = dist.PrefixStore("weights", dist.FileStore(str(tmp_path / "other"), 1))
        other, _ = c10d._new_process_group_helper(
            1,
            0,
            [],
            dist.Backend("gloo"),
            meeting,
            group_name="weights",
            timeout=c10d.default_pg_timeout,
        )
        assert [private.spans_several_jobs(each) for each in (dist.group.WORLD, own, other)] == [
            False,
            False,
            True,
        ]
    finally:
        dist.destroy_process_group()
