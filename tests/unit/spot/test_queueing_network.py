"""The closed network of workers and servers: textbook values, bounds that hold of any network, and the solver."""

import numpy as np
import pytest
from fleet_pools import published_pool
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.core.errors import UserError
from stash.spot.model.queueing import ClosedNetwork, fleet_seconds, network_of_pool, solve_exactly

ONE = np.ones(1)


def throughput(think, demand, workers, randomness=1.0):
    found = solve_exactly(
        [workers], ClosedNetwork(np.array([think]), np.array([demand]), ONE, randomness)
    )
    return workers / float(found.seconds[-1, 0])


def test_two_workers_and_a_machine_of_the_same_pace_do_08_of_its_pace():
    # The machine repairman with Z = D = 1: one worker 1/2; of two, W = 1 + 1/2, X = 2 / 2.5.
    assert throughput(1, 1, 1) == pytest.approx(0.5)
    assert throughput(1, 1, 2) == pytest.approx(0.8)
    assert throughput(1, 1, 3) == pytest.approx(3 / (1 + 1 + 2 - 0.8))  # Q(2) = 2 - X = 1.2


def test_workers_that_take_turns_wait_only_when_the_server_is_full():
    assert [throughput(3, 1, n, 0) for n in (1, 2, 3, 4, 5, 9)] == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1, 1]
    )


@settings(max_examples=40, deadline=None)
@given(
    think=st.lists(st.floats(0.01, 10), min_size=1, max_size=3),
    demand=st.lists(st.floats(0.001, 5), min_size=1, max_size=3),
    size=st.integers(1, 4),
    randomness=st.floats(0, 1),
)
def test_speeds_keep_the_bounds_of_every_network(think, demand, size, randomness):
    net = ClosedNetwork(np.array(think), np.array(demand), np.ones(len(demand)), randomness)
    found = solve_exactly([size] * len(think), net)
    speeds = (found.counts[1:] / found.seconds[1:]).sum(axis=1)
    alone = net.think + net.service
    assert (speeds <= 1 / max(demand) * (1 + 1e-9)).all()
    assert (found.seconds >= alone * (1 - 1e-9)).all()


def test_a_large_fleet_is_as_fast_as_its_server():
    net = ClosedNetwork(np.array([1.0, 3.0, 2.0]), np.array([0.01]), ONE)
    counts = np.array([100, 100, 100])
    assert float((counts / fleet_seconds(counts, net)).sum()) == pytest.approx(100, rel=0.02)
    with pytest.raises(UserError, match="a fleet of 600 workers of 3 types has too many parts"):
        fleet_seconds(2 * counts, net)


def test_a_lone_worker_of_a_pool_takes_what_it_was_timed_at_with_any_server():
    pool = published_pool()
    busy = {"apply_seconds": 0.02, "cores": 4, "count": 2}
    for server in (pool.server, pool.server.model_copy(update=busy)):
        net = network_of_pool(pool.model_copy(update={"server": server}))
        assert net.think + net.service == pytest.approx(
            [kind.single_seconds for kind in pool.types]
        )


def test_servers_are_asked_at_once_so_a_worker_waits_for_its_share_at_one_of_them():
    pool = published_pool()
    server = {"apply_seconds": 0.1, "cores": 1}
    two = network_of_pool(
        pool.model_copy(update={"server": pool.server.model_copy(update={**server, "count": 2})})
    )
    # 11.5 MB are 5.75 MB for each of two, at 1,200 MB/s; 0.1 s of applying are 50 ms on each.
    assert two.demands == pytest.approx([5.75 / 1200, 0.05, 5.75 / 1200])
    assert two.service == pytest.approx(2 * 5.75 / 1200 + 0.05)
    one = network_of_pool(pool.model_copy(update={"server": pool.server.model_copy(update=server)}))
    busy = np.array([2, 5, 5, 8, 5])
    faster, slower = ((busy / fleet_seconds(busy, each)).sum() for each in (two, one))
    assert slower == pytest.approx(1 / 0.1)  # full
    assert slower < faster < 2 / 0.1


def test_a_pool_whose_server_takes_longer_than_an_iteration_is_refused():
    pool = published_pool()
    slow = pool.model_copy(update={"server": pool.server.model_copy(update={"apply_seconds": 0.6})})
    with pytest.raises(
        UserError, match=r"p3.2xlarge takes 0.543 s for an iteration, and the server alone"
    ):
        network_of_pool(slow)
