"""Collectives confined to a node: real among its ranks, own values in the places of the others."""

from __future__ import annotations

import torch

from stash.measure.agent.wraps.groups import NodePart, within_node

NODE = "the node's group"
RANKS, WORLD = (2, 3), (0, 1, 2, 3)


def confined(name, arguments, answer=None, ranks=RANKS, whole=WORLD):
    """What the real collective was called with, by a rank of the second node; ``answer`` plays that collective."""
    calls = []

    def original(**given):
        calls.append(given)
        return answer(**given) if answer else "work"

    result = within_node(name, original, arguments, NodePart(NODE, ranks), whole)
    return result, calls


def test_a_reduction_runs_over_the_nodes_group_whoever_asked_for_another():
    tensor = torch.ones(2)
    result, (call,) = confined("all_reduce", {"tensor": tensor, "group": None, "async_op": True})
    assert result == "work"
    assert call["tensor"] is tensor
    assert call["group"] is NODE


def test_a_root_on_another_node_is_replaced_by_the_nodes_first_rank():
    _, (call,) = confined("broadcast", {"tensor": torch.ones(1), "src": 0, "group_src": None})
    assert (call["src"], "group_src" in call) == (2, False)
    _, (call,) = confined("broadcast", {"tensor": torch.ones(1), "src": 3})
    assert call["src"] == 3


def test_a_root_may_be_named_by_its_place_in_the_group():
    _, (call,) = confined(
        "broadcast", {"tensor": torch.ones(1), "src": None, "group_src": 1}, whole=(0, 3, 2)
    )
    assert (call["src"], "group_src" in call) == (3, False)


def test_gathered_lists_have_own_values_in_the_places_of_other_nodes():
    places = [torch.zeros(1) for _ in WORLD]

    def gather(tensor_list, tensor, group):
        for rank, place in zip(RANKS, tensor_list, strict=True):
            place.fill_(10.0 * rank)

    confined("all_gather", {"tensor_list": places, "tensor": torch.tensor([7.0])}, gather)
    assert [place.item() for place in places] == [7, 7, 20, 30]


def test_ranks_of_other_nodes_may_give_another_number_of_values():
    places = [torch.full((size,), -1.0) for size in (3, 1, 2, 2)]
    confined(
        "all_gather",
        {"tensor_list": places, "tensor": torch.ones(2)},
        lambda tensor_list, tensor, group: None,
    )
    assert [place.tolist() for place in places] == [[0, 0, 0], [0], [-1, -1], [-1, -1]]


def test_gathered_objects_too():
    places = [None] * len(WORLD)

    def gather(object_list, obj, group):
        object_list[:] = ["two", "three"]

    confined("all_gather_object", {"object_list": places, "obj": "mine"}, gather)
    assert places == ["mine", "mine", "two", "three"]


def test_a_gathered_tensor_is_filled_piece_by_piece():
    output = torch.zeros(8)

    def gather(output_tensor, input_tensor, group):
        output_tensor.copy_(torch.tensor([20.0, 20, 30, 30]))

    confined(
        "all_gather_into_tensor",
        {"output_tensor": output, "input_tensor": torch.tensor([7.0, 7])},
        gather,
    )
    assert output.tolist() == [7, 7, 7, 7, 20, 20, 30, 30]


def test_ranks_that_are_not_neighbours_exchange_as_many_bytes_side_by_side():
    output = torch.zeros(4)
    _, (call,) = confined(
        "all_gather_into_tensor",
        {"output_tensor": output, "input_tensor": torch.tensor([7.0])},
        ranks=(1, 3),
    )
    assert call["output_tensor"].shape == (2,)
    assert output.tolist() == [7] * 4


def test_a_scattered_tensor_keeps_the_nodes_chunks():
    _, (call,) = confined(
        "reduce_scatter_tensor", {"output": torch.zeros(1), "input": torch.arange(4.0)}
    )
    assert call["input"].tolist() == [2, 3]
