"""What loaders of a node can supply: workers, cores, storage, and the page cache, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.predict.pipeline import (
    HandOver,
    Pipeline,
    Work,
    cached_share,
    core_capacity,
    ideal_hits,
    least_recently_used_hits,
    page_cache_hits,
    step_seconds,
    supply_seconds,
)


def one(value):
    return np.array([value])


WORK = Work(
    make_seconds=one(0.010),
    core_seconds=one(0.010),
    train_core_seconds=one(0.1),
    disk_bytes=1e5,
)
NODE = Pipeline(ranks=2, workers=4, prefetch=2, samples=10, batches=1)


def test_workers_share_the_making_of_batches():
    assert supply_seconds(NODE, WORK).tolist() == [0.025]  # 10 samples of 10 ms by four workers


HANDED = replace(WORK, hand_over=HandOver(batch_seconds=one(0.004), sample_seconds=one(0.0002)))
"""4 ms for a batch's tensors on either side, and 0.2 ms of a worker for a sample's bytes."""


def test_workers_hand_over_what_they_make():
    assert supply_seconds(NODE, HANDED).tolist() == [pytest.approx((0.1 + 0.004 + 0.002) / 4)]
    # training takes over each batch itself, however many workers there are
    assert step_seconds(NODE, HANDED, one(0.2)).tolist() == [pytest.approx(0.204)]
    twice = replace(NODE, batches=2, workers=32)
    assert step_seconds(twice, HANDED, one(0.2)).tolist() == [pytest.approx(0.208)]


def test_nothing_is_handed_over_without_workers():
    alone = replace(NODE, workers=0)
    assert step_seconds(alone, HANDED, one(0.2)).tolist() == [pytest.approx(0.3)]


def test_a_thread_that_pins_takes_batches_over_beside_training():
    pinned = replace(HANDED, hand_over=replace(HANDED.hand_over, beside=True))
    assert step_seconds(NODE, pinned, one(0.2)).tolist() == [pytest.approx(0.2)]
    assert step_seconds(NODE, pinned, one(0.001)).tolist() == [pytest.approx(0.106 / 4)]
    quick = replace(pinned, make_seconds=one(0.0), core_seconds=one(0.0))
    many = replace(NODE, workers=64)
    assert step_seconds(many, quick, one(0.001)).tolist() == [pytest.approx(0.004)]


def test_a_worker_for_batches_that_are_made_sooner_than_handed_over_makes_steps_longer():
    # seen on 2 cores of AMD EPYC: a step of 0.35 ms took 1.15 with a worker
    quick = replace(
        WORK,
        make_seconds=one(1e-5),
        core_seconds=one(1e-5),
        train_core_seconds=one(3.5e-4),
        hand_over=HandOver(batch_seconds=one(8e-4)),
    )
    step, without = (
        step_seconds(replace(NODE, ranks=1, workers=workers), quick, one(3.5e-4)).tolist()
        for workers in (1, 0)
    )
    assert step == [pytest.approx(1.15e-3)]
    assert without == [pytest.approx(0.45e-3)]


def test_cores_bound_what_many_workers_make():
    many = replace(NODE, workers=32, cores=one(4.0))
    assert supply_seconds(many, WORK).tolist() == [0.05]  # 2 ranks · 100 ms on 4 cores


def test_training_needs_cores_too():
    # 2 ranks · (100 ms of training + 100 ms of making) on 2 cores: 200 ms, though neither alone takes so long
    assert step_seconds(replace(NODE, cores=one(2.0)), WORK, one(0.12)).tolist() == [
        pytest.approx(0.2)
    ]


def test_storage_is_shared_by_the_ranks_of_a_node():
    # 1 MB a batch at 20 MB/s is 50 ms, 100 ms for both ranks; its workers alone would take (100 + 50)/4
    cold = replace(NODE, cached=0.0, store=one(20e6))
    assert supply_seconds(cold, WORK).tolist() == [pytest.approx(0.1)]


def test_accumulation_makes_as_many_batches_a_step():
    several = replace(NODE, workers=1, batches=4)
    # four batches of 100 ms
    assert step_seconds(several, WORK, one(0.2)).tolist() == [pytest.approx(0.4)]


def test_a_second_thread_of_a_core_adds_less_than_a_core():
    assert core_capacity(8, 3, 2, 0.25) == pytest.approx(3)
    assert core_capacity(8, 6, 2, 0.25) == pytest.approx(4 + 2 * 0.25)
    assert core_capacity(8, 100, 2, 0.25) == pytest.approx(5)
    assert core_capacity(8, 100, 1, 0.25) == pytest.approx(8)


def test_half_a_data_set_in_a_cache_that_forgets_the_oldest_serves_a_seventh():
    assert float(least_recently_used_hits(one(0.5))[0]) == pytest.approx(0.5 + 0.5 * math.log(0.5))
    assert least_recently_used_hits(np.array([0.0, 1.0])).tolist() == [0, 1]


def test_the_formula_is_what_a_cache_that_forgets_the_oldest_does():
    order, size, share = np.random.default_rng(1), 2000, 0.6
    cache: dict[int, None] = {}
    hits = 0
    for _ in range(6):
        for sample in order.permutation(size).tolist():
            hits += sample in cache
            cache.pop(sample, None)
            cache[sample] = None
            if len(cache) > share * size:
                cache.pop(next(iter(cache)))
    served = hits / (5 * size)  # the first epoch has none
    assert served == pytest.approx(float(least_recently_used_hits(one(share))[0]), abs=0.02)


def test_what_fits_is_what_training_leaves_of_the_memory():
    assert cached_share(10e9, 20e9) == pytest.approx(0.35)
    assert cached_share(100e9, 20e9) == 1.0


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_more_cache_never_serves_less(one_share, other, keeps):
    less, more = sorted((one_share, other))
    served = page_cache_hits(np.array([less, more]), np.array(keeps))
    assert served[0] <= served[1] + 1e-12
    assert served[1] <= float(ideal_hits(one(more))[0]) + 1e-12


@given(
    cached=st.floats(0, 0.99),
    faster=st.floats(1, 100),
    workers=st.integers(1, 16),
    trained=st.floats(0.001, 1),
    variation=st.sampled_from([0.0, 0.4]),
)
@settings(max_examples=60, deadline=None)
def test_faster_storage_and_more_workers_never_make_a_step_longer(
    cached, faster, workers, trained, variation
):
    work = replace(WORK, variation=variation)
    cold = replace(NODE, workers=workers, cached=cached, store=one(10e6))
    step = step_seconds(cold, work, one(trained))[0]
    assert step_seconds(replace(cold, store=one(10e6 * faster)), work, one(trained))[0] <= step * (
        1 + 1e-9
    )
    if (
        not variation
    ):  # of unlike batches a step's mean is simulated, so there is noise of a per cent
        assert step_seconds(replace(cold, workers=workers + 1), work, one(trained))[0] <= step * (
            1 + 1e-9
        )
