"""What a collective of a group of one answers, in the shapes that its caller expects."""

from __future__ import annotations

import pytest
import torch

from stash.measure.agent.wraps.groups import answer_alone


def of_four(name, **arguments):
    """By rank 2 of four."""
    return answer_alone(name, arguments, rank=2, size=4)


def test_a_synchronous_call_returns_nothing_and_an_asynchronous_one_its_work():
    assert of_four("all_reduce", tensor=torch.ones(1)) is None
    work = of_four("all_reduce", tensor=(tensor := torch.ones(1)), async_op=True)
    assert (work.wait(), work.is_completed(), work.is_success()) == (True, True, True)
    assert work.result() is tensor
    # DistributedDataParallel's reducer, in a Join, asks for one
    assert isinstance(work, torch.distributed.Work)


def test_point_to_point_is_over_at_once():
    assert of_four("isend", tensor=torch.ones(1)).wait()
    assert of_four("batch_isend_irecv", p2p_op_list=["op"]) == []


def test_lists_are_filled_with_what_this_rank_gives():
    outputs = [torch.zeros(2) for _ in range(4)]
    of_four("all_gather", tensor_list=outputs, tensor=torch.tensor([1.0, 2.0]))
    assert torch.stack(outputs).tolist() == [[1, 2]] * 4
    objects = [None] * 4
    of_four("gather_object", obj="mine", object_gather_list=objects)
    assert objects == ["mine"] * 4


def test_a_gather_may_be_uneven():
    outputs = [torch.full((rows, 2), -1.0) for rows in (1, 3, 2, 2)]
    of_four("all_gather", tensor_list=outputs, tensor=torch.ones(2, 2))
    assert [output.unique().tolist() for output in outputs] == [[0], [0], [1], [1]]


def test_scatters_keep_this_ranks_own_part():
    output = torch.zeros(1)
    of_four(
        "reduce_scatter", output=output, input_list=[torch.tensor([float(n)]) for n in range(4)]
    )
    assert output.item() == 2
    received = [None]
    of_four(
        "scatter_object_list",
        scatter_object_output_list=received,
        scatter_object_input_list=list("abcd"),
    )
    assert received == ["c"]


def test_exchanges_hand_back_what_was_given_where_shapes_agree():
    outputs = [torch.zeros(1), torch.full((2,), -1.0)]  # whatever was in memory
    of_four(
        "all_to_all", output_tensor_list=outputs, input_tensor_list=[torch.ones(1), torch.ones(3)]
    )
    assert [output.tolist() for output in outputs] == [[1], [0, 0]]
    flat = torch.zeros(4)
    of_four("all_to_all_single", output=flat, input=torch.arange(4.0))
    assert flat.tolist() == [0, 1, 2, 3]
    indices = torch.full((3,), 1 << 40)
    of_four("all_to_all_single", output=indices, input=torch.arange(2))
    assert indices.tolist() == [0, 0, 0]


@pytest.mark.parametrize("names", [("output", "input"), ("output_tensor", "input_tensor")])
def test_old_and_new_names_of_arguments_are_known(names):
    output, given = torch.zeros(8), torch.ones(2)
    of_four("all_gather_into_tensor", **dict(zip(names, (output, given), strict=True)))
    assert output.tolist() == [1] * 8
