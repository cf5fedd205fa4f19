"""What a stack shows: modules that train and those that do not, and which files are the script's own."""

from __future__ import annotations

import pytest
import torch

import stash.core.jsonl
from stash.measure.agent.runner import thread_stack
from stash.measure.agent.runner.thread_stack import CalledModules


def test_an_average_of_a_model_that_trains_is_no_model_that_stays() -> None:
    """Its parameters want no gradients, and change; ``.data`` hides that from their versions."""
    called = CalledModules()
    teacher = torch.nn.Linear(1, 1).requires_grad_(False)
    assert called.is_trained(teacher) is False
    assert called.is_trained(teacher) is False
    for parameter in teacher.parameters():
        parameter.data.mul_(0.5)
    assert called.is_trained(teacher) is True
    assert called.is_trained(torch.nn.ReLU()) is None


def test_a_shard_is_not_compared_which_would_wait_for_other_ranks() -> None:
    class Shard(torch.nn.Parameter):
        pass

    sharded = torch.nn.Linear(1, 1, bias=False)
    sharded.weight = Shard(torch.zeros(1, 1), requires_grad=False)
    assert CalledModules().is_trained(sharded) is True


@pytest.mark.parametrize(
    ("file", "is_own"),
    [("/home/me/train.py", True), (stash.core.jsonl.__file__, False), (torch.__file__, False)],
)
def test_lines_of_stash_and_of_libraries_are_not_the_script_s(file: str, is_own: bool) -> None:
    assert thread_stack.is_own(file) is is_own
