"""What launches of ``stash fix`` come to."""

from __future__ import annotations

import pytest

from stash.core.measured import Block
from stash.measure.launcher.trials import _added_seconds, _epoch_shares


def block(rank, number, seconds) -> Block:
    return Block(round=number, rung="untouched", rank=rank, steps=4, seconds=4 * seconds)


def test_a_rank_that_waits_longer_for_its_first_batch_is_waited_for_in_the_rest():
    # GIVEN ranks in step, 2.0 s an epoch of ten steps; one waits 1.0 s for its first batch, the other 1.4 s
    blocks = [[block(0, number, 0.10), block(1, number, 0.06)] for number in range(3)]
    beginning = _epoch_shares([evidence(1.0), evidence(1.4)], 2)
    assert beginning == pytest.approx([0.10, 0.14])
    # THEN a step takes 0.2 s with that, and not 0.24
    assert 0.10 + _added_seconds(blocks, beginning) == pytest.approx(0.2)


def evidence(first):
    return {"epochs": [9.0, first, first], "length": 10, "batches_per_step": 1}


def test_without_what_a_rank_recorded_nothing_is_known_of_epochs():
    assert _epoch_shares([evidence(1.0)], 2) is None
    assert (
        _epoch_shares([evidence(1.0), {"epochs": [1.0], "length": 10, "batches_per_step": 1}], 2)
        is None
    )
