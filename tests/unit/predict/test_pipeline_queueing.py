"""Workers that prefetch and a device that trains: by hand, and against the recursion of PyTorch's own rules."""

import numpy as np
import pytest

from stash.predict.pipeline import hand_outs, step_with_loader


def outs(made, trained, workers, prefetch):
    times = np.array(made, np.float64)[:, None, None]
    return hand_outs(times, np.array([trained]), workers, prefetch)[:, 0].tolist()


def test_one_worker_that_is_slower_than_training_sets_the_pace():
    assert outs([2, 2, 2, 2], 1, workers=1, prefetch=2) == [2, 4, 6, 8]


def test_one_worker_that_is_faster_is_waited_for_once():
    # it runs ahead by two batches and then waits until one is taken
    assert outs([1, 1, 1, 1, 1], 3, workers=1, prefetch=2) == [1, 4, 7, 10, 13]


def test_a_slow_batch_holds_up_those_behind_it_for_they_come_in_order():
    # worker 0 makes 0, 2 and 4, worker 1 makes 1, 3 and 5: batch 2 takes 10 s, and 3 waits for it
    assert outs([1, 1, 10, 1, 1, 1], 1, workers=2, prefetch=2) == [1, 2, 11, 12, 13, 14]


def test_all_ranks_wait_for_the_slowest_batch():
    times = np.array([[[1.0], [3.0]], [[3.0], [1.0]]])
    assert hand_outs(times, np.array([1.0]), 1, 2)[:, 0].tolist() == [3, 4]


def test_without_workers_nothing_overlaps():
    assert step_with_loader(np.array([2.0]), np.array([1.5]), workers=0, prefetch=2).tolist() == [
        3.5
    ]


@pytest.mark.parametrize(
    ("workers", "prefetch", "variation"), [(1, 2, 0.5), (4, 2, 0.5), (8, 1, 0.3)]
)
@pytest.mark.parametrize("load", [0.8, 1.0, 1.3])
def test_batches_of_unlike_times_take_as_long_as_in_the_recursion(
    workers, prefetch, variation, load
):
    drawn = np.random.default_rng(3).gamma(variation**-2, variation**2, (4000, 1, 1))
    made = load * workers * drawn / drawn.mean()
    out = hand_outs(made, np.ones(1), workers, prefetch)[:, 0]
    simulated = (out[-1] - out[400]) / (4000 - 401)
    step = step_with_loader(np.array([1.0]), np.array([load]), workers, prefetch, 1, variation)
    assert step[0] == pytest.approx(simulated, rel=0.03)


def test_a_draw_that_trains_for_less_than_nothing_waits_for_its_workers():
    found = step_with_loader(
        np.array([-0.01, 0.0, 0.1]), np.array([0.02, 0.02, 0.02]), 2, 2, 1, 0.5
    )
    assert np.isfinite(found).all()
    assert found[0] == found[1] >= 0.02
