"""Replayed batches: which are kept, in which order, where, and scripts that write into them."""

from __future__ import annotations

from types import SimpleNamespace

import containers
import pytest
import torch
from batch_kinds import content, parametrize_kinds, write

from stash.measure.agent.data import batches
from stash.measure.agent.data.ring import Ring


def ring_of(*kept, limit=1 << 20) -> Ring:
    ring = Ring(limit)
    ring.refill(kept)
    return ring


def block(ring: Ring, count, first=0, device=None):
    """What a block of ``count`` batches is handed."""
    ring.begin(count, first, device)
    return [ring.next_batch() for _ in range(count)]


def test_of_the_warm_up_a_few_batches_are_kept_within_the_limit():
    ring, small = Ring(limit_bytes=3 * 400), Ring(limit_bytes=1)
    for number in range(9):
        ring.offer(torch.full((100,), float(number)))
        small.offer(torch.zeros(100))
    assert [float(batch[0]) for batch in ring.batches] == [0, 1, 2]
    assert len(small) == 1


def test_a_block_begins_where_it_is_told_and_goes_round():
    ring = ring_of(*torch.arange(3.0))
    assert [float(batch) for batch in block(ring, 4)] == [0, 1, 2, 0]
    assert [float(batch) for batch in block(ring, 3, first=-1)] == [2, 0, 1]
    assert float(ring.next_batch()) == 2  # one more than was made ready


def test_refilled_the_old_batches_are_gone_unless_there_are_no_new_ones():
    ring = ring_of(*torch.arange(3.0))
    assert ring.refill(torch.arange(5.0, 7.0))
    assert [float(batch) for batch in block(ring, 3)] == [5, 6, 5]
    assert ring.refill(iter(()))
    assert len(ring) == 2


def test_what_does_not_fit_is_told_and_read_all_the_same():
    ring, real = Ring(limit_bytes=800), iter(torch.zeros(5, 100))
    assert not ring.refill(real)
    assert len(ring) == 2
    assert next(real, None) is None
    assert not ring.refill(torch.zeros(2, 1000))
    assert len(ring) == 1  # there is always one


@parametrize_kinds()
def test_a_script_that_writes_into_its_batch_is_handed_clones_from_then_on(batch):
    ring = ring_of(batch)
    for _ in range(2):
        for handed in block(ring, 2):
            assert content(handed) == content(batch)
            write(handed)
    assert content(ring.batches[0]) == content(batch)


@parametrize_kinds()
def test_a_script_that_leaves_its_batches_alone_is_handed_the_same_ones(batch):
    ring = ring_of(batch)
    block(ring, 1)
    first, second = (list(batches.iter_leaves(handed)) for handed in block(ring, 2))
    assert all(a is b for a, b in zip(first, second, strict=True))


def test_a_block_that_hands_out_nothing_decides_nothing():
    ring = ring_of(*torch.ones(8, 3))
    ring.begin(8, 0)
    ring.end_block()
    write(block(ring, 8)[0])
    write(block(ring, 8)[0])
    assert all(content(batch) == content(torch.ones(3)) for batch in ring.batches)
    untouched = ring_of(torch.ones(3))
    untouched.begin(8, 0)
    untouched.end_block()
    block(untouched, 1)
    assert block(untouched, 1)[0] is untouched.batches[0]


def test_asking_for_gradients_of_a_batch_counts_as_writing():
    ring = ring_of(torch.ones(3))
    block(ring, 1)[0].requires_grad_()
    assert not block(ring, 1)[0].requires_grad


def test_clones_are_made_before_the_block(monkeypatch):
    ring = ring_of(*torch.ones(2, 3))
    write(block(ring, 1)[0])
    assert ring.begin(4, 0)
    monkeypatch.setattr(
        batches, "copy_batch", lambda batch: pytest.fail("a batch was cloned in a timed step")
    )
    for _ in range(4):
        write(ring.next_batch())


def test_clones_that_find_no_room_are_made_one_by_one_and_that_is_said():
    ring = ring_of(torch.ones(100), limit=800)
    assert ring.begin(5, 0)  # it is not known yet whether clones are needed
    write(ring.next_batch())
    assert not ring.begin(3, 0)
    for _ in range(3):
        assert content(ring.next_batch()) == content(torch.ones(100))
    assert ring.begin(2, 0)


def test_what_refuses_to_be_copied_is_replayed_as_it_is():
    batch = containers.Stubborn(torch.ones(2))
    assert block(ring_of(batch), 1) == [batch]


@pytest.fixture
def meta(monkeypatch) -> torch.device:
    """An accelerator that copies nothing, with 8,000 of 16,000 bytes free."""
    device = SimpleNamespace(mem_get_info=lambda device: (8_000, 16_000))
    monkeypatch.setattr(torch, "meta", device, raising=False)
    return torch.device("meta")


def test_resident_blocks_get_the_same_batches_on_the_device(meta: torch.device):
    ring = ring_of(*(torch.zeros(length) for length in (1, 2, 3)))
    handed = block(ring, 4, device=meta)
    assert {batch.device.type for batch in handed} == {"meta"}
    assert [len(batch) for batch in handed] == [1, 2, 3, 1]
    assert [(batch.device.type, len(batch)) for batch in block(ring, 2)] == [("cpu", 1), ("cpu", 2)]


def test_no_more_is_kept_than_a_tenth_of_the_devices_free_memory_holds(meta: torch.device):
    ring = Ring()
    assert not ring.refill(torch.zeros(5, 100), meta)
    assert len(ring) == 2
    # they come from the loader on the device already
    assert not ring.refill(torch.zeros(5, 100, device="meta"))
    assert len(ring) == 2
    assert ring.refill(torch.zeros(5, 100))
    assert len(ring) == 5


def test_of_a_device_that_does_not_tell_its_memory_a_single_batch_is_kept():
    ring = Ring()
    assert not ring.refill(torch.zeros(5, 100), torch.device("meta"))
    assert len(ring) == 1
