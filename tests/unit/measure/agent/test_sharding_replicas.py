"""How many replicas of the model the ranks train, by the samples that they read."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from stash.measure.agent.wraps import sharding
from stash.measure.agent.wraps.sharding import FirstBatch


@pytest.mark.parametrize(
    ("ranks", "replicas"),
    [
        ([FirstBatch(1, None), FirstBatch(2, None), FirstBatch(3, None), FirstBatch(4, None)], 4),
        (
            [FirstBatch(1, None), FirstBatch(1, None), FirstBatch(2, None), FirstBatch(2, None)],
            2,
        ),  # pairs share their layers
        (
            [FirstBatch(1, (0,)), FirstBatch(1, (1,)), FirstBatch(1, (2,)), FirstBatch(1, (3,))],
            4,
        ),  # DDP on the same made-up batches
        ([FirstBatch(1, (0,)), FirstBatch(1, (0,)), FirstBatch(1, (1,)), FirstBatch(1, (1,))], 2),
        (
            [
                FirstBatch(1, None),
                FirstBatch(None, None),
                FirstBatch(2, None),
                FirstBatch(None, None),
            ],
            2,
        ),  # one of each pair reads
        ([FirstBatch(None, None), FirstBatch(None, None)], None),
        # parameters divided among pairs of ranks, as DTensors say: whatever they read, or nothing
        ([FirstBatch(1, None, (0, 1)), FirstBatch(2, None, (0, 1))], 1),
        ([FirstBatch(None, None, (0, 1)), FirstBatch(None, None, (0, 1))], 1),
        ([FirstBatch(n, (n // 2,), (n // 2 * 2, n // 2 * 2 + 1)) for n in range(4)], 2),
        # experts divided among ranks that FSDP takes for replicas
        ([FirstBatch(n, (n,), (0, 1, 2, 3)) for n in range(4)], 4),
        # replicas by a wrapper's word that read nothing which can be compared
        (
            [
                FirstBatch(None, (0,)),
                FirstBatch(None, (0,)),
                FirstBatch(None, (1,)),
                FirstBatch(None, (1,)),
            ],
            2,
        ),
    ],
)
def test_ranks_that_read_the_same_samples_share_a_replica(ranks: list[FirstBatch], replicas):
    assert sharding.count_replicas(ranks) == replicas


def feed(batch) -> SimpleNamespace:
    return SimpleNamespace(ring=SimpleNamespace(batches=[batch]))


def test_batches_are_told_apart_by_what_is_in_them():
    one, other = (
        (torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16), 3),
        (torch.tensor([[1.0, 2.5]]).bfloat16(), 3),
    )
    sums = [
        sharding.describe_first_batch([feed(batch)]).checksum
        for batch in (one, one, other, np.arange(3))
    ]
    assert sums[0] == sums[1]
    assert len(set(sums)) == 3


def test_batches_that_hold_nothing_tell_nothing():
    assert sharding.describe_first_batch([feed("text")]) == FirstBatch(None, None)
    assert sharding.describe_first_batch([]) == FirstBatch(None, None)


class Whole(torch.Tensor):
    """Refuses to be cut, as a batch of MONAI's does whose files differ in what they say of themselves."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__getitem__:
            raise ValueError("no part of it")
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_batch_whose_class_refuses_to_be_cut_is_compared_all_the_same():
    plain, whole = torch.ones(3), torch.ones(3).as_subclass(Whole)
    assert [sharding.describe_first_batch([feed(batch)]) for batch in (plain, whole)] == [
        sharding.describe_first_batch([feed(plain)])
    ] * 2
