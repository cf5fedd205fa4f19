"""DDP's timeline by hand, against a plain loop over moments, and how long a large one takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.predict.timeline import bucket_readiness, bucket_sizes, exposed_seconds


def late(ready, exchange):
    return float(exposed_seconds(np.array([ready]), np.array([exchange]))[0])


def test_a_stream_that_is_always_behind_exposes_all_but_the_backward_pass():
    # Ready at 0, 1, 2 s and 2 s each: the stream runs from 0 to 6, the pass ends at 2.
    assert late([0.0, 1.0, 2.0], [2.0, 2.0, 2.0]) == pytest.approx(4.0)


def test_a_stream_that_keeps_up_exposes_its_last_bucket():
    assert late([0.0, 1.0, 2.0], [0.5, 0.5, 0.5]) == pytest.approx(0.5)


def test_a_late_start_in_the_middle_counts():
    # The second bucket is ready at 3 and takes 2: the third, ready at 4, starts at 5 and ends at 5.5.
    assert late([0.0, 3.0, 4.0], [0.5, 2.0, 0.5]) == pytest.approx(1.5)


steps = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=12)


@given(steps)
def test_the_closed_form_is_the_recurrence(pairs):
    ready = np.cumsum([gap for gap, _ in pairs])
    finish = 0.0
    for moment, (_, seconds) in zip(ready, pairs, strict=True):
        finish = max(moment, finish) + seconds
    assert late(ready.tolist(), [seconds for _, seconds in pairs]) == pytest.approx(
        finish - ready[-1], abs=1e-9
    )


def test_a_cap_below_the_first_buckets_limit_holds_for_the_first_too():
    assert bucket_sizes([100, 100, 100], cap=150) == (200, 100)


@given(st.lists(st.integers(1, 10**8), min_size=1, max_size=50), st.floats(1, 1e9))
def test_buckets_lose_no_byte(sizes, cap):
    assert sum(bucket_sizes(sizes, cap)) == sum(sizes)


def test_a_bucket_is_ready_with_its_last_gradient():
    found = bucket_readiness([10, 20, 30, 40], [0.0, 1.0, 2.0, 3.0], [30, 70])
    assert found.tolist() == [1.0, 3.0]


def test_the_last_bucket_is_ready_with_the_last_gradient_even_if_sizes_disagree():
    assert bucket_readiness([10, 20], [0.0, 5.0], [12, 15]).tolist() == [5.0, 5.0]
