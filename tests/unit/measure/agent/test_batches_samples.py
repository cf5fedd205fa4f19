"""Samples of a batch: what its parts agree on, and unknown where they do not."""

from __future__ import annotations

import containers
import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from stash.measure.agent.data.batches import count_samples, count_tokens


def pictures(count) -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros(3, 8, 8) for _ in range(count))


def boxes(count) -> dict[str, torch.Tensor]:
    return {"boxes": torch.zeros(count, 4), "labels": torch.zeros(count)}


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (torch.zeros(8, 3), 8),
        ((torch.zeros(8, 3), torch.zeros(8)), 8),
        ([torch.zeros(4, 3, 8, 8), torch.zeros(4)], 4),
        ({"a": torch.zeros(5), "scale": torch.zeros(1), "epoch": torch.tensor(3)}, 5),
        ((np.zeros((6, 2)), np.zeros(6)), 6),
        ([["a", "b"], [1, 2]], 2),
        (["a", "b", "c"], 3),
        ((torch.zeros(3, 2), ["a", "b", "c"]), 3),
        (containers.Pair(torch.zeros(7), torch.zeros(7)), 7),
        (containers.Slotted(torch.zeros(7, 2), torch.zeros(7)), 7),
    ],
)
def test_fields_that_agree_tell(batch, count):
    assert count_samples(batch) == count


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (containers.Graphs(3, x=torch.zeros(21, 4), edges=torch.zeros(2, 60)), 3),
        (containers.Sized({"x": torch.zeros(6, 2)}, (6,)), 6),
        (pack_sequence([torch.zeros(5), torch.zeros(3)]), 2),
        (torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged), 2),
        (
            {
                "input_ids": torch.zeros(4, 9),
                "pixel_values": torch.zeros(4, 3),
                "image_sizes": torch.zeros(7),
            },
            4,
        ),
        (containers.Encoding(input_ids=torch.zeros(4, 9), token_count=torch.zeros(30)), 4),
    ],
)
def test_containers_that_count_themselves_are_asked(batch, count):
    assert count_samples(batch) == count


def test_lists_of_samples_are_as_long_as_they_are_long():
    # as torchvision's detection scripts collate, and as detectron does
    assert count_samples((pictures(5), tuple(boxes(n) for n in (2, 4, 1, 3, 2)))) == 5
    found = [
        {
            "image": picture,
            "file": "name",
            "instances": containers.Instances(boxes=torch.zeros(n, 4)),
        }
        for n, picture in zip((2, 4, 1, 3, 2, 9), pictures(6), strict=True)
    ]
    assert count_samples(found) == 6


@pytest.mark.parametrize(
    "batch",
    [
        7,
        None,
        "text",
        [],
        torch.tensor(1.0),
        (torch.zeros(35, 20), torch.zeros(700)),
        {"tokens": torch.zeros(900), "offsets": torch.zeros(33)},
        list(pictures(8)),
        [{"a": torch.zeros(4)}, {"b": torch.zeros(4)}],
    ],
    ids=repr,
)
def test_what_is_ambiguous_is_unknown(batch):
    assert count_samples(batch) is None


def test_a_property_that_fails_is_no_answer():
    class Odd:
        def __init__(self):
            self.x = torch.zeros(5)

        @property
        def num_graphs(self):
            raise ValueError("not yet")

    assert count_samples(Odd()) == 5


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_without_a_shape_are_counted():
    # GIVEN the usual layout of nested tensors, which refuse to tell a shape
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    assert count_samples(nested) == 2
    assert count_samples([nested, torch.zeros(2)]) == 2
    words = torch.nested.nested_tensor([torch.ones(2), torch.ones(4)], dtype=torch.int64)
    assert count_tokens([words, words]) is None
