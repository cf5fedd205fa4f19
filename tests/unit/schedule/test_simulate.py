"""Courses by hand, and what has to hold of every one: GPU-seconds conserved, work done, the same again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import cluster, job, matrix

from stash.core.errors import UserError
from stash.schedule.allocation import POLICIES
from stash.schedule.metrics import bounds, figures
from stash.schedule.placement import FreeGpus
from stash.schedule.simulate import simulate

ONE = matrix({("m", 1, "V"): 1.0}, restart=5.0)
TWENTY = 20.0


def test_first_come_first_served_by_hand():
    jobs = [job("a", 100), job("b", 50, submit=10)]
    found = simulate(jobs, cluster(V=(1,)), ONE, POLICIES["fifo-aware"], TWENTY)
    assert found.finish.tolist() == [100, 150]
    assert found.held.tolist() == [100, 50]
    shown = figures(found, cluster(V=(1,)), ONE)
    assert (shown.jct_mean_seconds, shown.queued_mean_seconds, shown.makespan_seconds) == (
        120,
        45,
        150,
    )
    assert (shown.busy, shown.restarts) == (1.0, 0)


def test_a_preempted_job_pays_its_restart():
    # At 20 b has less left (50 against 80) and takes the GPU; a comes back at 70, is ready at 75, and ends at 155.
    jobs = [job("a", 100), job("b", 50, submit=10)]
    found = simulate(jobs, cluster(V=(1,)), ONE, POLICIES["srtf"], TWENTY)
    assert found.finish.tolist() == [155, 70]
    assert found.lost["moves"].sum() == 5
    assert found.productive.sum() == 150


def test_jobs_that_take_turns_faster_than_they_restart_end_with_a_sentence():
    slow = matrix({("m", 1, "V"): 1.0}, restart=50.0)
    jobs = [job("a", 100), job("b", 100)]
    with pytest.raises(UserError, match=r"max-min has not finished after .* it starves a job"):
        simulate(jobs, cluster(V=(1,)), slow, POLICIES["max-min"], TWENTY)


def test_a_finish_frees_its_gpus_at_once():
    jobs = [job("a", 30), job("b", 30)]
    exact = simulate(jobs, cluster(V=(1,)), ONE, POLICIES["max-min"], 100.0)
    assert exact.finish.tolist() == [30, 60]


def test_a_spread_gang_is_as_slow_as_measured_and_the_loss_is_spreading():
    rates = matrix({("m", 1, "V"): 1.0, ("g", 4, "V"): 2.0}, {("g", 4, "V", 2): 0.5})
    held = [
        job("a", 1000),
        job("b", 1000, submit=0.0),
        job("gang", 100, gpus=4, submit=1.0, model="g"),
    ]
    machines = cluster(V=(3, 3))
    found = simulate(held, machines, rates, POLICIES["fifo-aware"], 10.0)
    # Both single jobs fill one node's; the gang's fewest nodes are two here anyway, so nothing is lost.
    assert found.lost["spreading"].sum() == 0
    gangs = [job("first", 100, 4, model="g"), job("second", 100, 4, submit=1.0, model="g")]
    small = simulate(gangs, cluster(V=(4, 2, 2)), rates, POLICIES["fifo-aware"], 10.0)
    assert small.finish.tolist() == pytest.approx([100 / 2, 1 + 100 / 0.5])
    assert small.lost["spreading"].sum() == pytest.approx(4 * 200 * 0.75)


def test_where_a_gang_goes():
    free = FreeGpus(cluster(V=(4, 4, 2)))
    assert free.find(0, 2) == ((2, 2),)  # the fullest that fits
    free.allocate(((0, 3),))
    assert free.find(0, 1) == ((0, 1),)
    assert free.find(0, 6) == ((1, 4), (2, 2))
    assert free.find(0, 8) is None
    free.release(((0, 3),))
    assert free.left == [10]


@st.composite
def loads(draw):
    one = st.tuples(
        st.floats(1, 5000), st.sampled_from([1, 2, 4]), st.floats(0, 2000), st.sampled_from("ab")
    )
    return draw(st.lists(one, min_size=1, max_size=12))


@settings(max_examples=4, deadline=None)
@given(loads())
def test_gpu_seconds_are_conserved_and_all_work_is_done(
    load,
):
    machines = cluster(V=(4, 2), K=(2, 2, 1))
    sizes = {
        ("a", gpus, kind): gpus * speed
        for gpus in (1, 2, 4)
        for kind, speed in (("V", 2.0), ("K", 0.7))
    }
    sizes |= {
        ("b", gpus, kind): gpus * speed
        for gpus in (1, 2, 4)
        for kind, speed in (("V", 1.0), ("K", 0.9))
    }
    spread = {
        (model, gpus, kind, -1): 0.6 * sizes[model, gpus, kind]
        for model, gpus, kind in sizes
        if gpus > 1
    }
    rates = matrix(sizes, spread, restart=30.0)
    jobs = [
        job(str(n), steps, gpus, submit, model)
        for n, (steps, gpus, submit, model) in enumerate(load)
    ]
    for name, policy in POLICIES.items():
        found = simulate(jobs, machines, rates, policy)
        total = found.productive.sum() + sum(each.sum() for each in found.lost.values())
        assert total == pytest.approx(machines.gpus * found.end), name
        assert np.isfinite(found.finish).all(), name
        assert (found.finish >= found.submit + found.held - 1e-6).all()
        assert found.end >= bounds(jobs, machines, rates).makespan_seconds * (1 - 1e-6), name


def test_finish_time_ratios_by_hand():
    # Two alike on one GPU, one after the other: 2 jobs until 100, then 1. m is 2 and 1.5; alone on 1/m: 200 and 150.
    jobs = [job("a", 100), job("b", 100)]
    shown = figures(
        simulate(jobs, cluster(V=(1,)), ONE, POLICIES["fifo-aware"], TWENTY), cluster(V=(1,)), ONE
    )
    assert shown.rho_worst == pytest.approx(200 / 150)
    assert shown.rho_mean == pytest.approx((100 / 200 + 200 / 150) / 2)
    assert shown.unfair == 0.5


def test_overload_is_said_and_a_bound_counts_late_arrivals():
    jobs = [job(str(n), 100, submit=50.0 * n) for n in range(11)]
    found = bounds(jobs, cluster(V=(1,)), ONE)
    assert found.load == pytest.approx(2.2)
    assert found.makespan_seconds == pytest.approx(1100)


def test_a_job_without_a_rate_is_refused():
    with pytest.raises(UserError, match="lost has no rate on any type"):
        simulate([job("lost", 5, model="other")], cluster(V=(1,)), ONE, POLICIES["fifo-aware"])
