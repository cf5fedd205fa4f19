"""Sharded data parallel training by hand: what two streams expose, of each stage."""

import pytest
from fabric_by_hand import fabric

from stash.predict.timeline import Shard, exposed_sharded

LAYER = Shard(parameter_bytes=4e6, gradient_bytes=8e6, forward_seconds=1.0, backward_seconds=2.0)
TWO = fabric(2, 1, between=1e6)
"""Two ranks at 1 MB/s: gathering 4 MB takes 2 s, scattering 8 MB takes 4 s, all-reducing them 8 s."""


def late(shards, stage):
    return float(exposed_sharded(TWO, shards, stage, "gloo")[0])


def test_stage_one_reduces_behind_the_backward_pass_and_gathers_after_it():
    # Ready at 2 and 4 s, 8 s each: the stream ends at 18, the pass at 4. Then 8 MB of parameters: 4 s.
    assert late((LAYER, LAYER), 1) == pytest.approx(14 + 4)


def test_stage_two_scatters_half_as_long():
    assert late((LAYER, LAYER), 2) == pytest.approx(6 + 4)


def test_stage_three_gathers_the_next_layer_behind_this_one():
    # Gather 0-2; forward 2-3 while the second gather runs 2-4; backward 4-6; scatter 6-10.
    assert late((LAYER,), 3) == pytest.approx(7)


def test_one_rank_shards_nothing():
    found = exposed_sharded(fabric(1, 1), (LAYER,), 3, "nccl")
    assert found.tolist() == [0.0]
