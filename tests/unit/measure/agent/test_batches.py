"""Batches as values: fresh containers, counted samples, and scripts that write into what they are handed."""

from __future__ import annotations

import types
from collections import namedtuple

import pytest
import torch

from stash.measure.agent.data import batches


def test_a_replayed_batch_has_fresh_containers_around_the_same_tensors():
    ring = batches.Ring()
    ring.offer({"x": torch.zeros(4, 2), "y": [torch.ones(4)], "id": "a"})
    ring.next(False, None)
    ring.judge()
    first, second = ring.next(False, None), ring.next(False, None)
    assert first["x"] is second["x"]
    first.pop("y")
    assert set(second) == {"x", "y", "id"}


def test_named_tuples_and_objects_survive_replay():
    pair = namedtuple("pair", "x y")
    rebuilt = batches.rebuilt(pair(torch.zeros(1), 3), lambda t: t + 1)
    assert isinstance(rebuilt, pair)
    assert rebuilt.x.item() == 1
    thing = types.SimpleNamespace(x=torch.zeros(3), name="n")
    again = batches.rebuilt(thing, lambda t: t + 1)
    assert again is not thing
    assert thing.x.sum() == 0
    assert again.x.sum() == 3


def test_a_script_that_writes_into_its_batch_is_handed_clones_from_then_on():
    ring = batches.Ring(capacity=1)
    ring.offer(torch.ones(3))
    ring.next(False, None).mul_(2)
    ring.judge()
    assert ring.written_to
    ring.next(False, None).mul_(2)
    assert ring.next(False, None).tolist() == [1, 1, 1]


def test_a_script_that_leaves_its_batches_alone_is_handed_the_same_ones():
    ring = batches.Ring(capacity=1)
    ring.offer(torch.ones(3))
    assert ring.next(False, None).sum() == 3
    ring.judge()
    assert not ring.written_to
    assert ring.next(False, None) is ring.next(False, None)


def test_the_ring_keeps_several_batches_within_its_memory():
    ring = batches.Ring(capacity=4, limit_bytes=3 * 400)
    for _ in range(9):
        ring.offer(torch.zeros(100))
    assert len(ring) == 3


@pytest.mark.parametrize(
    ("batch", "count"),
    [((torch.zeros(8, 3), torch.zeros(8)), 8), ({"a": torch.zeros(5)}, 5), ([["a", "b"], [1, 2]], 2), (7, None)],
)
def test_samples_are_counted_along_the_first_dimension(batch, count):
    assert batches.samples(batch) == count
