"""Batches as values: fresh containers of every class, measured in bytes, on another device."""

from __future__ import annotations

import containers
import numpy as np
import pytest
import torch
from batch_kinds import KINDS, OWN_MEMORY, content, parametrize_kinds, write

from stash.measure.agent.data import batches


@parametrize_kinds()
def test_a_copy_is_equal_of_the_same_class_and_independent(batch):
    before = content(batch)
    assert before
    again = batches.copy_batch(batch)
    assert type(again) is type(batch)
    assert content(again) == before
    write(again)
    assert content(again) != before
    assert content(batch) == before


@parametrize_kinds("tensor", "array", *OWN_MEMORY)
def test_fresh_containers_are_around_the_same_tensors(batch):
    again = batches.copy_containers(batch)
    assert again is not batch
    assert type(again) is type(batch)
    assert [id(leaf) for leaf in batches.iter_leaves(again)] == [
        id(leaf) for leaf in batches.iter_leaves(batch)
    ]


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("tensor", 12),
        ("array", 48),
        ("graphs", 12 + 40),
        ("packed", 20 + 24),
        ("sized", 24),
        ("sparse", 2 * 4 * 8 + 4 * 4),
        ("jagged", 6 * 3 * 4 + 3 * 8),
    ],
)
def test_bytes_are_those_of_all_that_is_inside(kind, size):
    assert batches.count_bytes(KINDS[kind]) == size


def test_a_tensor_that_is_there_twice_counts_once():
    tensor = torch.ones(4)
    assert batches.count_bytes([tensor, {"again": tensor}]) == 16


@parametrize_kinds("array", "nested")
def test_a_batch_is_moved_by_its_own_method_and_the_original_stays(batch):
    there = batches.move_batch(batch, "meta")
    assert type(there) is type(batch)
    assert {"meta"} <= {tensor.device.type for tensor in batches.iter_tensors(there)}
    assert {tensor.device.type for tensor in batches.iter_tensors(batch)} == {"cpu"}
    assert batches.why_immovable(batch, "meta") is None


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (["a", "b"], "no tensors were found in the loader's batches (list)"),
        (
            (np.ones(3), torch.ones(3)),
            "batches (tuple) hold numpy arrays, which the script itself makes into tensors",
        ),
        (
            containers.Stubborn(torch.ones(2)),
            "batches (Stubborn) cannot be put on meta: TypeError: not to be copied",
        ),
    ],
)
def test_what_cannot_be_moved_says_why(batch, why):
    assert batches.why_immovable(batch, "meta") == why


def test_tokens_are_known_by_their_key_and_their_mask_by_its_shape():
    ids, mask = torch.ones(2, 8, dtype=torch.int64), torch.tensor([[1] * 8, [1] * 4 + [0] * 4])
    assert batches.count_tokens({"input_ids": ids, "labels": ids}) == (16, None)
    assert batches.count_tokens({"input_ids": ids, "attention_mask": mask}) == (16, 12)
    assert batches.count_tokens({"input_ids": ids, "attention_mask": torch.ones(2, 1, 8, 8)}) == (
        16,
        None,
    )
    assert batches.count_tokens({"tokens": ids}) == (16, None)
    # NaN tells nothing
    masked = {"input_ids": ids, "attention_mask": mask / 0 * 0}
    assert batches.count_tokens(masked) == (16, None)
    assert batches.count_tokens({"input_ids": ids / 0 * 0, "attention_mask": mask}) is None


def test_a_pair_of_equal_matrices_of_whole_numbers_is_inputs_and_targets():
    ids = torch.ones(2, 8, dtype=torch.int64)
    assert batches.count_tokens([ids, ids]) == (16, None)
    assert batches.count_tokens((ids, ids[:, :1])) is None
    assert batches.count_tokens((ids.float(), ids)) is None
    assert batches.count_tokens((torch.ones(4, 3, 8, 8), torch.ones(4, dtype=torch.int64))) is None
    assert batches.count_tokens({"input_ids": ids.float()}) is None
    assert batches.count_tokens({"pixel_values": ids}) is None
